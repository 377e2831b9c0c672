"""Suggest sizes with a known risk: choose a method and correct it.

A quantile of past sizes should cover its share of later jobs, but does not when users change or
when the trees have overfitted. So the latest jobs are kept back. On their first half each
method's shortfall is measured, and the size is corrected so that it covers the share there
(split conformal prediction, on a logarithmic scale). On the second half the corrected methods
are compared, and the one with less pinball loss is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.workloads.table import JobTable
from condor_advice.model.failure.sizes import (
    TARGETS,
    SizeHistory,
    boost_quantile,
    judge_sizes,
    learn_sizes,
    used,
    walk,
)
from condor_advice.model.infer import TreeEnsemble
from condor_advice.preprocess.jobs.horizons import JobDataset, JobFeatures, TimeSplit

Floats = npt.NDArray[np.float64]

SIZE_SHARES = (0.5, 0.95)  # quantiles trained; others are corrected from the nearest
QUANTILES = (0.5, 0.9, 0.95)  # evaluated
KEPT_BACK = 0.3  # of the jobs, the latest: half to correct, half to choose
MIN_JOBS = 300
MAX_JOBS = 50_000  # the trees learn from the latest jobs only
CORRECTIONS = np.linspace(0.0, 1.0, 1001)
SIZE_METHODS = ("history", "boosted")


@dataclass(frozen=True, slots=True)
class SizeModel:
    """What similar jobs used, trees if there were enough jobs, and corrections."""

    history: SizeHistory
    method: str = "history"
    names: tuple[str, ...] = ()  # features of the trees
    trees: Mapping[float, TreeEnsemble] = field(default_factory=dict)  # by share
    # (method, share) -> quantiles of log(used) - log(suggested) at CORRECTIONS
    corrections: Mapping[tuple[str, float], Floats] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    def suggest(self, data: JobDataset, position: int, keys: Sequence[int], share: float) -> float:
        """Return a size that is enough for this share of such jobs; NaN for unknown users.

        `data` holds the features at submit, `position` is the row of the job.
        """
        record = self.history.find(keys)
        if record is None:
            return float("nan")
        near = nearest(share)
        if self.method == "boosted":
            columns = [data.names.index(name) for name in self.names]
            rows = data.features[position : position + 1, columns]
            log_size = float(self.trees[near].predict_margin(rows)[0])
        else:
            log_size = float(np.log1p(record[1].quantile(near if self.corrections else share)))
        return float(np.expm1(log_size + self.correction(self.method, near, share)))

    def correction(self, method: str, near: float, share: float) -> float:
        """Return the log-scale correction that covers `share` of the jobs kept back."""
        shortfalls = self.corrections.get((method, near))
        return 0.0 if shortfalls is None else float(np.interp(share, CORRECTIONS, shortfalls))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return history and corrections as plain arrays."""
        return {
            **self.history.arrays(),
            **{
                f"correction-{method}-{share}": values
                for (method, share), values in self.corrections.items()
            },
        }


def nearest(share: float) -> float:
    """Return the trained quantile nearest to this one."""
    return min(SIZE_SHARES, key=lambda trained: abs(trained - share))


def train_sizes(
    table: JobTable, maker: JobFeatures, data: JobDataset | None, seed: int, threads: int
) -> dict[str, SizeModel]:
    """Return a model for each target that the table measured.

    `data` are the submit questions of the table; without them only the history is used.
    """
    models = {}
    for target, history in learn_sizes(table, maker).items():
        models[target] = SizeModel(history)
        if data is not None:
            learnt = learn(table, maker, data, target, seed, threads)
            if learnt is not None:
                models[target] = learnt.model(history)
    return models


@dataclass(frozen=True, slots=True)
class Learnt:
    """Trees and corrections of one target, and how the methods did on the jobs kept back."""

    names: tuple[str, ...]
    trees: Mapping[float, TreeEnsemble]
    corrections: Mapping[tuple[str, float], Floats]
    judged: Mapping[str, Mapping[str, float]]
    jobs: int

    @property
    def method(self) -> str:
        """The method with less pinball loss on jobs not used to train or correct it."""
        return min(SIZE_METHODS, key=lambda method: self.judged[method]["pinball"])

    def model(self, history: SizeHistory) -> SizeModel:
        """Return what `predict` needs."""
        return SizeModel(
            history,
            self.method,
            self.names,
            self.trees if self.method == "boosted" else {},
            {key: values for key, values in self.corrections.items() if key[0] == self.method},
            {"jobs_kept_back": self.jobs, "judged": dict(self.judged)},
        )


