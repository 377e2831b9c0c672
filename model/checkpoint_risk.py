"""Train the in-job hook's risk model on recorded usage, and export it as a small JSON file.

The hook's own code (`condor_checkpoint.risk`) computes the features, so training and use see the
same. Splits are by job and by time. The report also has the figures of a random split of the
samples, which are always better and always misleading.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError
from condor_advice.model.calibration import fit_line
from condor_advice.model.infer import TreeEnsemble
from condor_advice.model.metrics import curve, pr_auc, roc_auc
from condor_checkpoint.risk import ENOUGH, FEATURES, HORIZON, Risk, Trees
from condor_checkpoint.sample import Sample

Floats = npt.NDArray[np.float64]

RISK_PARAMETERS = {
    "objective": "binary:logistic",
    "max_depth": 3,
    "eta": 0.1,
    "subsample": 0.8,
    "colsample_bytree": 0.8,
    "min_child_weight": 5.0,
    "nthread": 1,
}
RISK_ROUNDS = 60
_CALIBRATION_RIDGE = 1.0  # keeps separable samples near the trees' own scale
# Shares of the jobs, in time order, for fitting and calibration; the rest is the test.
FIT, CALIBRATE = 0.5, 0.2
# ROC AUC on later jobs below which a model is noise and is not written.
WORTH_HAVING = 0.55
# A model is used on other pools than it was trained on. The hook gets half the measured recall,
# so that it does not lengthen its checkpoint interval on a guess.
TRANSFER = 0.5
_LEAD_QUANTILES = 9
# On a test pool these reveal the kind of job: every job there is short and small.
LABORATORY = (
    "memory_log",
    "disk_log",
    "received_log",
    "sent_log",
    "processes_log",
    "elapsed_log",
    "node_time_log",
)


class TooLittleUsage(AdviceError):
    """There is too little recorded usage to train on."""


class NoBetterThanChance(AdviceError):
    """The model does not predict failures of later jobs."""


@dataclass
class RecordedJob:
    """One job's samples in time order, and how it ended."""

    name: str
    failed: bool
    cause: str
    interval: float
    samples: list[Sample]
    features: Floats = field(default_factory=lambda: np.empty((0, len(FEATURES))))
    exhaustion: Floats = field(default_factory=lambda: np.empty(0))
    left: Floats = field(default_factory=lambda: np.empty(0))  # intervals to the end of the job

    @property
    def labels(self) -> Floats:
        """1 where the job fails within the horizon."""
        return (self.failed & (self.left <= HORIZON)).astype(float)

    def describe(self) -> RecordedJob:
        """Compute the features that the hook would have had at each sample."""
        risk = Risk(self.interval)
        rows, alarms, left = [], [], []
        end = self.samples[-1].elapsed
        for sample in self.samples:
            standing = risk.add(sample, sample.elapsed)
            if len(risk.samples) < ENOUGH:
                continue
            rows.append(risk.features())
            near = [a.probability for a in standing if a.leads[0] <= HORIZON * self.interval]
            alarms.append(max(near, default=0.0))
            left.append((end - sample.elapsed) / self.interval)
        if rows:
            self.features = np.array(rows)
            self.exhaustion, self.left = np.array(alarms), np.array(left)
        return self


def read_usage(files: Iterable[Path | str]) -> list[RecordedJob]:
    """Read recorded usage, in the order in which the jobs started.

    Each line is either one job with its `samples`, or one sample as `condor-checkpoint record`
    writes it, one job after another.
    """
    jobs = []
    for path in map(Path, files):
        lines = _read_lines(path)
        whole = [line for line in lines if "samples" in line]
        for line in whole or _recordings(path, lines):
            known = set(Sample._fields)
            samples = [
                Sample(**{key: value for key, value in sample.items() if key in known})
                for sample in line["samples"]
            ]
            if len(samples) > ENOUGH:
                jobs.append(
                    RecordedJob(
                        line["job"], line["failed"], line["cause"], line["interval"], samples
                    )
                )
    return sorted(jobs, key=lambda job: job.samples[0].time)


