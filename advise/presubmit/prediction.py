"""Everything that can be said of a submit file before it is submitted."""

from __future__ import annotations

import getpass
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from condor_advice.advise.presubmit.lint import MAX_PROCS, Finding, lint, refused
from condor_advice.advise.presubmit.submit_file import CannotParse, Proc, SubmitFile, quantity
from condor_advice.gather.workloads.table import JobTable, TableBuilder
from condor_advice.model.failure.anomaly import Anomaly, against_habit
from condor_advice.model.failure.model import FailureModels, default_directory
from condor_advice.model.failure.sizes import TARGETS, size_keys
from condor_advice.preprocess.jobs.horizons import TEXT_BUCKETS, Horizon, JobDataset

REASONS_SHOWN = 5
NO_MODEL = (
    "no failure model yet: make one with `condor-advice failures train --history FILE` "
    "or name one with --model"
)
SIZE_COMMANDS = {
    "memory_mb": "request_memory",
    "disk_mb": "request_disk",
    "run_seconds": "allowed_execute_duration",
}

WORDS = {
    "all": "all jobs",
    "queue": "jobs of this universe",
    "group": "this accounting group",
    "executable": "this program, whoever runs it",
    "user": "your jobs",
    "user_cpus": "your jobs with as many cores",
    "user_time": "your jobs of this duration",
    "user_queue": "your jobs of this universe",
    "user_shape": "your jobs of this size",
    "user_program": "your jobs of this program",
    "signature": "your jobs of this program and size",
    "cluster": "jobs of this cluster",
}
FEATURE_WORDS = {
    "outcomes": "how many have ended",
    "fail_rate": "share failed so far",
    "fail_last": "how the last ones ended",
    "fail_few": "share failed of the last few",
    "fail_many": "share failed of the last twenty or so",
    "fail_long": "share failed of those that ran two minutes",
    "fail_hour": "share failed in the last hours",
    "fail_day": "share failed in the last days",
    "fail_ten_days": "share failed in the last weeks",
    "weight_hour": "how many ended in the last hour",
    "weight_day": "how many ended today",
    "failure_streak": "failures in a row",
    "success_streak": "successes in a row",
    "since_end": "time since one ended",
    "since_failure": "time since one failed",
    "since_success": "time since one succeeded",
    "since_submit": "time since the last submit",
    "no_news": "nothing known of the last submit yet",
    "batch": "submits in one go",
    "submit_rate": "submits in the last hour",
    "request_change": "other duration than last time",
    "cpus_change": "other number of cores than last time",
    "queued": "waiting now",
    "queued_age": "how long they wait",
    "running": "running now",
    "running_age": "how long they run",
    "log_run": "usual run time",
    "log_run_over_request": "run time against request",
    "at_limit": "share that ran to the limit",
    "request_over_run": "request against usual run time",
    "fail_ran_few": "share failed of the last few that ran",
    "fail_ran_many": "share failed of the last twenty or so that ran",
    "fail_ran_month": "share failed this month of those that ran",
    "fail_long_many": "share failed of the last twenty or so that ran two minutes",
    "fail_long_month": "share failed this month of those that ran two minutes",
    "log_run_failed": "usual run time of those that failed",
    "log_run_passed": "usual run time of those that succeeded",
    "log_run_last": "run time of the last one",
    "failed_over_passed": "run time of failed against succeeded ones",
    "at_limit_many": "share of the last twenty or so that ran to the limit",
    "at_limit_last": "whether the last ones ran to the limit",
    "since_limit": "time since one ran to the limit",
    "request_over_limit": "request against the last limit reached",
    "request_over_last": "request against the last run time",
    "request_over_passed": "request against run time of those that succeeded",
    "request_over_spread": "request against run time, in spreads",
    "usual_wait": "usual wait",
}
PLAIN_WORDS = {
    "log_cpus": "cores asked for",
    "log_requested_seconds": "duration asked for",
    "log_requested_memory": "memory asked for",
    "log_requested_disk": "disk asked for",
    "log_core_seconds": "core time asked for",
    "queue_bucket": "universe",
    **{f"text_{bucket}": "words of the program's path" for bucket in range(TEXT_BUCKETS)},
    "hour": "time of day",
    "weekday": "day of the week",
}


