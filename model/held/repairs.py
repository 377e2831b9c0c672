"""Holds that were released after somebody repaired the job, where that is known.

A log does not tell repairs; the lab's recordings and simulations do. A release after a repair
says nothing about a release as is, so such an episode has no label, and its outcome does not
count in the rates that other holds see as features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_advice.preprocess.holds.features import FEATURE_NAMES, PRIOR_SUCCESS, SHRINKAGE
from condor_advice.preprocess.holds.job_numbers import cluster_of, job_parts
from condor_advice.preprocess.holds.labels import labels_of
from condor_advice.preprocess.holds.samples import Samples

Bools = npt.NDArray[np.bool_]
Repairs = Mapping[str, float]  # "CLUSTER.PROC" -> when the job was repaired, in Unix seconds

_DAY_US = 86_400_000_000


def released_after_repair(samples: Samples, repairs: Repairs) -> Bools:
    """Tell which holds were released after their job was repaired."""
    changed = np.zeros(len(samples), np.bool_)
    if not repairs:
        return changed
    for row, job in enumerate(samples.episodes["job"].tolist()):
        _, cluster, proc = job_parts(job)
        repaired = repairs.get(f"{cluster}.{proc}")
        if repaired is not None:
            held = int(samples.episodes["time"][row]) / 1e6
            released = int(samples.outcomes["released"][row]) / 1e6
            # The time of a repair is known to the second.
            changed[row] = released > 0 and held <= repaired + 1 and released >= repaired - 1
    return changed


def without_repairs(samples: Samples, changed: Bools) -> npt.NDArray[np.float32]:
    """Return the features as they would be if outcomes after a repair had not been counted.

    A success after a repair says nothing about a release as is. Counted as one, it would teach
    a model to distrust the rates that it sees.
    """
    features = samples.features.copy()
    where = {name: index for index, name in enumerate(FEATURE_NAMES)}
    episodes, outcomes = samples.episodes, samples.outcomes
    label = labels_of(outcomes["outcome"])
    told = np.flatnonzero((label >= 0) & ~changed)
    counts: dict[str, _Counts] = {}
    for level, key in _level_keys(episodes).items():
        counts[level] = _count(key, episodes, outcomes, told, label[told])
    pool = counts["pool"]
    average = (pool.good + SHRINKAGE * PRIOR_SUCCESS) / (pool.good + pool.bad + SHRINKAGE)
    for level, known in counts.items():
        rate = (known.good + SHRINKAGE * average) / (known.good + known.bad + SHRINKAGE)
        day = (known.good_1d + SHRINKAGE * average) / (known.good_1d + known.bad_1d + SHRINKAGE)
        new = {
            "good_total": known.good,
            "bad_total": known.bad,
            "good_1d": known.good_1d,
            "bad_1d": known.bad_1d,
            "success_rate": average if level == "pool" else rate,
            "success_rate_1d": day,
            "last_outcome": known.last,
        }
        for name, values in new.items():
            column = where[f"{level}_{name}"]
            # Where a level has no key, or nothing was ever told, it stays unknown.
            unknown = np.isnan(samples.features[:, column]) & (name != "last_outcome")
            features[:, column] = np.where(unknown, np.nan, values)
    return features


@dataclass(frozen=True, slots=True)
class _Counts:
    """What was known of a level at each hold."""

    good: npt.NDArray[np.float64]
    bad: npt.NDArray[np.float64]
    good_1d: npt.NDArray[np.float64]
    bad_1d: npt.NDArray[np.float64]
    last: npt.NDArray[np.float64]  # outcome; NaN for none


def _level_keys(episodes: npt.NDArray[np.void]) -> dict[str, npt.NDArray[np.int64]]:
    """Return the key of each hold on each level of the context; -1 for none."""
    cluster = cluster_of(episodes["job"])
    ids = {name: episodes[name].astype(np.int64) for name in ("family", "template", "point")}
    owner = episodes["owner"].astype(np.int64)

    def both(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        which = np.unique(np.stack((one, other), 1), axis=0, return_inverse=True)[1].reshape(-1)
        return np.where((one >= 0) & (other >= 0), which, -1)

    return {
        "pool": np.zeros(len(episodes), np.int64),
        **ids,
        "point_template": both(ids["point"], ids["template"]),
        "owner": owner,
        "owner_family": both(owner, ids["family"]),
        "cluster": cluster,
        "cluster_template": both(cluster, ids["template"]),
    }


def _count(
    key: npt.NDArray[np.int64],
    episodes: npt.NDArray[np.void],
    outcomes: npt.NDArray[np.void],
    told: npt.NDArray[np.int64],
    label: npt.NDArray[np.int8],
) -> _Counts:
    """Count the outcomes of each hold's key that had been decided when it was held."""
    number = np.unique(key, return_inverse=True)[1].astype(np.int64)
    place = number[told] << 40 | outcomes["decided_sequence"][told]
    order = np.argsort(place, kind="stable")
    place, good = place[order], np.append(0, np.cumsum(label[order] == 1))
    time = outcomes["decided"][told][order]
    # Its own event counts: it is what decides the hold before it.
    upto = np.searchsorted(place, number << 40 | episodes["sequence"], side="right")
    first = np.searchsorted(place, number << 40)
    # Times within one key rise with the sequence, but for little.
    since = np.searchsorted(
        number[told][order] * (1 << 20) + (time - time.min(initial=0)) // 10_000_000,
        number * (1 << 20)
        + np.maximum(episodes["time"] - _DAY_US - time.min(initial=0), 0) // 10_000_000,
    )
    recent = np.clip(since, first, upto)
    outcome = np.append(label[order] == 1, False)[np.maximum(upto - 1, 0)]
    last = np.where((key >= 0) & (upto > first), outcome, np.nan)
    return _Counts(
        (good[upto] - good[first]).astype(np.float64),
        (upto - first - (good[upto] - good[first])).astype(np.float64),
        (good[upto] - good[recent]).astype(np.float64),
        (upto - recent - (good[upto] - good[recent])).astype(np.float64),
        last,
    )