def _recordings(path: Path, lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Separate the recordings of several jobs: elapsed time restarts with each job."""
    jobs: list[dict[str, Any]] = []
    previous = float("inf")
    for line in lines:
        if "elapsed" in line:
            if line["elapsed"] < previous:
                # A recording that ends early is of a job that did.
                name = f"{path.stem}-{len(jobs)}"
                jobs.append({"job": name, "failed": True, "cause": "cut off", "samples": []})
            jobs[-1]["samples"].append(line)
            previous = line["elapsed"]
        elif "ended" in line and jobs:
            failed = line["exit"] != 0
            jobs[-1].update(failed=failed, cause="exit" if failed else "")
            previous = float("inf")
    jobs = [job for job in jobs if len(job["samples"]) > 1]
    if not jobs:
        raise TooLittleUsage(f"{path}: no usage samples; `condor-checkpoint record` makes them")
    for job in jobs:
        job["interval"] = float(
            np.median(np.diff([sample["elapsed"] for sample in job["samples"]]))
        )
    return jobs


def _read_lines(path: Path) -> list[dict[str, Any]]:
    try:
        with _open(path) as file:
            lines = [json.loads(line) for line in file if line.strip()]
    except (OSError, lzma.LZMAError, ValueError) as error:
        raise TooLittleUsage(
            f"{path}: not recorded usage: {error}; `condor-checkpoint record` makes such files"
        ) from error
    if not all(isinstance(line, dict) for line in lines):
        raise TooLittleUsage(f"{path}: not recorded usage: every line must be a JSON object")
    return lines


def _open(path: Path) -> IO[str]:
    if path.suffix == ".xz":
        return io.TextIOWrapper(lzma.open(path))
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path))
    return path.open()


def train(
    files: Sequence[Path | str],
    out: Path | str,
    seed: int = 0,
    rounds: int = RISK_ROUNDS,
    leave_out: Sequence[str] = (),
) -> dict[str, Any]:
    """Train on recorded usage, write the hook's model to `out` and return its figures.

    `leave_out` names features that describe the recording pool rather than the jobs.
    """
    jobs = [job.describe() for job in read_usage(files)]
    for job in jobs:
        job.features[:, [FEATURES.index(name) for name in leave_out]] = np.nan
    report, exported = fit(jobs, seed, rounds)
    if not report["trees"]["roc_auc"] > WORTH_HAVING:
        raise NoBetterThanChance(
            f"ROC AUC on later jobs is {report['trees']['roc_auc']:.2f}: the recorded usage does "
            f"not show which jobs fail; {out} is not written, and the hook uses trends alone"
        )
    Path(out).write_text(json.dumps(exported, separators=(",", ":")) + "\n")
    return report


def fit(jobs: list[RecordedJob], seed: int, rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fit on the earlier jobs, test on the later ones; return the report and the export."""
    first, second = int(FIT * len(jobs)), int((FIT + CALIBRATE) * len(jobs))
    fitting, calibrating, judging = jobs[:first], jobs[first:second], jobs[second:]
    for part in (fitting, calibrating, judging):
        if len({job.failed for job in part}) < 2:
            raise TooLittleUsage(
                f"{len(jobs)} jobs: fitting, calibration and test each need failed and healthy "
                "jobs; record more"
            )
    booster = boost(*stack(fitting), seed, rounds)
    exported: dict[str, Any] = {
        "format": 1,
        "features": list(FEATURES),
        **export_trees(booster),
        "calibration": [1.0, 0.0],
        "card": {"leads": [], "threshold": 0.5, "recall": 0.0, "precision": 0.5},
    }
    rows, labels = stack(calibrating)
    line = fit_line(margins(exported, rows), labels, _CALIBRATION_RIDGE)
    exported["calibration"] = [round(value, 6) for value in line]
    threshold = best_threshold(calibrating, exported)
    scores = {job.name: probabilities(exported, job.features) for job in judging}
    trends = {job.name: job.exhaustion for job in judging}
    combined = {name: np.maximum(scores[name], trends[name]) for name in scores}
    report: dict[str, Any] = {
        "jobs": len(jobs),
        "judged_jobs": len(judging),
        "failed_judged_jobs": sum(job.failed for job in judging),
        "horizon_intervals": HORIZON,
        "threshold": threshold,
        "trees": judge(judging, scores, threshold),
        "trends": judge(judging, trends, 0.5),
        "combined": judge(judging, combined, min(threshold, 0.5)),
        "random_split": random_split(jobs, seed, rounds),
    }
    mine = report["trees"]
    exported["card"] = {
        "leads": mine["lead_quantiles"],
        "threshold": threshold,
        "recall": round(TRANSFER * mine["recall"], 4),
        "recall_measured": mine["recall"],
        "precision": mine["precision"],
        "trend_precision": report["trends"]["precision"],
        "jobs": len(jobs),
    }
    return report, exported


def stack(jobs: Sequence[RecordedJob]) -> tuple[Floats, Floats]:
    """Return features and labels of all samples."""
    return np.vstack([job.features for job in jobs]), np.concatenate([job.labels for job in jobs])


def boost(rows: Floats, labels: Floats, seed: int, rounds: int) -> Any:
    """Fit boosted trees."""
    import xgboost

    return xgboost.train(
        {**RISK_PARAMETERS, "seed": seed},
        xgboost.DMatrix(rows, label=labels),
        num_boost_round=rounds,
    )


def export_trees(booster: Any) -> dict[str, Any]:
    """Write the trees as nested lists: [feature, threshold, below, not below, missing]."""
    trees = TreeEnsemble.from_xgboost(booster)

    def node(index: int) -> Any:
        if trees.feature[index] < 0:
            return float(f"{trees.value[index]:.9g}")
        # Keep all digits: a value equal to the threshold is not below it.
        return [
            int(trees.feature[index]),
            float(trees.threshold[index]),
            node(int(trees.left[index])),
            node(int(trees.right[index])),
            0 if trees.missing_left[index] else 1,
        ]

    return {
        "base": float(trees.base_margin[0]),
        "trees": [node(int(root)) for root in trees.roots],
    }


def margins(exported: dict[str, Any], rows: Floats) -> Floats:
    """Evaluate the exported trees as the hook does."""
    trees = Trees(exported)
    return np.array([trees.margin(row) for row in rows.tolist()])


def probabilities(exported: dict[str, Any], rows: Floats) -> Floats:
    """Evaluate the exported and calibrated trees as the hook does."""
    trees = Trees(exported)
    return np.array([trees.probability(row) for row in rows.tolist()])


def best_threshold(jobs: Sequence[RecordedJob], exported: dict[str, Any]) -> float:
    """Return the threshold with the best F1 over the samples of these jobs."""
    labels = np.concatenate([job.labels for job in jobs])
    chance = np.concatenate([probabilities(exported, job.features) for job in jobs])
    best, chosen = -1.0, 0.5
    for threshold in np.linspace(0.05, 0.95, 19):
        alarms = chance >= threshold
        hits = float((alarms & (labels > 0)).sum())
        f1 = 2.0 * hits / max(1.0, alarms.sum() + labels.sum())
        if f1 > best:
            best, chosen = f1, float(threshold)
    return round(chosen, 2)


def judge(
    jobs: Sequence[RecordedJob], chance: dict[str, Floats], threshold: float
) -> dict[str, Any]:
    """Evaluate alarms: curves per sample; recall, lead time and false alarms per job."""
    labels = np.concatenate([job.labels for job in jobs])
    scores = np.concatenate([chance[job.name] for job in jobs])
    leads, announced, raised, true_alarms, false_alarms = [], 0, 0, 0, 0
    hours = sum(job.samples[-1].elapsed for job in jobs) / 3600.0
    by_cause: dict[str, list[int]] = {}
    for job in jobs:
        on = chance[job.name] >= threshold
        starts = np.flatnonzero(on & ~np.r_[False, on[:-1]])
        raised += len(starts)
        # An alarm is true if it is still on when the job fails.
        stands = bool(job.failed and len(on) and on[-1])
        if job.failed:
            by_cause.setdefault(job.cause, []).append(int(stands))
        if stands:
            announced += 1
            true_alarms += 1
            leads.append(float(job.left[starts[-1]]))
        false_alarms += len(starts) - int(stands)
    failed = sum(job.failed for job in jobs)
    quantiles = (np.arange(_LEAD_QUANTILES) + 0.5) / _LEAD_QUANTILES
    pr = curve(labels, scores)
    step = max(1, len(pr["recall"]) // 20)
    return {
        "roc_auc": float(roc_auc(labels, scores)),
        "pr_auc": float(pr_auc(labels, scores)),
        "base_rate": float(labels.mean()),
        "pr_curve": [
            [round(float(r), 3), round(float(p), 3)]
            for r, p in zip(pr["recall"][::step], pr["precision"][::step], strict=True)
        ],
        "recall": announced / failed if failed else 0.0,
        "recall_by_cause": {cause: sum(hit) / len(hit) for cause, hit in sorted(by_cause.items())},
        "precision": true_alarms / raised if raised else 0.0,
        "false_alarms_per_hour": false_alarms / hours,
        "false_alarms_per_1000_samples": 1000.0 * false_alarms / len(labels),
        "hours": hours,
        "lead_quantiles": [round(float(q), 2) for q in np.quantile(leads, quantiles)]
        if leads
        else [],
        "median_lead_intervals": float(np.median(leads)) if leads else None,
    }


def random_split(jobs: list[RecordedJob], seed: int, rounds: int) -> dict[str, float]:
    """Return the figures of a random split of the samples for the same trees."""
    rows, labels = stack(jobs)
    order = np.random.default_rng(seed).permutation(len(labels))
    cut = int((FIT + CALIBRATE) * len(order))
    scores = _predict(
        boost(rows[order[:cut]], labels[order[:cut]], seed, rounds), rows[order[cut:]]
    )
    held = labels[order[cut:]]
    return {"roc_auc": float(roc_auc(held, scores)), "pr_auc": float(pr_auc(held, scores))}


def evaluate_table(path: Path | str, seed: int = 0, rounds: int = RISK_ROUNDS) -> dict[str, Any]:
    """Evaluate trees on a table of mean usage: one row per job, with a column `failed`.

    Such a table has no times, so there are no lead times. It is split at random, and in the
    order of the numbers in `job_id`, which stand for time.
    """
    with _open(Path(path)) as file:
        table = list(csv.DictReader(file))
    if not table or "failed" not in table[0]:
        raise TooLittleUsage(f"{path}: no column `failed`; a usage table has one row per job")
    columns = [name for name in table[0] if name not in ("failed", "job_id")]
    rows = np.array([[float(row[name]) for name in columns] for row in table])
    labels = np.array([float(row["failed"]) for row in table])
    numbers = np.array([int("".join(filter(str.isdigit, row["job_id"])) or 0) for row in table])
    orders = {
        "random": np.random.default_rng(seed).permutation(len(labels)),
        "id_order": np.argsort(numbers, kind="stable"),
    }
    report: dict[str, Any] = {"rows": len(labels), "base_rate": float(labels.mean())}
    for name, order in orders.items():
        learn, held = np.split(order, [int(0.7 * len(order))])
        scores = _predict(boost(rows[learn], labels[learn], seed, rounds), rows[held])
        pr = curve(labels[held], scores)
        step = max(1, len(pr["recall"]) // 10)
        report[name] = {
            "roc_auc": float(roc_auc(labels[held], scores)),
            "pr_auc": float(pr_auc(labels[held], scores)),
            "base_rate": float(labels[held].mean()),
            "pr_curve": [
                [round(float(r), 3), round(float(p), 3)]
                for r, p in zip(pr["recall"][::step], pr["precision"][::step], strict=True)
            ],
        }
    return report


def _predict(booster: Any, rows: Floats) -> Floats:
    import xgboost

    return np.asarray(booster.predict(xgboost.DMatrix(rows)), dtype=float)