@dataclass(slots=True)
class Prediction:
    """What was found; `risk` is None without a model."""

    file: str
    jobs: int = 0
    looked_at: int = 0
    findings: list[Finding] = field(default_factory=list)
    risk: dict[str, Any] | None = None
    sizes: list[dict[str, Any]] = field(default_factory=list)
    anomalies: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "file": self.file,
            "jobs": self.jobs,
            "looked_at": self.looked_at,
            "findings": [asdict(one) for one in self.findings],
            "risk": self.risk,
            "sizes": self.sizes,
            "anomalies": self.anomalies,
            "note": self.note,
        }


def look_at(
    path: Path,
    arguments: Sequence[str] = (),
    *,
    model_directory: Path | None = None,
    user: str | None = None,
    quantile: float = 0.95,
    ignore: Sequence[str] = (),
    lint_only: bool = False,
    now: float,
) -> Prediction:
    """Lint a submit file and, with a model, predict risk and sizes of its jobs."""
    found = Prediction(str(path))
    try:
        submit = SubmitFile(path, arguments)
    except CannotParse as error:
        found.findings = [refused(error)]
        return found
    found.findings = [one for one in lint(submit) if one.rule not in ignore]
    try:
        found.jobs = len(submit.items()) * submit.count()
        procs = list(submit.procs(MAX_PROCS))
    except CannotParse:
        return found  # the lint has said so
    found.looked_at = len(procs)
    if lint_only or not procs:
        return found
    directory = model_directory or default_directory()
    if model_directory is None and not (directory / "manifest.json").exists():
        found.note = NO_MODEL
        return found
    models = FailureModels.load(directory)
    table = as_table(procs, user or getpass.getuser(), now)
    data, probability = models.at_submit(table, now)
    found.risk = _risk(models, data, probability)
    found.sizes = _sizes(models, table, data, procs, quantile)
    found.anomalies = _anomalies(models, data)
    return found


def as_table(procs: Sequence[Proc], user: str, now: float) -> JobTable:
    """Return the jobs as a table of which nothing but the submit is known."""
    builder = TableBuilder()
    for proc in procs:
        executable = proc.get("executable")
        builder.add(
            str(proc.number),
            {
                "submit_time": now,
                "user": user,
                "group": proc.get("accounting_group") or "",
                # HTCondor keeps the full path in Cmd, and that is what the history knows.
                "executable": str(Path.cwd() / executable) if executable else "",
                "name": proc.get("batch_name") or proc.get("jobbatchname"),
                "queue": proc.get("universe").lower() or "vanilla",
                "requested_cpus": _plain(proc.get("request_cpus")) or 1.0,
                "requested_memory_mb": _size(proc.get("request_memory"), "M"),
                "requested_disk_mb": _size(proc.get("request_disk"), "K"),
                "requested_seconds": _plain(
                    proc.get("allowed_execute_duration") or proc.get("allowed_job_duration")
                ),
            },
        )
    return builder.table()


def describe_reason(name: str, value: float) -> str:
    """Return a feature and its value in words."""
    level, dot, feature = name.partition(".")
    what = (
        f"{WORDS.get(level, level)}: {FEATURE_WORDS.get(feature, feature)}"
        if dot
        else PLAIN_WORDS.get(name, name)
    )
    if math.isnan(value):
        return f"{what}: unknown"
    plain = feature if dot else name
    if plain.startswith(("fail_", "at_limit")):
        return f"{what}: {value:.0%}"
    if plain.startswith(("since_", "running_age", "queued_age")) or plain in (
        "log_run",
        "log_run_failed",
        "log_run_passed",
        "log_run_last",
        "usual_wait",
        "log_requested_seconds",
    ):
        return f"{what}: {_duration(math.expm1(value))}"
    if plain.startswith(("log_", "outcomes", "running", "queued", "weight_")):
        return f"{what}: {math.expm1(value):.3g}"
    return f"{what}: {value:.3g}"


