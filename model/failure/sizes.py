"""Suggest memory, disk and run time from what similar jobs used before.

A value enters the history when its job ends. The rules use the first level that has a record:
the same signature, the user's jobs of the same program, of the same shape, then all of the
user's jobs.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError
from condor_advice.gather.workloads.table import JobTable
from condor_advice.model.infer import TreeEnsemble
from condor_advice.preprocess.jobs.history import level_keys
from condor_advice.preprocess.jobs.horizons import JobFeatures

Floats = npt.NDArray[np.float64]

# target -> (unit, the column that holds the request)
TARGETS: Mapping[str, tuple[str, str]] = {
    "memory_mb": ("MB", "requested_memory_mb"),
    "disk_mb": ("MB", "requested_disk_mb"),
    "run_seconds": ("s", "requested_seconds"),
}
SIZE_LEVELS = ("signature", "user_program", "user_shape", "user")
REQUEST_VECTOR = ("requested_cpus", "requested_seconds", "requested_memory_mb", "requested_disk_mb")
MEMORY_OF_A_KEY = 32  # values kept per key: enough for a 95 % quantile
SIZE_RULES = ("last", "median", "mean", "cosine", "maximum")
MAX_SIZE_KEYS = 100_000


class NothingMeasured(AdviceError):
    """No job of the table has a measured size."""


@dataclass(slots=True)
class KeySizes:
    """The last values of one key, each with the request of its job."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=MEMORY_OF_A_KEY))
    requests: deque[Floats] = field(default_factory=lambda: deque(maxlen=MEMORY_OF_A_KEY))

    def suggest(self, rule: str, request: Floats) -> float:
        """Return what a rule suggests for a new job with this request vector."""
        values = np.array(self.values)
        if rule == "last":
            return float(values[-1])
        if rule == "median":
            return float(np.median(values))
        if rule == "mean":
            return float(np.mean(values))
        if rule == "maximum":
            return float(np.max(values))
        # The job whose request vector is most similar; the latest of equal ones.
        past = np.stack(self.requests)
        lengths = np.linalg.norm(past, axis=1) * np.linalg.norm(request)
        with np.errstate(invalid="ignore", divide="ignore"):
            similarity = np.nan_to_num(past @ request / lengths)
        best = np.flatnonzero(similarity >= np.max(similarity) - 1e-12)
        return float(values[best[-1]])

    def quantile(self, share: float) -> float:
        """Return the observed size that was enough for this share of the past jobs."""
        return sorted(self.values)[math.ceil((len(self.values) - 1) * share)]


class SizeHistory:
    """Measured sizes by key, most specific level first; memory is bounded."""

    def __init__(self, levels: Sequence[str] = SIZE_LEVELS) -> None:
        self.levels = tuple(levels)
        self.keys: OrderedDict[int, KeySizes] = OrderedDict()

    def observe(self, keys: Iterable[int], value: float, request: Floats) -> None:
        """Record what a job used, under each of its keys."""
        for key in keys:
            sizes = self.keys.pop(key, None) or KeySizes()
            sizes.values.append(value)
            sizes.requests.append(request)
            self.keys[key] = sizes
        while len(self.keys) > MAX_SIZE_KEYS:
            self.keys.popitem(last=False)

    def find(self, keys: Iterable[int]) -> tuple[int, KeySizes] | None:
        """Return the first key with a record, as (index of its level, its sizes)."""
        for place, key in enumerate(keys):
            if key in self.keys:
                return place, self.keys[key]
        return None

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return everything as plain arrays."""
        values = np.full((len(self.keys), MEMORY_OF_A_KEY), np.nan)
        for row, sizes in enumerate(self.keys.values()):
            values[row, : len(sizes.values)] = sizes.values
        return {"keys": np.array(list(self.keys), dtype=np.uint64), "values": values}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, npt.NDArray[Any]], levels: Sequence[str]
    ) -> SizeHistory:
        """Rebuild a history from `arrays`; without requests, so not for the cosine rule."""
        history = cls(levels)
        for key, values in zip(arrays["keys"], arrays["values"], strict=True):
            sizes = KeySizes()
            sizes.values.extend(values[np.isfinite(values)].tolist())
            history.keys[int(key)] = sizes
        return history


def used(table: JobTable, target: str) -> Floats:
    """Return what each job used; NaN for jobs that did not run to the end."""
    if target == "run_seconds":
        return np.where(table.run_seconds > 0, table.run_seconds, np.nan)
    return table[f"used_{target}"]


def size_keys(table: JobTable, maker: JobFeatures) -> list[list[int]]:
    """Return each job's keys, most specific first."""
    cpus = table["allocated_cpus"] if maker.cpus_from_allocation else table["requested_cpus"]
    keys = level_keys(table, cpus, SIZE_LEVELS)
    rows: list[list[int]] = np.stack([keys[level] for level in SIZE_LEVELS], axis=1).tolist()
    return rows


