"""The truth may clean training data, never test data."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import numpy as np

from condor_advice.gather.clock import Clock
from condor_advice.lab.simulate import Profile, simulate
from condor_advice.lab.training_data import RANDOMISED, recorded, simulated
from condor_advice.preprocess.holds.samples import collect
from condor_advice.preprocess.holds.timeline import log_timeline


def test_a_simulated_test_set_has_the_features_that_its_log_gives(tmp_path: Path) -> None:
    jobs, seed = 3000, 11
    simulate(jobs, seed, tmp_path / "out", Profile.read())
    log = tmp_path / "out" / "ap1" / "EventLog"
    plain = collect(log_timeline([log], Clock(UTC), "x"))
    judged_by = simulated(jobs, seed, name="x", as_logged=True).data
    assert np.array_equal(judged_by.features, plain.features, equal_nan=True)
    learned_from = simulated(jobs, seed, name="x").data
    assert learned_from.changed.any()
    assert not np.array_equal(learned_from.features, plain.features, equal_nan=True)
    assert np.array_equal(learned_from.label, judged_by.label)


def test_nobody_repaired_anything_in_the_randomised_recording() -> None:
    """Its features are therefore the same with and without the truth."""
    assert not recorded(RANDOMISED).data.changed.any()
