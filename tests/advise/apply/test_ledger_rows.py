"""What the ledger says about actions when the schedd fails in between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from condor_advice.advise.apply.execute import _Executor
from condor_advice.advise.apply.options import Acting
from condor_advice.advise.apply.plan import ApplyStep, Case, Choice, QueueState
from condor_advice.advise.because import StepReason
from condor_advice.gather.errors import AdviceError, Unreachable
from condor_advice.gather.events import JobStatus
from condor_advice.gather.ledger import GivenAdvice, Ledger, Result

HELD_AT = 1_800_000_000


def choice(proc: int, chance: float) -> Choice:
    given = GivenAdvice(
        at=HELD_AT + 60, access_point="ap1", cluster=7, proc=proc, hold_number=1, held_at=HELD_AT,
        verdict="RELEASE", p_success=chance, source="rules", model=None, template="t",
        owner="alice", code=13, subcode=2,
    )  # fmt: skip
    state = QueueState("alice", JobStatus.HELD, HELD_AT, 13, "reason", None, None)
    case = Case(given, "label", (), False, None)
    return Choice(case, ApplyStep.RELEASE, StepReason.ADVISED.given(), state=state)


class FailsAtSecondRequest:
    """An access point that carries out one release request and then stops answering them."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        held = {"JobStatus": JobStatus.HELD, "EnteredCurrentStatus": HELD_AT}
        self.ads: dict[Any, dict[str, Any]] = {one.case.job: dict(held) for one in choices}
        self.requests = 0

    def release(self, jobs: Sequence[Any], reason: str) -> None:
        self.requests += 1
        if self.requests > 1:
            raise Unreachable("the schedd hung up")
        procs = {job.proc for job in jobs}
        for job, ad in self.ads.items():
            if job.proc in procs:
                ad |= {"JobStatus": JobStatus.IDLE, "ReleaseReason": reason}

    remove = release

    def jobs(self, ids: object, attributes: object) -> list[Any]:
        return [SimpleNamespace(job=job, ad=ad) for job, ad in self.ads.items()]


def test_a_release_is_recorded_as_done_although_a_later_request_failed(tmp_path: Path) -> None:
    choices = [choice(0, 0.9), choice(1, 0.6), choice(2, 0.7)]  # a request for each chance
    point: Any = FailsAtSecondRequest(choices)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        done = _Executor(point, ledger).do(choices)
    assert point.requests == 2, "a schedd that hung up is not asked again"
    results = [[(a.result, a.message) for a in done[one.case.job]] for one in choices]
    failed = [(Result.FAILED, "the schedd hung up")]
    assert results == [[(Result.DONE, "")], failed, failed]


def test_without_a_schedd_and_without_own_jobs_nothing_is_done() -> None:
    acting = Acting(acts=True, yes=True, confidence=None, fix=False, remove=False, quiet=True)
    with pytest.raises(AdviceError, match="the schedd did not answer, so nothing was done"):
        acting.on([])
