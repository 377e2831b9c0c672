"""Recordings and simulations as training data for models of held jobs.

The truth file says when somebody repaired a job; model/held/load.py takes that into account.
Models learn nothing else from the truth.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from condor_advice.lab.recording import shipped, unpack
from condor_advice.lab.simulate import Profile, simulate
from condor_advice.lab.truth import JobKey, Truth, in_order, read_truth
from condor_advice.model.held.data import HeldData
from condor_advice.model.held.load import EpisodeLogs, read_logs, with_repairs
from condor_advice.preprocess.holds.job_numbers import job_parts
from condor_advice.preprocess.holds.samples import Samples

TRUTH = "truth.jsonl"
RANDOMISED = "pool_c"  # every hold was released; for testing only
# Simulated jobs for the shipped model, and the weight of a simulated episode relative to a
# recorded one.
SIMULATED_JOBS, SIMULATED_SEED, SIMULATED_WEIGHT = 40_000, 5, 0.1


def training_recordings() -> tuple[str, ...]:
    """Return the names of the shipped recordings to train on."""
    return tuple(sorted(name for name, about in shipped().items() if about["use"] == "train"))


@dataclass(frozen=True)
class Lab:
    """Episodes and the true cause of each, which is for evaluation and never a feature."""

    data: HeldData
    scenario: npt.NDArray[np.str_]
    family: npt.NDArray[np.str_]  # of scenarios


def recorded(name: str) -> Lab:
    """Read a shipped recording."""
    with tempfile.TemporaryDirectory(prefix="condor-advice-") as work:
        directory = unpack(name, Path(work))
        logs = recorded_logs(name, directory)
        return _with_truth(read_logs(logs), logs, read_truth(directory / TRUTH))


def recorded_logs(name: str, directory: Path) -> EpisodeLogs:
    """Return the event logs of an unpacked recording, with the repairs from its truth file."""
    files = tuple(in_order(directory / "events" / "EventLog"))
    return EpisodeLogs(files, name, name, "UTC", _repairs(read_truth(directory / TRUTH)))


def _repairs(truth: Mapping[JobKey, Truth]) -> dict[str, float]:
    return {
        f"{cluster}.{proc}": datetime.fromisoformat(job.fixed).timestamp()
        for (cluster, proc), job in truth.items()
        if job.fixed
    }


def simulated(
    jobs: int,
    seed: int,
    profile: Profile | None = None,
    name: str = "",
    *,
    as_logged: bool = False,
) -> Lab:
    """Simulate an access point and read its log.

    `as_logged` is for testing. It keeps the features that a store would have, because advice
    does not know which outcomes followed a repair.
    """
    chosen = profile or Profile.read()
    name = name or f"simulated-{seed}"
    with tempfile.TemporaryDirectory(prefix="condor-advice-") as work:
        out = Path(work) / "out"
        simulate(jobs, seed, out, replace(chosen, shape=replace(chosen.shape, access_points=1)))
        truth = _simulated_truth((out / TRUTH).read_text().splitlines())
        log = out / "ap1" / "EventLog"
        logs = EpisodeLogs((log,), name, name, "UTC", _repairs(truth))
        samples = read_logs(logs)
    lab = _with_truth(samples, logs, truth)
    if as_logged:
        return replace(lab, data=replace(lab.data, features=samples.features))
    return lab


def _simulated_truth(lines: Iterable[str]) -> dict[JobKey, Truth]:
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row.pop("access_point")
    return {(row["cluster"], row["proc"]): Truth(**row) for row in rows}


def _with_truth(samples: Samples, logs: EpisodeLogs, truth: Mapping[JobKey, Truth]) -> Lab:
    """Add the true cause of each job to its episodes."""
    scenario, family = [], []
    jobs, numbers = samples.episodes["job"].tolist(), samples.episodes["number"].tolist()
    for job, number in zip(jobs, numbers, strict=True):
        _, cluster, proc = job_parts(job)
        known = truth.get((cluster, proc))
        struck = [cause for cause in (known.struck if known else []) if cause["hold"] == number]
        scenario.append(
            f"struck: {struck[0]['cause']}" if struck else known.scenario if known else ""
        )
        family.append("host" if struck else known.family if known else "")
    data = with_repairs(samples, logs)
    return Lab(data, np.array(scenario, np.str_), np.array(family, np.str_))
