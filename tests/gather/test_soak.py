"""The day-long soak of `bench/soak.py`, shortened; `make soak` runs all of it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("soak", ROOT / "bench" / "soak.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_sped_up_access_point_is_followed_without_loss_in_constant_memory(
    bench: ModuleType, tmp_path: Path
) -> None:
    soaked = bench.soak(tmp_path, hours=0.1, speed=30, log_mb=0.6)
    figures = soaked.figures()
    assert figures["events"] == 25_200
    assert (figures["missing"], figures["doubled"], figures["gaps"]) == (0, 0, 0)
    assert figures["rotations"] >= 5
    # It may grow by what reading a block and SQLite's cache take, which is kept, and then no
    # more; `make soak` is long enough to see that. A kilobyte per event would be seen here.
    assert figures["memory_mb_second_half"] < figures["memory_mb_first_half"] + 25
    assert figures["memory_mb_second_half"] < 200
    # A rotated file is left two seconds after its last event; the machine may be busy.
    assert figures["lag_seconds_median"] < 10
    bench.plot(soaked, tmp_path / "soak.png")
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")


def test_lag_is_the_age_of_the_last_stored_event(bench: ModuleType) -> None:
    samples = [
        bench.SoakSample(1.0, 100, 100, 40.0, 0.1, 0),
        bench.SoakSample(2.0, 200, 150, 40.0, 0.1, 0),
        bench.SoakSample(3.0, 300, 100, 40.0, 0.1, 0),
    ]
    soaked = bench.Soak(300, 100, 0, 0, 3.0, 0, samples)
    assert soaked.lag_seconds == pytest.approx([0.0, 0.5, 2.0])
