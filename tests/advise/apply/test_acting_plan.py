"""Which jobs are acted on, which wait and which are left alone: decided without a pool."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from condor_advice.advise.apply.plan import (
    ApplyLimits,
    ApplyPlan,
    ApplyRequest,
    ApplyStep,
    Case,
    QueueState,
    batch_of,
    make_plan,
)
from condor_advice.gather.errors import UsageError
from condor_advice.gather.ledger import Action, Effect, GivenAdvice, Result

NOW = 1_800_000_000.0
HELD_AT = int(NOW - 600)
LIMITS = ApplyLimits()
EDITS = (("RequestMemory", "512"),)


def case(proc: int = 0, verdict: str = "RELEASE", chance: float = 0.9, holds: int = 1, **more):
    edits = more.pop("edits", EDITS if verdict == "FIX" else ())
    given = GivenAdvice(
        at=NOW, access_point="ap1", cluster=more.pop("cluster", 7), proc=proc, hold_number=holds,
        held_at=HELD_AT, verdict=verdict, p_success=chance, source="rules", model=None,
        template=more.pop("template", "file server trouble"), owner="alice",
        code=more.pop("code", 13), subcode=256,
    )  # fmt: skip
    return Case(given, "label", edits, more.pop("by_hand", False), more.pop("not_before", None))


def state(case: Case, **changes: object) -> QueueState:
    usual = QueueState("alice", 5, HELD_AT, case.given.code, "some reason", 4.0, None)
    return replace(usual, **changes)


def plan(cases: list[Case], past=(), limits=LIMITS, request=None, now=NOW, **changes) -> ApplyPlan:
    states = {one.job: state(one, **changes) for one in cases}
    return make_plan(cases, states, past, limits, request or ApplyRequest(), now)


def steps(found: ApplyPlan) -> list[ApplyStep]:
    return [choice.step for choice in found.choices]


def action(of: Case, effect: Effect, minutes_ago: float = 30, *, canary: bool = True) -> Action:
    at = NOW - 60 * minutes_ago
    return Action(
        of.given, at, "release", "condor_release", batch_of(of.given), canary,
        result=Result.DONE, effect=effect, effect_at=at + 60,
    )  # fmt: skip


def test_only_what_is_asked_for_is_done() -> None:
    cases = [
        case(0, "RELEASE", 0.9), case(1, "RELEASE", 0.4), case(2, "FIX"), case(3, "REMOVE"),
        case(4, "ASK"),
    ]  # fmt: skip
    leave = ApplyStep.LEAVE
    assert steps(plan(cases)) == [ApplyStep.RELEASE, leave, leave, leave, leave]
    assert steps(plan(cases, request=ApplyRequest(confidence=0.3)))[:2] == [
        ApplyStep.RELEASE,
        ApplyStep.RELEASE,
    ]
    assert steps(plan(cases, request=ApplyRequest(fix=True)))[2] is ApplyStep.EDIT
    assert steps(plan(cases, request=ApplyRequest(remove=True)))[3] is ApplyStep.REMOVE
    everything = steps(plan(cases, request=ApplyRequest(confidence=0.0, fix=True, remove=True)))
    assert everything[4] is leave, "a question to a person is never answered by the tool"
    assert "40%, is below the 50%" in plan(cases).choices[1].why


def test_a_cause_that_was_seen_to_be_gone_outweighs_the_chance_unless_one_is_asked_for() -> None:
    one = replace(case(chance=0.3), gone=True)
    assert steps(plan([one])) == [ApplyStep.RELEASE]
    assert steps(plan([one], request=ApplyRequest(confidence=0.6))) == [ApplyStep.LEAVE]


def test_a_fix_that_needs_a_person_is_left_to_one() -> None:
    cases = [case(0, "FIX", by_hand=True), case(1, "FIX", edits=())]
    found = plan(cases, request=ApplyRequest(fix=True))
    assert steps(found) == [ApplyStep.LEAVE, ApplyStep.LEAVE]
    assert found.choices[0].why == "it needs you first; the advice says what to do"


@pytest.mark.parametrize(
    ("code", "reason", "why"),
    [
        (1, "via condor_hold (by user bob)", "bob holds it"),
        (1, "load on the file server (by user condor)", "condor holds it"),
        (1, "via condor_hold (by user alice)", "its owner holds it"),
        (1, "via condor_hold (by user alice@pool.local)", "its owner holds it"),
        (15, "submitted on hold at user's request", "meant to be on hold"),
        (16, "Spooling input data files", "spooled"),
        (26, "over its share", "a policy of the site"),
        (99, "for repairs", "code 99"),
        (13, "HELD BY STAFF: see ticket", "leaves holds whose reason matches"),
    ],
)
def test_holds_that_people_set_are_left_alone_whatever_the_chance(code, reason, why) -> None:
    limits = ApplyLimits(leave_codes=(99,), leave_reasons=("held by staff",))
    request = ApplyRequest(confidence=0.0, fix=True, remove=True)
    for verdict in ("RELEASE", "FIX", "REMOVE"):
        one = case(0, verdict, 1.0, code=code)
        found = plan([one], limits=limits, request=request, code=code, reason=reason)
        if code == 26 and verdict != "RELEASE":
            continue  # what the policy asks for may be done
        assert steps(found) == [ApplyStep.LEAVE]
        assert why in found.choices[0].why


def test_what_happened_since_the_advice_is_respected() -> None:
    one = case()
    assert (
        make_plan([one], {}, (), LIMITS, ApplyRequest(), NOW).choices[0].why
        == "it has left the queue"
    )
    assert plan([one], status=2).choices[0].why == "it is no longer on hold"
    assert "held again" in plan([one], entered=HELD_AT + 60).choices[0].why
    assert steps(plan([one], entered=HELD_AT + 1)) == [ApplyStep.RELEASE], (
        "clocks differ by a second"
    )


def test_each_further_hold_waits_longer_and_in_the_end_for_good() -> None:
    waits = [LIMITS.wait_seconds(n) / 60 for n in range(1, 6)]
    assert waits == [0, 5, 10, 20, 40]
    assert LIMITS.wait_seconds(60) == 24 * 3600
    assert steps(plan([case(holds=3)], now=HELD_AT + 601)) == [ApplyStep.RELEASE]
    early = plan([case(holds=3)], now=HELD_AT + 599)
    assert steps(early) == [ApplyStep.WAIT]
    assert early.choices[0].until == HELD_AT + 600
    enough = plan([case(holds=11)], now=NOW + 1e6)
    assert steps(enough) == [ApplyStep.LEAVE]
    assert "11 times" in enough.choices[0].why


def test_a_cause_that_needs_time_is_given_it() -> None:
    one = case(not_before=NOW + 100)
    assert plan([one]).choices[0].until == NOW + 100
    assert steps(plan([one], now=NOW + 101)) == [ApplyStep.RELEASE]


def test_a_few_jobs_need_no_canary_and_many_send_one_of_each_cluster() -> None:
    assert steps(plan([case(n) for n in range(3)])) == [ApplyStep.RELEASE] * 3
    cases = [case(n, cluster=7 if n < 5 else 8) for n in range(10)]
    found = plan(cases)
    first = [choice for choice in found.choices if choice.canary]
    assert [str(choice.case.job) for choice in first] == ["7.0", "8.5"]
    assert steps(found).count(ApplyStep.WAIT) == 8


def test_jobs_held_for_different_reasons_do_not_wait_for_each_other() -> None:
    many = [case(n) for n in range(6)]
    few = [case(n, cluster=9, template="transfer plug-in missing") for n in range(2)]
    assert [c.step for c in plan([*many, *few]).choices[6:]] == [ApplyStep.RELEASE] * 2


@pytest.mark.parametrize(
    ("effects", "expected"),
    [
        ([Effect.WAITING], ApplyStep.WAIT),
        ([Effect.PAST], ApplyStep.RELEASE),
        ([Effect.SUCCEEDED], ApplyStep.RELEASE),
        ([Effect.PAST, Effect.WAITING], ApplyStep.RELEASE),
        ([Effect.HELD_AGAIN], ApplyStep.WAIT),
        ([Effect.HELD_AGAIN, Effect.WAITING], ApplyStep.WAIT),
        ([Effect.HELD_AGAIN, Effect.SUCCEEDED], ApplyStep.WAIT),
        ([Effect.FAILED], ApplyStep.WAIT),
    ],
)
def test_the_rest_goes_when_the_canaries_got_through(effects, expected) -> None:
    past = [action(case(100 + n), effect) for n, effect in enumerate(effects)]
    found = plan([case(n) for n in range(8)], past)
    assert set(steps(found)) == {expected}
    assert not any(choice.canary for choice in found.choices)


def test_after_a_rest_new_canaries_go_where_earlier_ones_came_back() -> None:
    past = [action(case(100), Effect.HELD_AGAIN, minutes_ago=119)]
    cases = [case(n) for n in range(8)]
    resting = plan(cases, past)
    assert set(steps(resting)) == {ApplyStep.WAIT}
    assert resting.choices[0].until is not None
    assert sum(choice.canary for choice in plan(cases, past, now=NOW + 180).choices) == 2


def test_a_canary_that_nobody_runs_does_not_keep_the_rest_for_ever() -> None:
    past = [action(case(100), Effect.WAITING, minutes_ago=359)]
    assert set(steps(plan([case(n) for n in range(8)], past))) == {ApplyStep.WAIT}
    later = plan([case(n) for n in range(8)], past, now=NOW + 120)
    assert sum(choice.canary for choice in later.choices) == 2


def test_waiting_canaries_hold_back_even_a_small_rest() -> None:
    past = [action(case(100), Effect.WAITING, minutes_ago=1)]
    assert steps(plan([case(0), case(1)], past)) == [ApplyStep.WAIT, ApplyStep.WAIT]


def test_what_was_learned_long_ago_is_not_trusted() -> None:
    past = [action(case(100), Effect.SUCCEEDED, minutes_ago=25 * 60)]
    assert sum(choice.canary for choice in plan([case(n) for n in range(8)], past).choices) == 2


def test_the_hour_has_a_cap_and_canaries_come_first() -> None:
    limits = ApplyLimits(actions_per_hour=4)
    past = [action(case(100 + n, template="x"), Effect.WAITING, canary=False) for n in range(2)]
    few = [case(n, cluster=9, template="y") for n in range(3)]
    many = [case(n) for n in range(10)]
    found = plan([*few, *many], past, limits)
    acts = found.acts()
    assert len(acts) == 2
    assert all(choice.canary for choice in acts)
    assert "cap" in found.choices[0].why
    an_hour_later = plan([*few, *many], past, limits, now=NOW + 1900)
    assert len(an_hour_later.acts()) == 4


def test_removals_count_against_the_cap_too() -> None:
    cases = [case(n, "REMOVE") for n in range(6)]
    found = plan(cases, limits=ApplyLimits(actions_per_hour=4), request=ApplyRequest(remove=True))
    assert steps(found).count(ApplyStep.REMOVE) == 4


def test_the_breaker_stops_everything_when_releases_come_back() -> None:
    other = [case(n, cluster=50, template="another") for n in range(5)]
    back = [action(one, Effect.HELD_AGAIN, canary=False) for one in other]
    fresh = [case(0), case(1, "FIX"), case(2, "REMOVE")]
    request = ApplyRequest(fix=True, remove=True)
    stopped = plan(fresh, back, request=request)
    assert steps(stopped) == [ApplyStep.WAIT, ApplyStep.WAIT, ApplyStep.REMOVE]
    assert "5 of 5 releases were held again within 60 minutes" in str(stopped.breaker)
    assert not plan(fresh, back[:4], request=request).breaker
    good = [action(case(200 + n, template="z"), Effect.PAST, canary=False) for n in range(5)]
    assert not plan(fresh, back + good, request=request).breaker, "half and half is no storm"
    assert not plan(fresh, back, request=request, now=NOW + 3000).breaker, "it closes by itself"


def test_limits_come_from_configuration_and_mistakes_are_named() -> None:
    read = ApplyLimits.read({"confidence": 0.95, "actions_per_hour": 20, "leave_codes": [3, 5]})
    assert (read.confidence, read.actions_per_hour, read.leave_codes) == (0.95, 20, (3, 5))
    with pytest.raises(UsageError, match="canary_job: unknown setting"):
        ApplyLimits.read({"canary_job": 1})
    with pytest.raises(UsageError, match="must be a number, at least 0"):
        ApplyLimits.read({"confidence": "high"})
    with pytest.raises(UsageError, match="leave_reasons"):
        ApplyLimits.read({"leave_reasons": ["("]})
    with pytest.raises(UsageError, match="write a list"):
        ApplyLimits.read({"leave_codes": 3})


@pytest.mark.parametrize("chance", [math.nan, math.inf, -math.inf, -0.01, 1.01])
@pytest.mark.parametrize("verdict", ["RELEASE", "FIX", "REMOVE"])
def test_a_chance_that_is_none_never_acts(chance: float, verdict: str) -> None:
    request = ApplyRequest(confidence=0.0, fix=True, remove=True)
    found = plan([case(chance=chance, verdict=verdict)], request=request)
    assert steps(found) == [ApplyStep.LEAVE]
    gone = replace(case(chance=chance, verdict=verdict), gone=True)
    assert steps(plan([gone], request=replace(request, confidence=None))) == [ApplyStep.LEAVE]


def test_a_required_chance_that_is_no_number_releases_nothing() -> None:
    found = plan([case(chance=1.0)], request=ApplyRequest(confidence=math.nan))
    assert steps(found) == [ApplyStep.LEAVE]
    for value in (math.nan, math.inf):
        with pytest.raises(UsageError, match="confidence"):
            ApplyLimits.read({"confidence": value})
