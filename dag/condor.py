"""A sweep's dealings with HTCondor: find the schedd, submit a DAG, ask for advice on a hold."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from condor_advice.gather.errors import AdviceError, Unreachable
from condor_advice.gather.live import AccessPoint

ADVICE_SECONDS = 60


def access_point() -> AccessPoint:
    """Return this access point; its schedd must answer."""
    try:
        schedd = AccessPoint.find()
        schedd.select("false", ())
    except (Unreachable, ImportError) as error:
        raise Unreachable(
            f"no schedd answers here ({error.__cause__ or error}); is this an access point, and is "
            "CONDOR_CONFIG correct? Nothing was submitted"
        ) from error
    return schedd


def submit_dag(dag_file: Path) -> int:
    """Submit a DAG as condor_submit_dag does; return the cluster of its DAGMan job."""
    schedd = access_point()
    import htcondor2

    options: dict[str, Any] = {"UseDagDir": True, "SuppressNotification": True}
    try:
        with _stdout_to_stderr():
            description = htcondor2.Submit.from_dag(str(dag_file), options)
        return schedd.submit(description)
    except Exception as error:
        raise AdviceError(
            f"{dag_file}: HTCondor did not accept the DAG ({error}); nothing is running"
        ) from error


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send to stderr what the C++ code behind `from_dag` prints to stdout."""
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


def advice_on(job: str) -> dict[str, Any] | None:
    """Ask condor-advice about a held job; return None when it has no answer.

    Run the command, because this folder must not import advise/.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "condor_advice", job, "--json"],
            capture_output=True,
            text=True,
            timeout=ADVICE_SECONDS,
            check=False,
        )
        advice: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
        return advice
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
