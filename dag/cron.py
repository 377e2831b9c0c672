"""Keep an access point's models fresh: jobs that HTCondor itself starts by the clock.

HTCondor's crondor jobs (cron_minute, cron_hour, ...) stay in the queue and run again and again,
on the access point (local universe), where the logs, the store and the registry are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from condor_advice.dag.condor import access_point
from condor_advice.dag.generate import quoted
from condor_advice.gather.errors import UsageError
from condor_advice.gather.events import JobStatus
from condor_advice.model.registry.versions import default_models_path

_AT = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
MARK = "CondorAdviceCron"  # an attribute by which our jobs are known


@dataclass(frozen=True)
class CronJob:
    """One job that the clock starts."""

    name: str
    command: tuple[str, ...]
    minute: str
    hour: str = "*"


def plan_cron(
    store: Path, logs: Sequence[Path], every_minutes: int, retrain_at: str, since: str
) -> list[CronJob]:
    """Return the collector, where logs are named, and the nightly retraining.

    The retraining is `condor-advice train`: it promotes through the gate, or leaves the model
    that answers as it is.
    """
    at = _AT.fullmatch(retrain_at)
    if at is None:
        raise UsageError(f"--retrain-at {retrain_at}: a time such as 3:30 is needed")
    if not 1 <= every_minutes <= 59:
        raise UsageError(f"--gather-every {every_minutes}: from 1 to 59 minutes")
    advice = (sys.executable, "-m", "condor_advice")
    store = store.absolute()
    found = []
    if logs:
        names = [str(log.absolute()) for log in logs]
        found.append(
            CronJob(
                "gather",
                (*advice, "gather", *names, "--store", str(store), "--json"),
                f"*/{every_minutes}",
            )
        )
    train = (*advice, "train", "--store", str(store), "--since", since, "--json")
    found.append(CronJob("retrain", train, str(int(at[2])), str(int(at[1]))))
    return found


def describe(job: CronJob, directory: Path) -> dict[str, str]:
    """Return a job's submit description."""
    executable, *arguments = job.command
    return {
        "universe": "local",
        "executable": executable,
        "arguments": '"' + " ".join(quoted(argument) for argument in arguments) + '"',
        "initialdir": str(directory),
        "output": f"{job.name}.out",
        "error": f"{job.name}.err",
        "log": f"{job.name}.log",
        "cron_minute": job.minute,
        "cron_hour": job.hour,
        # A job that was due while the schedd was down starts up to ten minutes late.
        "cron_window": "600",
        "on_exit_remove": "false",
        # One that failed runs at its next time all the same; one held would never again.
        "periodic_release": "HoldReasonCode != 1 && time() - EnteredCurrentStatus > 600",
        "environment": f'"OMP_NUM_THREADS=1 CONDOR_ADVICE_MODELS={default_models_path()}"',
        "getenv": "HOME, PATH, XDG_*, CONDOR_CONFIG, LANG, LC_*, TZ",
        "batch_name": f"condor-advice {job.name}",
        f"My.{MARK}": f'"{job.name}"',
    }


def write_cron(found: Sequence[CronJob], directory: Path) -> list[Path]:
    """Write the submit descriptions, for people who submit them themselves."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for job in found:
        path = directory / f"{job.name}.sub"
        body = "".join(f"{key} = {value}\n" for key, value in describe(job, directory).items())
        path.write_text(f"{body}queue\n")
        paths.append(path)
    return paths


def submit_cron(jobs: Sequence[CronJob], directory: Path) -> dict[str, int]:
    """Submit the jobs; return the cluster of each. Refuse a name that is in the queue already."""
    schedd = access_point()
    import htcondor2

    queued = queued_cron()
    for job in jobs:
        if job.name in queued:
            raise UsageError(
                f"{job.name} is in the queue already as job {queued[job.name]}.0; remove that "
                f"first: condor_rm {queued[job.name]}"
            )
    return {job.name: schedd.submit(htcondor2.Submit(describe(job, directory))) for job in jobs}


def queued_cron() -> dict[str, int]:
    """Return the clusters of our cron jobs in the queue, by name."""
    live_jobs = access_point().select(f"{MARK} isnt undefined", [MARK, "JobStatus"])
    return {
        str(live.ad[MARK]): live.job.cluster
        for live in live_jobs
        if live.ad["JobStatus"] != JobStatus.REMOVED
    }
