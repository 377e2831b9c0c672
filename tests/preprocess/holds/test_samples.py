"""Samples of the logs that advice is asked about, and of what is new in a store."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import numpy as np
import pytest

from condor_advice.gather.clock import Clock
from condor_advice.gather.collect import Collector
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.store import Store
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.job_numbers import job_parts
from condor_advice.preprocess.holds.outcomes import Outcome
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


def test_slots_named_without_an_at_sign_are_different_points(tmp_path: Path) -> None:
    """A machine with one slot has a slot name without @; the next line may have one."""
    log = tmp_path / "log"
    log.write_text(
        "".join(
            f"000 (00{number}.000.000) 2026-11-16 02:00:00 Job submitted from host: <10.0.0.9:1>\n"
            "...\n"
            f"001 (00{number}.000.000) 2026-11-16 02:01:00 Job executing on host: <10.0.0.9:1>\n"
            f'\tSlotName: {name}\n\tPilot = "a@b"\n...\n'
            f"012 (00{number}.000.000) 2026-11-16 02:02:00 Job was held.\n"
            "\tbroken\n\tCode 13 Subcode 2\n...\n"
            for number, name in enumerate(("ep1", "ep2", "slot1@ep1", "x" * 80))
        )
    )
    samples = collect(log_timeline([log], CLOCK))
    names = {number: name for name, number in samples.names.points.items()}
    assert [names[point] for point in samples.episodes["point"].tolist()] == [
        "ep1",
        "ep2",
        "ep1",
        "x" * 80,
    ]


@pytest.mark.parametrize(
    ("number", "attribute", "value"),
    [
        (12, "HoldReasonCode", 2**40),
        (12, "HoldReasonCode", float("nan")),
        (12, "HoldReasonSubCode", 10**400),
        (28, "DAGManJobId", 1e300),
        (40, "Type", 300),
        (6, "MemoryUsage", 10**400),
        (5, "ReturnValue", 10**400),
    ],
)
def test_a_number_that_no_column_holds_is_as_if_absent_in_json(
    tmp_path: Path, number: int, attribute: str, value: float
) -> None:
    def event(kind: int, **ad: object) -> str:
        header = {"EventTypeNumber": kind, "EventTime": "2026-11-16T02:00:00", "Cluster": 5}
        return json.dumps({**header, "Proc": 0, **ad}, indent=2) + "\n"

    log = tmp_path / "log"
    events = event(0) + event(1)
    if number != 12:
        events += event(number)
    expected = collect(log_timeline([_written(log, events + event(12))], CLOCK))
    strange = event(0) + event(1)
    if number != 12:
        strange += event(number, **{attribute: value}) + event(12)
    else:
        strange += event(12, **{attribute: value})
    samples = collect(log_timeline([_written(log, strange)], CLOCK))
    assert len(samples) == 1
    assert np.array_equal(samples.features, expected.features, equal_nan=True)


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
