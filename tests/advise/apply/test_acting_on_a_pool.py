"""Acting on a real pool: what is released, edited and removed, and what the ledger says of it."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from condor_advice.advise.advice import Advice, Adviser
from condor_advice.advise.apply.effects import OutcomeSources, past_with_effects
from condor_advice.advise.apply.execute import Applied, apply, outcome, summary
from condor_advice.advise.apply.plan import ApplyLimits, ApplyPlan, ApplyRequest, ApplyStep
from condor_advice.advise.holds import hold_of_ad
from condor_advice.advise.remedies import Remedy
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.events import JobStatus
from condor_advice.gather.ledger import Action, Effect, Ledger, Result, own_ledger_path
from condor_advice.gather.live import AccessPoint
from condor_advice.lab.pool import Pool
from condor_advice.model.held.rules import Verdict

QUICK = ApplyLimits(canary_margin_seconds=0.5, backoff_minutes=0.0)
# Held when it ends badly, which it does until a file is there.
NEEDS_A_FILE = """
executable = /bin/sh
transfer_executable = false
arguments = "-c 'test -e {file} && sleep {seconds} && exit 0; exit 3'"
on_exit_hold = ExitCode =!= 0
on_exit_hold_reason = "the licence server is down"
log = {log}
request_memory = 32
queue {count}
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CONDOR_ADVICE_STORE", str(tmp_path / "no-store"))
    return tmp_path / "state"


@pytest.fixture
def point(pool: Pool) -> Iterator[AccessPoint]:
    with pool.active():
        yield AccessPoint.find()


@pytest.fixture
def hold(pool: Pool, tmp_path: Path) -> Callable[..., int]:
    def make(count: int = 1, seconds: float = 0.2) -> int:
        text = NEEDS_A_FILE.format(
            file=tmp_path / "licence", seconds=seconds, log=tmp_path / "jobs.log", count=count
        )
        cluster = pool.submit(text, cwd=tmp_path)
        pool.wait_for(cluster, JobStatus.HELD)
        return cluster

    return make


def advices(
    point: AccessPoint,
    cluster: int,
    verdict: Verdict = Verdict.RELEASE,
    edits: tuple[tuple[str, str], ...] = (),
) -> list[Advice]:
    """Advice on each held job of a cluster, with a verdict of the test's choosing."""
    holds = [
        replace(hold_of_ad(live.job, live.ad), template="licence", number=1)
        for live in point.held_jobs([(cluster, None)])
    ]
    return [
        replace(
            advice,
            verdict=verdict,
            p_success=0.9,
            rule=replace(advice.rule, name="licence"),
            remedy=Remedy("wait", edits=edits),
        )
        for advice in Adviser(None).advise(holds)
    ]


def act(
    point: AccessPoint, given: list[Advice], limits: ApplyLimits = QUICK, **more: Any
) -> Applied:
    agree = more.pop("agree", lambda plan: True)
    return apply(given, point, None, limits, more.pop("request", ApplyRequest()), agree)


def ledger(point: AccessPoint) -> list[Action]:
    return past_with_effects(OutcomeSources(point, None, 0.5), None, time.time())


def test_a_released_job_runs_and_every_step_is_in_the_ledger(pool, point, hold, tmp_path) -> None:
    cluster = hold()
    (tmp_path / "licence").touch()
    done = act(point, advices(point, cluster))
    [[action]] = done.actions.values()
    assert (action.result, action.command) == (Result.DONE, f"condor_release {cluster}.0")
    assert done.failed() == []
    assert outcome(done) == f"released: {cluster}.0"
    pool.wait_for(cluster, JobStatus.COMPLETED)
    [written] = ledger(point)
    assert (written.effect, written.result) == (Effect.SUCCEEDED, Result.DONE)
    assert (written.advice.verdict, written.advice.p_success) == ("RELEASE", 0.9)
    assert written.user_log == str(tmp_path / "jobs.log")
    assert "condor-advice: RELEASE licence p=0.9" in (tmp_path / "jobs.log").read_text()
    assert own_ledger_path().is_relative_to(tmp_path)


