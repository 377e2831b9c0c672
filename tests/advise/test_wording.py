"""Every message can be rewritten: verdicts, groups and planned actions stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from condor_advice.advise import advice as advice_module
from condor_advice.advise import commands as commands_package
from condor_advice.advise.advice import Advice, Adviser
from condor_advice.advise.apply.plan import ApplyLimits, ApplyRequest, Case, QueueState, make_plan
from condor_advice.advise.because import ASK_STAFF_FIRST, Because, Grounds, StepReason, WordedReason
from condor_advice.advise.find_holds import read_logs
from condor_advice.advise.holds import Hold, hold_of_ad, hold_of_episode
from condor_advice.advise.remedies import remedy_for
from condor_advice.advise.report import grouped, report
from condor_advice.advise.site import Site
from condor_advice.gather.events import HoldCode, JobId, JobStatus
from condor_advice.model.held import rules

DEMO = Path(commands_package.__file__).resolve().parents[1] / "demo.log"
HELD_AT = 1_800_000_000
SITE = Site(max_holds=8, staff_codes=("34/104",), fatal_codes=("35",))
EVERYTHING = ApplyRequest(confidence=0.0, fix=True, remove=True)
# The texts of a rule that are for people alone.
RULE_TEXTS = ("name", "why", "remedy", "source")


def holds() -> list[Hold]:
    """The demo's holds, and a live hold of every code with a few kinds of reason."""
    kept = read_logs([str(DEMO)], "UTC")
    logged = [hold_of_episode(episode, kept) for episode in kept.open_holds()]
    reasons = [
        "via condor_hold (by user ana)",
        "via condor_hold (by user root)",
        "memory usage exceeded request_memory",
        "The requested URL returned error: 503",
        "reading from file /no/such.dat: (errno 2) No such file",
    ]
    live = [
        hold_of_ad(
            JobId("ap1", code + 1, proc),
            {
                "HoldReason": reason,
                "HoldReasonCode": int(code),
                "HoldReasonSubCode": 102 if code == HoldCode.JOB_OUT_OF_RESOURCES else 2,
                "EnteredCurrentStatus": HELD_AT,
                "Owner": "ana",
                "NumHolds": 1 + 3 * proc,
                "NumHoldsByReason": {"X": 1 + 3 * proc},
                "RequestMemory": 1000,
                "MemoryUsage": 1100,
            },
        )
        for code in HoldCode
        for proc, reason in enumerate(reasons)
    ]
    return logged + live


@dataclass(frozen=True)
class Decided:
    """All that is decided about a list of holds, without a word for people."""

    verdicts: Sequence[object]
    groups: Sequence[object]
    steps: Sequence[object]


def decide_on(holds: Sequence[Hold]) -> tuple[Decided, list[Advice], list[str]]:
    now = datetime.fromtimestamp(HELD_AT + 86400, UTC)
    advices = Adviser(None, SITE, now=now).advise(holds)
    cases = [Case.of(advice, now.timestamp()) for advice in advices]
    states = {
        case.job: QueueState(
            "ana", JobStatus.HELD, int(case.given.held_at), case.given.code,
            advice.hold.reason, 4.0, None,
        )
        for case, advice in zip(cases, advices, strict=True)
    }  # fmt: skip
    plan = make_plan(cases, states, (), ApplyLimits(), EVERYTHING, now.timestamp())
    decided = Decided(
        [
            (a.verdict, a.grounds.reason, a.p_success, a.sure, a.commands, a.remedy.edits,
             a.remedy.by_hand, a.remedy.not_before, a.cost)
            for a in advices
        ],
        [[a.hold.job for a in group.advices] for group in grouped(advices)],
        [(c.step, c.grounds.reason, c.canary, c.until) for c in plan.choices],
    )  # fmt: skip
    return decided, advices, [advice.because for advice in advices] + [c.why for c in plan.choices]


def rewrite_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    nonsense = (f"blah {number}" for number in count())

    def rewritten(rule: rules.Rule) -> rules.Rule:
        return replace(rule, **{name: next(nonsense) for name in RULE_TEXTS})

    for member in (*Because, *StepReason):
        monkeypatch.setattr(member, "words", next(nonsense))
    monkeypatch.setattr(rules, "RULES", tuple(map(rewritten, rules.RULES)))
    monkeypatch.setattr(rules, "FUTILE", rewritten(rules.FUTILE))

    def remedy_without_sense(*arguments, **more):
        return replace(remedy_for(*arguments, **more), text=next(nonsense), source=next(nonsense))

    monkeypatch.setattr(advice_module, "remedy_for", remedy_without_sense)


def test_no_decision_hangs_on_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = holds()
    before, advices, said = decide_on(asked)
    assert {advice.verdict for advice in advices} == set(rules.Verdict)
    with monkeypatch.context() as patched:
        rewrite_everything(patched)
        after, _, nonsense = decide_on(asked)
    assert set(nonsense).isdisjoint(said), "every sentence was rewritten"
    assert after == before


def test_the_staff_is_asked_first_whatever_the_reason_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for because in ASK_STAFF_FIRST:
        monkeypatch.setattr(because, "words", "")
    by_root = next(hold for hold in holds() if "by user root" in hold.reason and hold.code == 1)
    [advice] = Adviser(None, Site(contact="help@site")).advise([by_root])
    assert advice.grounds.reason is Because.SOMEBODY_ELSE_HELD
    assert advice.remedy.text.startswith("ask help@site first; then")


def test_a_try_is_suggested_whatever_the_doubt_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    for because in Because:
        monkeypatch.setattr(because, "words", "")
    [transfer] = [
        hold for hold in holds() if hold.code == HoldCode.INVALID_TRANSFER_ACK and hold.number == 1
    ]
    [advice] = Adviser(None).advise([transfer])
    assert advice.grounds.reason is Because.TOO_LITTLE_KNOWN
    assert "look at it; if it is worth a try:" in report([advice])


@pytest.mark.parametrize("reasons", [Because, StepReason])
def test_reasons_have_ids_and_words_of_their_own(reasons: type[WordedReason]) -> None:
    assert all(member.value == member.name.lower() for member in reasons)
    assert len({member.words for member in reasons}) == len(reasons)
    assert len(reasons.__members__) == len(reasons), "an alias hides a reason"


def test_a_reason_names_its_values() -> None:
    grounds = Because.TOO_MANY_HOLDS.given(number=9, allowed=8)
    assert str(grounds) == "it was held 9 times, and the site allows 8"
    assert grounds == Grounds(Because.TOO_MANY_HOLDS, (("number", 9), ("allowed", 8)))
    assert grounds.id == "too_many_holds"