def request_vectors(table: JobTable) -> Floats:
    """Return the logarithms of the requests; 0 where a job requests nothing."""
    cpus = np.where(
        np.isfinite(table["requested_cpus"]), table["requested_cpus"], table["allocated_cpus"]
    )
    columns = [cpus if name == "requested_cpus" else table[name] for name in REQUEST_VECTOR]
    return np.asarray(np.log1p(np.nan_to_num(np.stack(columns, axis=1))))


def learn_sizes(table: JobTable, maker: JobFeatures) -> dict[str, SizeHistory]:
    """Return the size histories at the end of a table, for the targets it measures."""
    histories = {}
    keys, requests = size_keys(table, maker), request_vectors(table)
    order = np.argsort(table["end_time"], kind="stable")
    for target in TARGETS:
        values = used(table, target)
        if not np.any(np.isfinite(values)):
            continue
        history = SizeHistory()
        for row in order:
            if np.isfinite(values[row]):
                history.observe(keys[row], float(values[row]), requests[row])
        histories[target] = history
    return histories


def walk(
    table: JobTable,
    maker: JobFeatures,
    target: str,
    quantiles: Sequence[float],
    rules: Sequence[str] = SIZE_RULES,
    ask: npt.NDArray[np.bool_] | None = None,
) -> dict[str, Floats]:
    """Return, per rule and quantile, the suggestion at each job's submit.

    It uses only jobs that had ended before that submit. `ask` selects the jobs to suggest for,
    by default all.
    """
    values = used(table, target)
    if not np.any(np.isfinite(values)):
        raise NothingMeasured(f"no job of the table has a {target}; give a log that measures it")
    keys, requests = size_keys(table, maker), request_vectors(table)
    history = SizeHistory()
    names = [*rules, *(f"quantile_{share}" for share in quantiles)]
    suggestions = {name: np.full(len(table), np.nan) for name in names}
    ending: list[tuple[float, int]] = []
    submit, end = table["submit_time"], table["end_time"]
    for row in range(len(table)):
        while ending and ending[0][0] < submit[row]:
            done = heapq.heappop(ending)[1]
            history.observe(keys[done], float(values[done]), requests[done])
        record = history.find(keys[row]) if ask is None or ask[row] else None
        if record is not None:
            sizes = record[1]
            for rule in rules:
                suggestions[rule][row] = sizes.suggest(rule, requests[row])
            for share in quantiles:
                suggestions[f"quantile_{share}"][row] = sizes.quantile(share)
        if np.isfinite(values[row]) and np.isfinite(end[row]):
            heapq.heappush(ending, (float(end[row]), row))
    return suggestions


def boost_quantile(
    features: npt.NDArray[np.float32],
    log_value: Floats,
    share: float,
    seed: int,
    threads: int = 2,
    rounds: int = 120,
) -> TreeEnsemble:
    """Return trees for one quantile of the logarithm of a size."""
    import xgboost

    matrix = xgboost.QuantileDMatrix(features, log_value, max_bin=64, nthread=threads)
    booster = xgboost.train(
        {
            "objective": "reg:quantileerror",
            "quantile_alpha": share,
            "max_depth": 6,
            "eta": 0.08,
            "subsample": 0.7,
            "colsample_bytree": 0.2,
            "min_child_weight": 20,
            "max_bin": 64,
            "tree_method": "hist",
            "seed": seed,
            "nthread": threads,
        },
        matrix,
        rounds,
    )
    return TreeEnsemble.from_xgboost(booster)


def judge_sizes(suggested: Floats, values: Floats) -> dict[str, float]:
    """Return MAPE, waste and under-allocation of suggestions for jobs that used `values`.

    Waste is what was allocated beyond use, divided by use. A job with a size below its use is
    under-allocated and wastes nothing. A rule without a record is evaluated on the jobs for
    which it has one.
    """
    known = np.isfinite(suggested)
    suggested, values = suggested[known], values[known]
    error = np.abs(suggested - values) / values
    return {
        "answered": float(np.mean(known)),
        "mape": float(100 * np.mean(error)),
        "median_ape": float(100 * np.median(error)),
        "waste": float(np.sum(np.maximum(suggested - values, 0.0)) / np.sum(values)),
        "under_allocated": float(np.mean(suggested < values)),
    }
