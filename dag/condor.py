"""What a sweep asks of HTCondor: submit the DAG, look at its jobs, let go or remove them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condor_advice.gather.errors import AdviceError, Unreachable
from condor_advice.gather.events import JobStatus

ADVICE_SECONDS = 60


@dataclass(frozen=True)
class Hold:
    """Why a job is held."""

    code: int
    subcode: int
    reason: str


def schedd() -> Any:
    """Return this access point's schedd; it must answer."""
    try:
        import htcondor2

        found = htcondor2.Schedd()
        found.query(constraint="false", projection=["ClusterId"])
    except Exception as error:
        raise Unreachable(
            f"no schedd answers here ({error}); is this an access point, and is CONDOR_CONFIG "
            "right? Nothing was submitted"
        ) from error
    return found


def submit_dag(dag_file: Path, *, force: bool = False) -> int:
    """Submit a DAG as condor_submit_dag does; the cluster of its DAGMan job."""
    queue = schedd()
    import htcondor2

    options: dict[str, Any] = {"UseDagDir": True, "Force": force, "SuppressNotification": True}
    try:
        with _stdout_to_stderr():
            description = htcondor2.Submit.from_dag(str(dag_file), options)
        return int(queue.submit(description).cluster())
    except Exception as error:
        raise AdviceError(
            f"{dag_file}: DAGMan did not take the DAG ({error}); nothing is running"
        ) from error


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Keep standard output for us: the C++ code behind `from_dag` prints to it."""
    import ctypes

    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


def jobs(constraint: str, attributes: list[str]) -> list[dict[str, Any]]:
    """Return attributes of jobs in the queue."""
    ads = schedd().query(constraint=constraint, projection=attributes)
    return [{name: ad.get(name) for name in attributes} for ad in ads]


def hold_of(job: str) -> Hold | None:
    """Return why a job is held; None when it is not."""
    cluster, _, proc = job.partition(".")
    found = jobs(
        f"ClusterId == {int(cluster)} && ProcId == {int(proc or 0)} "
        f"&& JobStatus == {JobStatus.HELD:d}",
        ["HoldReasonCode", "HoldReasonSubCode", "HoldReason"],
    )
    if not found:
        return None
    [ad] = found
    return Hold(
        int(ad["HoldReasonCode"] or 0),
        int(ad["HoldReasonSubCode"] or 0),
        str(ad["HoldReason"] or ""),
    )


def release(job: str, reason: str) -> None:
    """Let a held job go."""
    _act("Release", job, reason)


def remove(job: str, reason: str) -> None:
    """Remove a job."""
    _act("Remove", job, reason)


def _act(action: str, job: str, reason: str) -> None:
    queue = schedd()
    import htcondor2

    # A plain text as reason is dropped by the bindings; a pair is not.
    queue.act(getattr(htcondor2.JobAction, action), [job], (reason, 0))


def advice_on(job: str) -> dict[str, Any] | None:
    """Ask our own advice on a held job; None when it has none.

    Through the command line: this folder stands beside the advice, not above it.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "condor_advice", job, "--json"],
            capture_output=True,
            text=True,
            timeout=ADVICE_SECONDS,
            check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
        return found
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
