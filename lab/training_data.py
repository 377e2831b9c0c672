"""Recordings and simulations as training data for models of held jobs.

What the owners of a recording did is known: `truth.jsonl` says when somebody repaired a job. A
release after that says nothing about a release as is, so that such an episode has no label.
Nothing else of the truth is ever learned from.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from condor_advice.gather.clock import Clock, find_zone
from condor_advice.lab.recording import shipped, unpack
from condor_advice.lab.simulate import Profile, simulate
from condor_advice.lab.truth import JobKey, Truth, in_order, read_truth
from condor_advice.model.held.data import HeldData, from_samples
from condor_advice.preprocess.holds.features import FEATURE_NAMES, PRIOR_SUCCESS, SHRINKAGE
from condor_advice.preprocess.holds.job_numbers import cluster_of, job_parts
from condor_advice.preprocess.holds.labels import labels_of
from condor_advice.preprocess.holds.samples import Samples, collect
from condor_advice.preprocess.holds.timeline import log_timeline

RANDOMISED = "pool_c"  # every hold was released; for testing only
# Jobs that are simulated for the shipped model, and what one such episode counts beside a
# recorded one.
SIMULATED_JOBS, SIMULATED_SEED, SIMULATED_WEIGHT = 40_000, 5, 0.1


def training_recordings() -> tuple[str, ...]:
    """Return the names of the shipped recordings that are for learning."""
    return tuple(sorted(name for name, one in shipped().items() if one["use"] == "train"))


@dataclass(frozen=True)
class Lab:
    """Episodes, and what was really the matter with each: for judging, never a feature."""

    data: HeldData
    scenario: npt.NDArray[np.str_]
    family: npt.NDArray[np.str_]  # of scenarios


def recorded(name: str) -> Lab:
    """Read a shipped recording."""
    with tempfile.TemporaryDirectory(prefix="condor-advice-") as work:
        directory = unpack(name, Path(work))
        # Rotated files are one log: joined, their clock has no seams.
        joined = directory / "joined"
        logs = in_order(directory / "events" / "EventLog")
        joined.write_bytes(b"".join(path.read_bytes() for path in logs))
        _keep_date(logs[-1], joined)
        samples = collect(log_timeline([joined], Clock(find_zone("UTC")), name))
        truth = read_truth(directory / "truth.jsonl")
    return _with_truth(samples, truth, name)


def _keep_date(source: Path, target: Path) -> None:
    """Give the joined log the date of its last part, from which years are found."""
    status = source.stat()
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def simulated(
    jobs: int,
    seed: int,
    profile: Profile | None = None,
    name: str = "",
    *,
    as_logged: bool = False,
) -> Lab:
    """Simulate an access point, and read its log.

    For testing, `as_logged` keeps the features that a store would have: who asks for advice does
    not know which outcomes followed a repair.
    """
    chosen = profile or Profile.read()
    name = name or f"simulated-{seed}"
    with tempfile.TemporaryDirectory(prefix="condor-advice-") as work:
        out = Path(work) / "out"
        simulate(jobs, seed, out, replace(chosen, shape=replace(chosen.shape, access_points=1)))
        log = out / "ap1" / "EventLog"
        samples = collect(log_timeline([log], Clock(find_zone("UTC")), name))
        truth = _simulated_truth((out / "truth.jsonl").read_text().splitlines())
    return _with_truth(samples, truth, name, as_logged)


def _simulated_truth(lines: Iterable[str]) -> dict[JobKey, Truth]:
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row.pop("access_point")
    return {(row["cluster"], row["proc"]): Truth(**row) for row in rows}


_DAY_US = 86_400_000_000


def without_repairs(samples: Samples, changed: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """Return the features as they would be had outcomes of repaired jobs not been counted.

    A success after a repair says nothing of a release as is; counted as one, it would teach a
    model to distrust the rates that it sees.
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
    for level, one in counts.items():
        rate = (one.good + SHRINKAGE * average) / (one.good + one.bad + SHRINKAGE)
        day = (one.good_1d + SHRINKAGE * average) / (one.good_1d + one.bad_1d + SHRINKAGE)
        new = {
            "good_total": one.good,
            "bad_total": one.bad,
            "good_1d": one.good_1d,
            "bad_1d": one.bad_1d,
            "success_rate": average if level == "pool" else rate,
            "success_rate_1d": day,
            "last_outcome": one.last,
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


def _with_truth(
    samples: Samples, truth: Mapping[JobKey, Truth], name: str, as_logged: bool = False
) -> Lab:
    changed = np.zeros(len(samples), np.bool_)
    scenario, family = [], []
    for row in range(len(samples)):
        _, cluster, proc = job_parts(int(samples.episodes["job"][row]))
        known = truth.get((cluster, proc))
        held = int(samples.episodes["number"][row])
        struck = [one for one in (known.struck if known else []) if one["hold"] == held]
        scenario.append(
            f"struck: {struck[0]['cause']}" if struck else known.scenario if known else ""
        )
        family.append("host" if struck else known.family if known else "")
        if known and known.fixed:
            fixed = datetime.fromisoformat(known.fixed).timestamp()
            began = int(samples.episodes["time"][row]) / 1e6
            released = int(samples.outcomes["released"][row]) / 1e6
            # The truth file has whole seconds.
            changed[row] = released > 0 and began <= fixed + 1 and released >= fixed - 1
    if not as_logged:
        samples.features = without_repairs(samples, changed)
    data = from_samples(samples, name, changed)
    return Lab(data, np.array(scenario, np.str_), np.array(family, np.str_))
