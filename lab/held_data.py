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
from condor_advice.lab.recording import unpack
from condor_advice.lab.simulate import Profile, simulate
from condor_advice.lab.truth import JobKey, Truth, in_order, read_truth
from condor_advice.model.held_data import HeldData, from_samples
from condor_advice.preprocess.samples import Samples, collect
from condor_advice.preprocess.steps import job_parts
from condor_advice.preprocess.timeline import log_timeline

TRAINING = ("pool_a", "pool_b")  # owners chose what to release
RANDOMISED = "pool_c"  # every hold was released; for testing only
# Jobs that are simulated for the shipped model, and what one such episode counts beside a
# recorded one.
SIMULATED_JOBS, SIMULATED_SEED, SIMULATED_WEIGHT = 40_000, 5, 0.1


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


def simulated(jobs: int, seed: int, profile: Profile | None = None, name: str = "") -> Lab:
    """Simulate an access point, and read its log."""
    chosen = profile or Profile.read()
    name = name or f"simulated-{seed}"
    with tempfile.TemporaryDirectory(prefix="condor-advice-") as work:
        out = Path(work) / "out"
        simulate(jobs, seed, out, replace(chosen, shape=replace(chosen.shape, access_points=1)))
        log = out / "ap1" / "EventLog"
        samples = collect(log_timeline([log], Clock(find_zone("UTC")), name))
        truth = _simulated_truth((out / "truth.jsonl").read_text().splitlines())
    return _with_truth(samples, truth, name)


def _simulated_truth(lines: Iterable[str]) -> dict[JobKey, Truth]:
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row.pop("access_point")
    return {(row["cluster"], row["proc"]): Truth(**row) for row in rows}


def _with_truth(samples: Samples, truth: Mapping[JobKey, Truth], name: str) -> Lab:
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
    data = from_samples(samples, name, changed)
    return Lab(data, np.array(scenario, np.str_), np.array(family, np.str_))
