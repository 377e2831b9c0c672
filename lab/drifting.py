"""Simulate access points whose holds, or their outcomes, change on a known day.

`bench/drift.py` and the tests measure drift detection with them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from condor_advice.gather.clock import Clock
from condor_advice.lab.simulate import Profile, simulate
from condor_advice.model.held.data import HeldData, from_samples
from condor_advice.model.held.drift import Observed
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.labels import NO_LABEL
from condor_advice.preprocess.holds.samples import collect
from condor_advice.preprocess.holds.timeline import LogSource, Timeline, log_blocks

FIRST_DAY = datetime(2026, 3, 2, tzinfo=UTC)
JOBS_PER_DAY = 500.0
BEFORE_DAYS, AFTER_DAYS = 36, 14
CHANGED = FIRST_DAY + timedelta(days=BEFORE_DAYS)
OTHER_REASONS = {
    "memory_always": 6.0,
    "memory_by_input": 6.0,
    "output_missing": 5.0,
    "url_outage": 0.1,
    "input_missing": 0.1,
}


def profile(
    start: datetime, faults: dict[str, float] | None = None, failing_share: float | None = None
) -> Profile:
    """Return a small access point with many small clusters that are often held."""
    usual = Profile.read()
    shape = replace(
        usual.shape,
        start=start.replace(tzinfo=None).isoformat(),
        largest_cluster=30,
        single_job_share=0.7,
        execution_points=200,
        upgrade_after_days=-1.0,  # the wording of hold reasons stays the same
        failing_share=usual.shape.failing_share if failing_share is None else failing_share,
    )
    targets = replace(usual.targets, jobs_per_day=JOBS_PER_DAY, held_share=0.3)
    return replace(usual, shape=shape, targets=targets, faults={**usual.faults, **(faults or {})})


def simulated(directory: Path, seed: int, days: int, profile: Profile) -> Path:
    """Simulate an event log of this many days; return its path."""
    return (
        simulate(int(days * JOBS_PER_DAY), seed, directory, profile).directory / "ap1" / "EventLog"
    )


def episodes(*logs: Path) -> HeldData:
    """Read event logs, each of one access point, as one timeline."""
    clock = Clock(UTC)
    sources = [LogSource(str(log), f"ap{n}", log_blocks(log, clock)) for n, log in enumerate(logs)]
    return from_samples(collect(Timeline(sources)), "simulated")


def answered(data: HeldData, trained_until: int) -> Observed:
    """Answer each hold with the success rate of its template and number before training."""
    template, number = (
        np.nan_to_num(data.features[:, FEATURE_NAMES.index(name)]).astype(np.int64)
        for name in ("hold_template", "hold_number")
    )
    key = template * 4 + np.minimum(number, 3)
    known = (data.time < trained_until) & (data.label != NO_LABEL)
    base = float(data.label[known].mean())
    good = np.bincount(key[known], data.label[known], minlength=int(key.max()) + 1)
    cases = np.bincount(key[known], minlength=int(key.max()) + 1)
    return Observed.of(data, ((good + 4 * base) / (cases + 4))[key])
