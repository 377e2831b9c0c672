"""Keep an access point's models up to date with jobs that HTCondor starts on a schedule.

These are CronTab jobs (cron_minute, cron_hour, ...): they stay in the queue and run again and
again. They run on the access point (local universe), where logs, store and registry are.
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
from condor_advice.gather.events import HoldCode, JobStatus
from condor_advice.model.registry.versions import default_models_path

_AT = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
MARK = "CondorAdviceCron"  # the job attribute that marks our jobs


@dataclass(frozen=True)
class CronJob:
    """One scheduled job."""

    name: str
    command: tuple[str, ...]
    minute: str
    hour: str = "*"


def plan_cron(
    store: Path, logs: Sequence[Path], every_minutes: int, retrain_at: str, since: str
) -> list[CronJob]:
    """Return the gather job, if logs are named, and the nightly retraining job.

    Retraining is `condor-advice train`: it promotes the new model if the model passes the gate,
    and otherwise keeps the current one.
    """
    at = _AT.fullmatch(retrain_at)
    if at is None:
        raise UsageError(f"--retrain-at {retrain_at}: give a time such as 3:30")
    if not 1 <= every_minutes <= 59:
        raise UsageError(f"--gather-every {every_minutes}: give 1 to 59 minutes")
    advice = (sys.executable, "-m", "condor_advice")
    store = store.absolute()
    jobs = []
    if logs:
        names = [str(log.absolute()) for log in logs]
        jobs.append(
            CronJob(
                "gather",
                (*advice, "gather", *names, "--store", str(store), "--json"),
                f"*/{every_minutes}",
            )
        )
    train = (*advice, "train", "--store", str(store), "--since", since, "--json")
    jobs.append(CronJob("retrain", train, str(int(at[2])), str(int(at[1]))))
    return jobs


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
        # A job that was due while the schedd was down may start up to ten minutes late.
        "cron_window": "600",
        "on_exit_remove": "false",
        # A job that failed runs again at its next time; a held one would never run again.
        "periodic_release": f"HoldReasonCode != {HoldCode.USER_REQUEST:d} "
        "&& time() - EnteredCurrentStatus > 600",
        "environment": f'"OMP_NUM_THREADS=1 CONDOR_ADVICE_MODELS={default_models_path()}"',
        "getenv": "HOME, PATH, XDG_*, CONDOR_CONFIG, LANG, LC_*, TZ",
        "batch_name": f"condor-advice {job.name}",
        f"My.{MARK}": f'"{job.name}"',
    }


def write_cron(jobs: Sequence[CronJob], directory: Path) -> list[Path]:
    """Write the submit descriptions, for users who submit them by hand."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for job in jobs:
        path = directory / f"{job.name}.sub"
        body = "".join(f"{key} = {value}\n" for key, value in describe(job, directory).items())
        path.write_text(f"{body}queue\n")
        paths.append(path)
    return paths


def submit_cron(jobs: Sequence[CronJob], directory: Path) -> dict[str, int]:
    """Submit the jobs and return the cluster of each; refuse a job that is already queued."""
    schedd = access_point()
    import htcondor2

    queued = queued_cron()
    for job in jobs:
        if job.name in queued:
            raise UsageError(
                f"{job.name} is already in the queue as job {queued[job.name]}.0; remove that job "
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
