"""Holds that were released after a repair, where that is known.

Event logs show edits of a job (see labels.py), but no repaired files; the lab's recordings and
simulations do. A release after a repair
says nothing about a release as is, so such an episode has no label, and its outcome does not
count in the success rates that are features of other holds.
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
    """Tell which holds were released after their job was repaired, or changed as events tell."""
    changed: Bools = samples.outcomes["changed"] != 0
    if not repairs:
        return changed
    for row, job in enumerate(samples.episodes["job"].tolist()):
        _, cluster, proc = job_parts(job)
        repaired = repairs.get(f"{cluster}.{proc}")
        if repaired is not None:
            held = int(samples.episodes["time"][row]) / 1e6
            released = int(samples.outcomes["released"][row]) / 1e6
            # The time of a repair is known to the second.
            if released > 0 and held <= repaired + 1 and released >= repaired - 1:
                changed[row] = True
    return changed


def without_repairs(samples: Samples, changed: Bools) -> npt.NDArray[np.float32]:
    """Return the features as they would be without the outcomes after repairs.

    Counting these outcomes would teach a model to distrust the success rates.
    """
    features = samples.features.copy()
    where = {name: index for index, name in enumerate(FEATURE_NAMES)}
    episodes, outcomes = samples.episodes, samples.outcomes
    label = labels_of(outcomes["outcome"], changed)
    counted = np.flatnonzero(label >= 0)
    counts: dict[str, _Counts] = {}
    for level, key in _level_keys(episodes).items():
        counts[level] = _count(key, episodes, outcomes, counted, label[counted])
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
            # A level without a key, or without any outcome, stays unknown.
            unknown = np.isnan(samples.features[:, column]) & (name != "last_outcome")
            features[:, column] = np.where(unknown, np.nan, values)
    return features


@dataclass(frozen=True, slots=True)
class _Counts:
    """Outcomes of a level that were known at each hold."""

    good: npt.NDArray[np.float64]
    bad: npt.NDArray[np.float64]
    good_1d: npt.NDArray[np.float64]
    bad_1d: npt.NDArray[np.float64]
    last: npt.NDArray[np.float64]  # the last outcome; NaN without one


def _level_keys(episodes: npt.NDArray[np.void]) -> dict[str, npt.NDArray[np.int64]]:
    """Return the key of each hold at each level of the context; -1 for none."""
    cluster = cluster_of(episodes["job"])
    ids = {name: episodes[name].astype(np.int64) for name in ("family", "template", "point")}
    owner = episodes["owner"].astype(np.int64)

    def both(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        pairs = np.stack((first, second), 1)
        which = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
        return np.where((first >= 0) & (second >= 0), which, -1)

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
    counted: npt.NDArray[np.int64],
    label: npt.NDArray[np.int8],
) -> _Counts:
    """Count, for each hold, the outcomes with its key that were known when it was held."""
    number = np.unique(key, return_inverse=True)[1].astype(np.int64)
    place = number[counted] << 40 | outcomes["decided_sequence"][counted]
    order = np.argsort(place, kind="stable")
    place, good = place[order], np.append(0, np.cumsum(label[order] == 1))
    time = outcomes["decided"][counted][order]
    # The hold's own event is included: it decides the job's previous hold.
    upto = np.searchsorted(place, number << 40 | episodes["sequence"], side="right")
    first = np.searchsorted(place, number << 40)
    # Within a key, times rise with the sequence, with small exceptions.
    since = np.searchsorted(
        number[counted][order] * (1 << 20) + (time - time.min(initial=0)) // 10_000_000,
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
