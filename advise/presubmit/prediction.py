"""Predict risk and sizes of the jobs of a submit file, and find unusual requests."""

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
    "no failure model yet; train one with `condor-advice failures train --history FILE` "
    "or name one with --model"
)
SIZE_COMMANDS = {
    "memory_mb": "request_memory",
    "disk_mb": "request_disk",
    "run_seconds": "allowed_execute_duration",
}

LEVEL_WORDS = {
    "all": "all jobs",
    "queue": "jobs of this universe",
    "group": "jobs of this accounting group",
    "executable": "jobs of this program, of all users",
    "user": "your jobs",
    "user_cpus": "your jobs with this number of cores",
    "user_time": "your jobs of this duration",
    "user_queue": "your jobs of this universe",
    "user_shape": "your jobs of this size",
    "user_program": "your jobs of this program",
    "signature": "your jobs of this program and size",
    "cluster": "jobs of this cluster",
}
FEATURE_WORDS = {
    "outcomes": "number that have ended",
    "fail_rate": "share that failed so far",
    "fail_last": "how the last ones ended",
    "fail_few": "share failed of the last few",
    "fail_many": "share failed of the last twenty or so",
    "fail_long": "share failed of those that ran two minutes",
    "fail_hour": "share failed in the last hours",
    "fail_day": "share failed in the last days",
    "fail_ten_days": "share failed in the last weeks",
    "weight_hour": "number that ended in the last hour",
    "weight_day": "number that ended in the last day",
    "failure_streak": "failures in a row",
    "success_streak": "successes in a row",
    "since_end": "time since one ended",
    "since_failure": "time since one failed",
    "since_success": "time since one succeeded",
    "since_submit": "time since the last submit",
    "no_news": "outcome of the last submit not known yet",
    "batch": "submits in quick succession",
    "submit_rate": "submits in the last hour",
    "request_change": "change of requested duration since last time",
    "cpus_change": "change of requested cores since last time",
    "queued": "idle now",
    "queued_age": "how long they have been idle",
    "running": "running now",
    "running_age": "how long they have been running",
    "log_run": "usual run time",
    "log_run_over_request": "run time compared with request",
    "at_limit": "share that ran to the limit",
    "request_over_run": "request compared with usual run time",
    "fail_ran_few": "share failed of the last few that ran",
    "fail_ran_many": "share failed of the last twenty or so that ran",
    "fail_ran_month": "share failed this month of those that ran",
    "fail_long_many": "share failed of the last twenty or so that ran two minutes",
    "fail_long_month": "share failed this month of those that ran two minutes",
    "log_run_failed": "usual run time of those that failed",
    "log_run_passed": "usual run time of those that succeeded",
    "log_run_last": "run time of the last one",
    "failed_over_passed": "run time of failed compared with successful ones",
    "at_limit_many": "share of the last twenty or so that ran to the limit",
    "at_limit_last": "whether the last ones ran to the limit",
    "since_limit": "time since one ran to the limit",
    "request_over_limit": "request compared with the last limit reached",
    "request_over_last": "request compared with the last run time",
    "request_over_passed": "request compared with run time of those that succeeded",
    "request_over_spread": "request compared with run time, in standard deviations",
    "usual_wait": "usual wait",
}
PLAIN_WORDS = {
    "log_cpus": "requested cores",
    "log_requested_seconds": "requested duration",
    "log_requested_memory": "requested memory",
    "log_requested_disk": "requested disk",
    "log_core_seconds": "requested core time",
    "queue_bucket": "universe",
    **{f"text_{bucket}": "words in the program's path" for bucket in range(TEXT_BUCKETS)},
    "hour": "time of day",
    "weekday": "day of the week",
}


@dataclass(slots=True)
class Prediction:
    """Findings, risk and sizes for one submit file; `risk` is None without a model."""

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
            "findings": [asdict(finding) for finding in self.findings],
            "risk": self.risk,
            "sizes": self.sizes,
            "anomalies": self.anomalies,
            "note": self.note,
        }