def learn(
    table: JobTable, maker: JobFeatures, data: JobDataset, target: str, seed: int, threads: int
) -> Learnt | None:
    """Train for one target on the jobs with known use; return None if they are too few."""
    values = np.log1p(used(table, target))[data.row]
    known = np.flatnonzero(np.isfinite(values) & np.isfinite(data.end))
    known = known[np.argsort(data.submit[known], kind="stable")][-MAX_JOBS:]
    if len(known) < MIN_JOBS:
        return None
    edge = float(data.submit[known][int((1.0 - KEPT_BACK) * len(known))])
    middle = float(data.submit[known][int((1.0 - KEPT_BACK / 2) * len(known))])
    before = known[data.end[known] < edge]
    correct = known[(data.submit[known] >= edge) & (data.end[known] < middle)]
    judge = known[data.submit[known] >= middle]
    if min(len(before), len(correct), len(judge)) < MIN_JOBS // 6:
        return None
    ask = np.zeros(len(table), dtype=bool)
    ask[data.row[np.r_[correct, judge]]] = True
    remembered = walk(table, maker, target, SIZE_SHARES, rules=(), ask=ask)
    trees, predicted = {}, {}
    for share in SIZE_SHARES:
        trees[share] = boost_quantile(data.features[before], values[before], share, seed, threads)
        past = np.log1p(remembered[f"quantile_{share}"])[data.row]
        predicted["boosted", share] = np.full(len(data), np.nan)
        for rows in (correct, judge):
            predicted["boosted", share][rows] = trees[share].predict_margin(data.features[rows])
        predicted["history", share] = past
    first, last = (
        {key: quantiles_of(values[rows] - guesses[rows]) for key, guesses in predicted.items()}
        for rows in (correct, np.r_[correct, judge])
    )
    near = SIZE_SHARES[-1]
    judged = {}
    for method in SIZE_METHODS:
        short = values[judge] - predicted[method, near][judge]
        short = short[np.isfinite(short)] - float(np.interp(near, CORRECTIONS, first[method, near]))
        judged[method] = {
            "pinball": float(np.mean(np.maximum(near * short, (near - 1.0) * short))),
            "under_allocated": float(np.mean(short > 0)),
        }
    return Learnt(tuple(data.names), trees, last, judged, len(correct) + len(judge))


def quantiles_of(shortfalls: Floats) -> Floats:
    """Return the quantiles of shortfalls, each rounded up to an observed one.

    With n jobs the rank is (n + 1) * share, so that the next job is covered too.
    """
    known = np.sort(shortfalls[np.isfinite(shortfalls)])
    if not len(known):
        return np.zeros(len(CORRECTIONS))
    ranks = np.ceil(CORRECTIONS * (len(known) + 1)).astype(np.int64) - 1
    return np.asarray(known[np.clip(ranks, 0, len(known) - 1)])


def evaluate_sizes(
    table: JobTable,
    maker: JobFeatures,
    data: JobDataset,
    target: str,
    split: TimeSplit,
    seed: int = 0,
    threads: int = 2,
) -> dict[str, Any]:
    """Evaluate every rule, the corrected methods and the users' requests on later jobs.

    `predict` is what the command of that name would have suggested: methods, trees and
    corrections come from jobs that had ended by the split.
    """
    values = used(table, target)
    suggestions = walk(table, maker, target, QUANTILES)
    seen = data.take(data.submit < split.moment)
    ended = replace(seen, end=np.where(seen.end < split.moment, seen.end, np.nan))
    learnt = learn(table, maker, ended, target, seed, threads)
    by_row = np.argsort(data.row, kind="stable")
    if learnt is not None:
        answered = np.isfinite(suggestions["median"])
        for share in QUANTILES:
            near = nearest(share)
            raw = {
                "history": np.log1p(suggestions[f"quantile_{near}"]),
                "boosted": learnt.trees[near].predict_margin(data.features)[by_row],
            }
            if share == near:
                suggestions[f"boosted_{share}"] = np.expm1(raw["boosted"])
            for method, guesses in raw.items():
                correction = float(np.interp(share, CORRECTIONS, learnt.corrections[method, near]))
                corrected = np.where(answered, np.expm1(guesses + correction), np.nan)
                suggestions[f"{method}_corrected_{share}"] = corrected
                if method == learnt.method:
                    suggestions[f"predict_{share}"] = corrected
    suggestions["requested"] = table[TARGETS[target][1]]
    test = np.isfinite(values) & (values > 0) & (table["submit_time"] >= split.moment)
    return {
        "target": target,
        "unit": TARGETS[target][0],
        "jobs": int(np.sum(test)),
        "method": learnt.method if learnt else "history",
        "kept_back": {} if learnt is None else dict(learnt.judged),
        "rules": {
            name: judge_sizes(guesses[test], values[test])
            for name, guesses in suggestions.items()
            if np.any(np.isfinite(guesses[test]))
        },
    }
