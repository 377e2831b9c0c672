"""How well drift is detected: false alarms, changes found, and the error of their dates.

    python bench/drift.py [--seeds 8]

Simulates access points: some stay as they are; some get other hold reasons on a known day; in
some the same holds have other outcomes from that day on. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from condor_advice.lab.drifting import (
    AFTER_DAYS,
    BEFORE_DAYS,
    CHANGED,
    FIRST_DAY,
    OTHER_REASONS,
    answered,
    episodes,
    profile,
    simulated,
)
from condor_advice.model.held import drift
from condor_advice.model.held.data import HeldData

TRAINED_UNTIL = CHANGED - timedelta(days=10)


def measure(data: HeldData) -> tuple[dict[str, drift.Signal], float]:
    """Return the signals, and the seconds that computing them took."""
    border = int(TRAINED_UNTIL.timestamp() * 1e6)
    observed = answered(data, border)
    kept = drift.reference(observed.take(np.flatnonzero(data.time < border)))
    began = time.perf_counter()
    signals = {signal.name: signal for signal in drift.assess(kept, observed)}
    return signals, time.perf_counter() - began


def alarms(signal: drift.Signal) -> int:
    """Count the windows after training that would have raised an alarm."""
    values = [point.value for point in signal.series]
    return sum(
        drift.beyond(np.array(values[:end]), signal.limit)
        for end, point in enumerate(signal.series, 1)
        if point.ends > TRAINED_UNTIL
    )


def main() -> None:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    seeds = range(1, parser.parse_args().seeds + 1)
    false_alarms = windows = 0
    detected = {"hold_reasons": 0, "calibration": 0}
    days: dict[str, list[float]] = {"hold_reasons": [], "calibration": []}
    seconds: list[float] = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as scratch:
            work = Path(scratch)
            whole = simulated(work / "whole", seed, BEFORE_DAYS + AFTER_DAYS, profile(FIRST_DAY))
            signals, took = measure(episodes(whole))
            seconds.append(took)
            false_alarms += sum(alarms(signal) for signal in signals.values())
            windows += sum(
                point.ends > TRAINED_UNTIL for signal in signals.values() for point in signal.series
            )
            before = simulated(work / "before", seed, BEFORE_DAYS, profile(FIRST_DAY))
            for name, changed in (
                ("hold_reasons", profile(CHANGED, OTHER_REASONS)),
                ("calibration", profile(CHANGED, failing_share=0.6)),
            ):
                after = simulated(work / name, seed, AFTER_DAYS, changed)
                signal = measure(episodes(before, after))[0][name]
                detected[name] += signal.drifted
                if signal.began is not None:
                    days[name].append(abs((signal.began - CHANGED).total_seconds()) / 86400)
    print(
        json.dumps(
            {
                "benchmark": "drift",
                "seeds": len(seeds),
                "false_alarms": false_alarms,
                "windows_without_drift": windows,
                "found": detected,
                "days_off_median": {k: round(statistics.median(v), 2) for k, v in days.items()},
                "days_off_most": {k: round(max(v), 2) for k, v in days.items()},
                "seconds_median": round(statistics.median(seconds), 3),
                "date": f"{datetime.now(UTC):%Y-%m-%d}",
            }
        )
    )


if __name__ == "__main__":
    main()