def _risk(
    models: FailureModels,
    data: JobDataset,
    probability: np.ndarray[Any, Any],
) -> dict[str, Any]:
    model = models.get(Horizon.SUBMIT)
    worst = int(np.argmax(probability))
    reasons = model.reasons(model.select(data)[worst])[:REASONS_SHOWN]
    return {
        "horizon": str(Horizon.SUBMIT),
        "probability": float(np.mean(probability)),
        "by_job": [round(float(one), 4) for one in probability],
        "base_rate": model.notes["failed"] / model.notes["rows"],
        "likely_to_fail": bool(probability[worst] >= model.thresholds["f1"]),
        "threshold": float(model.thresholds["f1"]),
        "reasons": [
            {
                "feature": name,
                "value": None if math.isnan(value) else value,
                "share": share,
                "text": describe_reason(name, value),
            }
            for name, value, share in reasons
        ],
    }


def _sizes(
    models: FailureModels,
    table: JobTable,
    data: JobDataset,
    procs: Sequence[Proc],
    quantile: float,
) -> list[dict[str, Any]]:
    found = []
    keys = size_keys(table.take([0]), models.maker)[0]
    first = int(np.flatnonzero(data.row == 0)[0])
    for target, model in models.sizes.items():
        record = model.history.find(keys)
        if record is None:
            continue
        place, sizes = record
        enough = sizes.quantile(quantile)
        suggested = model.suggest(data, first, keys, quantile)
        command = SIZE_COMMANDS[target]
        level = model.history.levels[place]
        found.append(
            {
                "target": target,
                "unit": TARGETS[target][0],
                "command": command,
                "requested": procs[0].get(command) or None,
                "enough": enough,
                "suggested": suggested,
                "suggested_text": _size_text(target, suggested),
                "jobs": len(sizes.values),
                "quantile": quantile,
                "level": level,
                "method": model.method,
                "why": f"{quantile:.0%} of the last {len(sizes.values)} of {WORDS[level]} stayed "
                f"within {_size_text(target, enough)}"
                + ("" if model.corrections else " (too few jobs to check how far that holds)")
                + f"; now {procs[0].get(command) or 'not set'}",
            }
        )
    return found


def _anomalies(models: FailureModels, data: JobDataset) -> list[dict[str, Any]]:
    odd: list[Anomaly] = against_habit(data)
    if models.anomalies is not None:
        odd += models.anomalies.find(data)
    seen, found = set(), []
    for one in odd:
        if (one.field, one.against) in seen:
            continue
        seen.add((one.field, one.against))
        rarity = None if math.isnan(one.rarity) else one.rarity
        found.append(
            {
                "field": one.field,
                "value": one.value,
                "usual": one.usual,
                "rarity": rarity,
                "against": one.against,
                "job": one.row,
                "text": f"{PLAIN_WORDS.get(one.field, one.field)} is {one.value:.4g}, "
                f"usual for {one.against} is about {one.usual:.4g}",
            }
        )
    return found


def _size_text(target: str, amount: float) -> str:
    if target == "run_seconds":
        return str(math.ceil(amount))
    if amount >= 10 * 1024:
        return f"{math.ceil(amount / 1024)} GB"
    return f"{max(1, math.ceil(amount))} MB"


def _duration(seconds: float) -> str:
    for name, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.0f} s"


def _plain(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _size(text: str, plain_unit: str) -> float | None:
    request = quantity(text, plain_unit, "M") if text else None
    return None if request is None else request.amount