def test_canaries_go_first_and_a_later_run_releases_the_rest(pool, point, hold, tmp_path) -> None:
    cluster = hold(6, seconds=4)
    given = advices(point, cluster)
    (tmp_path / "licence").touch()
    first = act(point, given)
    assert len(first.actions) == 2
    assert outcome(first).endswith(
        "4 jobs wait: run the same command again later, or with --watch, to continue"
    )
    second = act(point, given)
    assert second.actions == {}, "the canaries have not got anywhere yet"
    assert "must get past the point where it was held" in summary(second.plan)
    deadline = time.monotonic() + 30
    while not (third := act(point, given)).actions:
        assert time.monotonic() < deadline, summary(third.plan)
        time.sleep(0.3)
    assert len(third.actions) == 4
    effects = {action.effect for action in ledger(point) if action.canary}
    assert effects & {Effect.PAST, Effect.SUCCEEDED}
    pool.wait_for(cluster, JobStatus.COMPLETED)
    assert {action.effect for action in ledger(point)} == {Effect.SUCCEEDED}
    assert sum(action.canary for action in ledger(point)) == 2


def test_canaries_that_come_back_keep_the_rest_on_hold(pool, point, hold) -> None:
    cluster = hold(5)
    given = advices(point, cluster)
    assert len(act(point, given).actions) == 2
    pool.wait_for(cluster, JobStatus.HELD)
    deadline = time.monotonic() + 30
    while {action.effect for action in ledger(point)} != {Effect.HELD_AGAIN}:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    pool.wait_for(cluster, JobStatus.HELD)
    again = act(point, advices(point, cluster))
    assert again.actions == {}
    assert "2 of 2 that went first failed or were held again" in summary(again.plan)


def test_the_breaker_says_why_nothing_is_released_any_more(pool, point, hold) -> None:
    quick = ApplyLimits(
        canary_above=9, canary_margin_seconds=0.5, backoff_minutes=0.0, breaker_holds=3
    )
    cluster = hold(3)
    assert len(act(point, advices(point, cluster), quick).actions) == 3
    deadline = time.monotonic() + 30
    while [action.effect for action in ledger(point)] != [Effect.HELD_AGAIN] * 3:
        assert time.monotonic() < deadline
        time.sleep(0.3)
    other = hold(1)
    [advice] = advices(point, other)
    elsewhere = replace(advice, hold=replace(advice.hold, template="quite another reason"))
    stopped = act(point, [elsewhere], quick)
    assert stopped.actions == {}
    assert "stopped: 3 of 3 releases were held again" in summary(stopped.plan)


def test_who_comes_too_late_says_so_and_has_not_failed(pool, point, hold, tmp_path) -> None:
    (tmp_path / "licence").unlink(missing_ok=True)
    cluster = hold(3)

    def meddle(plan: ApplyPlan) -> bool:
        pool.run(["condor_rm", f"{cluster}.0"])
        (tmp_path / "licence").touch()
        pool.run(["condor_release", f"{cluster}.1"])
        return True

    # The plan is made anew after the question, so what is gone is not even tried.
    done = act(point, advices(point, cluster), agree=meddle)
    assert [str(job) for job in done.actions] == [f"{cluster}.2"]
    assert done.failed() == []


def test_a_hold_that_ends_between_look_and_release_is_not_touched(
    pool, point, hold, monkeypatch
) -> None:
    cluster = hold(2)
    release = point.release

    def somebody_is_faster(jobs, reason):
        pool.run(["condor_release", f"{cluster}.0"])
        pool.run(["condor_rm", f"{cluster}.1"])
        return release(jobs, reason)

    monkeypatch.setattr(point, "release", somebody_is_faster)
    done = act(point, advices(point, cluster))
    results = {str(job): actions[0] for job, actions in done.actions.items()}
    assert results[f"{cluster}.0"].result is Result.TOO_LATE
    assert results[f"{cluster}.0"].message == "somebody else had released it"
    assert results[f"{cluster}.1"].message == "it had left the queue"
    assert done.failed() == []
    assert "too late" in outcome(done)


def test_an_edit_is_in_place_before_the_release_and_the_run_gets_it(
    pool, point, hold, tmp_path
) -> None:
    cluster = hold(2)
    (tmp_path / "licence").touch()
    given = advices(point, cluster, Verdict.FIX, (("RequestMemory", "96"),))
    assert act(point, given).actions == {}, "not without --fix"
    done = act(point, given, request=ApplyRequest(fix=True))
    kinds = [[action.action for action in actions] for actions in done.actions.values()]
    assert kinds == [["edit", "release"]] * 2
    assert done.failed() == []
    ads = pool.wait_for(cluster, JobStatus.COMPLETED)
    assert [ad["RequestMemory"] for ad in ads] == [96, 96]
    assert [ad["MemoryProvisioned"] for ad in ads] == [96, 96], "not the old slot"


