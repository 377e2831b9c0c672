"""Measure the speed and memory of `lab simulate`, and how close it comes to its profile.

    python bench/simulate.py [--jobs 100000 1000000] [--seed 1]

Prints one JSON line per size. Each size runs in its own process, so that its peak memory is its
own.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = """
import json, resource, sys, time
from pathlib import Path
from condor_advice.lab.simulate import Profile, simulate
profile = Profile.read()
result = simulate(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), profile)
figures = result.as_json(profile)
print(json.dumps({
    "bench": "simulate", "jobs": result.jobs, "events": result.events,
    "megabytes": round(result.bytes / 1e6, 1), "seconds": figures["seconds"],
    "cpu_seconds": round(time.process_time(), 2),
    "jobs_per_cpu_second": round(result.jobs / time.process_time()),
    "events_per_cpu_second": round(result.events / time.process_time()),
    "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    **{name: round(values["measured"], 4) for name, values in figures["comparison"].items()}}))
"""


def main() -> None:
    """Run each size and print its line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for jobs in options.jobs:
        scratch = Path(tempfile.mkdtemp(prefix="simulate-"))
        try:
            subprocess.run(
                [sys.executable, "-c", RUN, str(jobs), str(options.seed), str(scratch / "out")],
                check=True,
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
