"""Measure how fast events become hold episodes, features and tensors.

Prints one JSON line per benchmark. CPU time counts, the best of several runs, because the machine
may be busy.

    python bench/preprocess.py [--jobs N] [--log FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np

from condor_advice.gather.clock import Clock
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.reason_coverage import hold_reasons
from condor_advice.preprocess.holds.stream import EpisodeStream
from condor_advice.preprocess.holds.templates import parse_reason
from condor_advice.preprocess.holds.timeline import log_timeline

CLOCK = Clock(UTC)
REPEATS = 3


def report(benchmark: str, unit: str, value: float, **more: object) -> None:
    """Print one line."""
    print(
        json.dumps({"benchmark": benchmark, "unit": unit, "value": float(f"{value:.4g}")} | more),
        flush=True,
    )


class _Timed(EpisodeStream):
    """A pass that also times features, and features with tensors."""

    features_seconds = samples_seconds = 0.0

    def _tabulate(self, *values: Any) -> Any:
        began = time.process_time()
        table = super()._tabulate(*values)
        self.features_seconds += time.process_time() - began
        return table

    def _emit(self, *values: Any) -> Any:
        began = time.process_time()
        batch = super()._emit(*values)
        self.samples_seconds += time.process_time() - began
        return batch


def bench_pass(log: Path, name: str) -> None:
    """Measure a pass over a whole log: events in; episodes, features and tensors out."""
    best = features = both = np.inf
    stream: EpisodeStream = EpisodeStream()
    rows: list[int] = []
    for _ in range(REPEATS if log.stat().st_size < 1 << 28 else 1):
        stream = _Timed()
        rows = []
        began = time.process_time()
        for _ in stream.run(log_timeline([log], CLOCK, names=stream.names)):
            rows.append(len(stream.live) + len(stream.unheld))
        best = min(best, time.process_time() - began)
        features = min(features, stream.features_seconds)
        both = min(both, stream.samples_seconds)
    counts = stream.counts
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    half = len(rows) // 2
    report(
        f"{name}_events",
        "events/s",
        counts["events"] / best,
        seconds=round(best, 2),
        jobs=counts["jobs"],
        holds=counts["holds"],
        peak_mb=round(peak),
        live_steps_first_half=max(rows[:half] or rows),
        live_steps_second_half=max(rows[half:]),
    )
    rate = counts["holds"] / features
    report(
        f"{name}_features",
        "episodes/s",
        rate,
        columns=len(FEATURE_NAMES),
        target=20_000,
        met=rate > 20_000,
    )
    report(f"{name}_samples", "episodes/s", counts["holds"] / both, what="features and tensors")


def bench_linear(log: Path) -> None:
    """Compare the cost per event in the first half of a log and in the whole log."""
    data = log.read_bytes()
    half = log.with_name("half")
    half.write_bytes(data[: data.rfind(b"...\n", 0, len(data) // 2) + 4])
    costs = []
    for path in (half, log):
        best, events = np.inf, 1
        for _ in range(REPEATS):
            stream = EpisodeStream()
            began = time.process_time()
            for _ in stream.run(log_timeline([path], CLOCK, names=stream.names)):
                pass
            best, events = min(best, time.process_time() - began), stream.counts["events"]
        costs.append(best / events)
    report("pass_cost_of_whole_over_half", "ratio", costs[1] / costs[0])


def bench_reasons(log: Path) -> None:
    """Measure the parsing of hold reasons."""
    reasons = list(hold_reasons(log))
    best = np.inf
    for _ in range(REPEATS):
        began = time.process_time()
        for text, code, subcode in reasons:
            parse_reason(text, code, subcode)
        best = min(best, time.process_time() - began)
    report("reasons", "reasons/s", len(reasons) / best)


def simulated(directory: Path, jobs: int, held: float | None) -> Iterator[Path]:
    """Yield a simulated log, with the usual share of held jobs or the given one."""
    from condor_advice.lab.simulate import Profile, simulate

    profile = Profile.read()
    if held is not None:
        profile = replace(profile, targets=replace(profile.targets, held_share=held))
    out = directory / f"jobs{jobs}-{held}"
    simulate(jobs, 1, out, profile)
    yield out / "ap1" / "EventLog"


def main() -> None:
    """Run all benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000, help="size of the simulated log")
    parser.add_argument("--log", type=Path, help="measure only this log")
    chosen = parser.parse_args()
    if chosen.log:
        bench_pass(chosen.log, "pass")
        return
    with tempfile.TemporaryDirectory() as directory:
        for log in simulated(Path(directory), chosen.jobs, None):
            bench_pass(log, "pass")
            bench_linear(log)
        for log in simulated(Path(directory), chosen.jobs // 2, 0.5):
            bench_pass(log, "many_holds")
            bench_reasons(log)


if __name__ == "__main__":
    main()