def predict_submit(
    path: Path,
    arguments: Sequence[str] = (),
    *,
    model_directory: Path | None = None,
    user: str | None = None,
    quantile: float = 0.95,
    ignore: Sequence[str] = (),
    lint_only: bool = False,
    allow_commands: bool = False,
    now: float,
) -> Prediction:
    """Lint a submit file and, with a model, predict risk and sizes of its jobs.

    Raises RunsCommand if reading the file runs a program, unless `allow_commands`.
    """
    prediction = Prediction(str(path))
    try:
        submit = SubmitFile(path, arguments, allow_commands=allow_commands)
    except CannotParse as error:
        prediction.findings = [refused(error)]
        return prediction
    prediction.findings = [finding for finding in lint(submit) if finding.rule not in ignore]
    try:
        prediction.jobs = len(submit.items()) * submit.count()
        procs = list(submit.procs(MAX_PROCS))
    except CannotParse:
        return prediction  # the lint has reported it
    prediction.looked_at = len(procs)
    if lint_only or not procs:
        return prediction
    directory = model_directory or default_directory()
    if model_directory is None and not (directory / "manifest.json").exists():
        prediction.note = NO_MODEL
        return prediction
    models = FailureModels.load(directory)
    table = as_table(procs, user or getpass.getuser(), now)
    data, probability = models.at_submit(table, now)
    prediction.risk = _risk(models, data, probability)
    prediction.sizes = _sizes(models, table, data, procs, quantile)
    prediction.anomalies = _anomalies(models, data)
    return prediction


def as_table(procs: Sequence[Proc], user: str, now: float) -> JobTable:
    """Return the jobs as a table in which only the submit is known."""
    builder = TableBuilder()
    for proc in procs:
        executable = proc.get("executable")
        builder.add(
            str(proc.number),
            {
                "submit_time": now,
                "user": user,
                "group": proc.get("accounting_group") or "",
                # HTCondor keeps the full path in Cmd, and so does the history.
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
    phrase = (
        f"{LEVEL_WORDS.get(level, level)}: {FEATURE_WORDS.get(feature, feature)}"
        if dot
        else PLAIN_WORDS.get(name, name)
    )
    if math.isnan(value):
        return f"{phrase}: unknown"
    plain = feature if dot else name
    if plain.startswith(("fail_", "at_limit")):
        return f"{phrase}: {value:.0%}"
    if plain.startswith(("since_", "running_age", "queued_age")) or plain in (
        "log_run",
        "log_run_failed",
        "log_run_passed",
        "log_run_last",
        "usual_wait",
        "log_requested_seconds",
    ):
        return f"{phrase}: {_duration(math.expm1(value))}"
    if plain.startswith(("log_", "outcomes", "running", "queued", "weight_")):
        return f"{phrase}: {math.expm1(value):.3g}"
    return f"{phrase}: {value:.3g}"


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
        "by_job": [round(float(risk), 4) for risk in probability],
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
    suggestions = []
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
        suggestions.append(
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
                "why": f"{quantile:.0%} of the last {len(sizes.values)} of {LEVEL_WORDS[level]} "
                f"stayed within {_size_text(target, enough)}"
                + ("" if model.corrections else " (too few jobs to check this)")
                + f"; now {procs[0].get(command) or 'not set'}",
            }
        )
    return suggestions


def _anomalies(models: FailureModels, data: JobDataset) -> list[dict[str, Any]]:
    odd: list[Anomaly] = against_habit(data)
    if models.anomalies is not None:
        odd += models.anomalies.find(data)
    seen, shown = set(), []
    for anomaly in odd:
        if (anomaly.field, anomaly.against) in seen:
            continue
        seen.add((anomaly.field, anomaly.against))
        rarity = None if math.isnan(anomaly.rarity) else anomaly.rarity
        shown.append(
            {
                "field": anomaly.field,
                "value": anomaly.value,
                "usual": anomaly.usual,
                "rarity": rarity,
                "against": anomaly.against,
                "job": anomaly.row,
                "text": f"{PLAIN_WORDS.get(anomaly.field, anomaly.field)} is {anomaly.value:.4g}; "
                f"usual for {anomaly.against} is about {anomaly.usual:.4g}",
            }
        )
    return shown


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