def test_a_job_whose_edit_is_refused_stays_held_and_the_others_go(
    pool, point, hold, tmp_path
) -> None:
    cluster = hold(2)
    (tmp_path / "licence").touch()
    [first, _] = advices(point, cluster, Verdict.FIX, (("RequestMemory", "96"),))
    [_, second] = advices(point, cluster, Verdict.FIX, (("Owner", '"root"'),))
    done = act(point, [first, second], request=ApplyRequest(fix=True))
    [refused] = done.failed()
    assert str(refused.advice.job) == f"{cluster}.1"
    assert "immutable" in refused.message
    ads = {ad["ProcId"]: ad["JobStatus"] for ad in pool.jobs(f"ClusterId == {cluster}")}
    assert ads[1] == JobStatus.HELD
    assert ads[0] != JobStatus.HELD


def test_a_request_that_is_refused_for_one_job_is_tried_again_for_each(
    pool, point, hold, tmp_path, monkeypatch
) -> None:
    from condor_advice.gather.live import Refused

    cluster = hold(3)
    (tmp_path / "licence").touch()
    edit = point.edit

    def refuses_the_second(jobs, name, value):
        if any(job.proc == 1 for job in jobs):
            raise Refused("the schedd says no")
        return edit(jobs, name, value)

    monkeypatch.setattr(point, "edit", refuses_the_second)
    given = advices(point, cluster, Verdict.FIX, (("RequestMemory", "96"),))
    done = act(point, given, request=ApplyRequest(fix=True))
    kinds = {str(job): [a.action for a in actions] for job, actions in done.actions.items()}
    assert kinds == {
        f"{cluster}.0": ["edit", "release"],
        f"{cluster}.1": ["edit"],
        f"{cluster}.2": ["edit", "release"],
    }, "each edit is in the ledger once"
    [refused] = done.failed()
    assert (str(refused.advice.job), refused.message) == (f"{cluster}.1", "the schedd says no")
    assert f"{cluster}.1: edit refused: the schedd says no" in outcome(done)


def test_a_removed_job_is_gone_and_only_with_leave(pool, point, hold) -> None:
    cluster = hold()
    given = advices(point, cluster, Verdict.REMOVE)
    assert act(point, given).actions == {}
    done = act(point, given, request=ApplyRequest(remove=True))
    [[action]] = done.actions.values()
    assert (action.action, action.result) == ("remove", Result.DONE)
    pool.wait_for(cluster, JobStatus.REMOVED)


def test_a_run_that_dies_in_between_leaves_what_it_meant_to_do(point, hold, monkeypatch) -> None:
    cluster = hold()
    given = advices(point, cluster)

    def killed(jobs, reason):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(point, "release", killed)
        with pytest.raises(KeyboardInterrupt):
            act(point, given)
    [left] = ledger(point)
    assert (left.result, left.command) == (Result.INTENDED, f"condor_release {cluster}.0")
    assert len(act(point, given).actions) == 1, "the next run goes on"


def test_two_runs_at_once_do_not_release_twice(point, hold) -> None:
    cluster = hold()
    given = advices(point, cluster)

    def another_run_begins(plan: ApplyPlan) -> bool:
        lock = own_ledger_path().with_name("ledger.sqlite.acting")
        lock.parent.mkdir(parents=True, exist_ok=True)
        handles.append(lock.open("w"))
        fcntl.flock(handles[0], fcntl.LOCK_EX)
        return True

    handles: list[IO[str]] = []
    with pytest.raises(AdviceError, match="another condor-advice is acting"):
        act(point, given, agree=another_run_begins)
    assert len(point.held_jobs([(cluster, None)])) == 1
    handles[0].close()
    assert len(act(point, given).actions) == 1


def test_no_is_an_answer(point, hold) -> None:
    cluster = hold()
    shown: list[ApplyPlan] = []
    done = act(point, advices(point, cluster), agree=lambda plan: bool(shown.append(plan)))
    assert (done.agreed, done.actions) == (False, {})
    assert [choice.step for choice in shown[0].choices] == [ApplyStep.RELEASE]
    assert len(point.held_jobs([(cluster, None)])) == 1
    assert ledger(point) == []


def test_what_came_of_it_is_also_seen_without_the_schedd(pool, point, hold, tmp_path) -> None:
    cluster = hold()
    (tmp_path / "licence").touch()
    act(point, advices(point, cluster))
    pool.wait_for(cluster, JobStatus.COMPLETED)
    with Ledger(own_ledger_path(), readonly=True) as before:
        assert [action.effect for action in before.actions()] == [Effect.WAITING]
    [action] = past_with_effects(OutcomeSources(None, None, 0.5), None, time.time())
    assert action.effect is Effect.SUCCEEDED
    with Ledger(own_ledger_path(), readonly=True) as after:
        assert [action.effect for action in after.actions()] == [Effect.SUCCEEDED]
