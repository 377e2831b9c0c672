"""Samples of the logs that advice is asked about, and of what is new in a store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import numpy as np
import pytest

from condor_advice.gather.clock import Clock
from condor_advice.gather.collect import Collector
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.store import Store
from condor_advice.preprocess.holds.episodes import Outcome
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.job_numbers import job_parts
from condor_advice.preprocess.holds.samples import collect, collect_new
from condor_advice.preprocess.holds.tensors import TensorSpec
from condor_advice.preprocess.holds.timeline import log_timeline

CLOCK = Clock(UTC)


def test_a_real_hold_is_found_by_its_job_and_number(event_log: Callable[[str], Path]) -> None:
    log = event_log("released_and_held_again.log")
    samples = collect(log_timeline([log], CLOCK))
    assert len(samples) > 1
    _, cluster, proc = job_parts(int(samples.episodes["job"][0]))
    first, last = samples.find(cluster, proc, 1), samples.find(cluster, proc)
    assert first == 0
    assert last == len(samples) - 1
    assert samples.outcome(first) in (Outcome.HELD_SAME, Outcome.HELD_OTHER)
    column = FEATURE_NAMES.index("hold_number")
    assert samples.features[:, column].tolist() == list(range(1, len(samples) + 1))
    assert samples.tensor(last)[-1, TensorSpec().column("is_held")] == 1
    assert samples.find(cluster, proc, 99) is None
    assert samples.find(cluster + 1, proc) is None


def test_logs_without_events_have_no_samples() -> None:
    samples = collect(log_timeline([], CLOCK))
    assert len(samples) == 0
    assert samples.features.shape == (0, len(FEATURE_NAMES))


def test_only_what_is_new_in_a_store_is_read_again(
    simulated: Callable[..., Path], tmp_path: Path
) -> None:
    data = simulated(300).read_bytes()
    log, state = tmp_path / "EventLog", tmp_path / "pass.npz"
    half = data.rfind(b"...\n", 0, len(data) // 2) + 4
    parts = []
    for end in (half, half, len(data)):
        log.write_bytes(data[:end])
        with Store(tmp_path / "store.sqlite") as store:
            Collector(store, [str(log)], access_point="ap", clock=CLOCK).read()
            parts.append(collect_new(store, state))
    assert len(parts[1]) == 0
    whole = collect(log_timeline([log], CLOCK, "ap"))
    together = np.concatenate([part.features for part in parts])
    assert together.tobytes() == whole.features.tobytes()


def test_a_state_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    state = tmp_path / "pass.npz"
    state.write_bytes(b"not a state")
    with (
        Store(tmp_path / "store.sqlite") as store,
        pytest.raises(AdviceError, match="remove the file, and all events will be read again"),
    ):
        collect_new(store, state)
