"""What the hook costs: time of a poll and a sample, CPU share and memory at 5 s, file size.

Prints one JSON line per benchmark, with the target if there is one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path

from condor_checkpoint import Checkpoint
from condor_checkpoint.hook import bundled_trees
from condor_checkpoint.risk import Risk
from condor_checkpoint.sample import Sampler
from condor_checkpoint.simulate import World, run_policy
from condor_checkpoint.traces import exponential

ROOT = Path(__file__).resolve().parents[1]
INTERVAL = 5.0
TICKS = os.sysconf("SC_CLK_TCK")


def report(benchmark: str, unit: str, value: float, target: float | None = None) -> None:
    """Print one line."""
    line = {"benchmark": benchmark, "unit": unit, "value": float(f"{value:.4g}")}
    if target is not None:
        line |= {"target": target, "met": value < target}
    print(json.dumps(line), flush=True)


def bench_poll() -> None:
    """Time a poll with nothing to do, while the watching thread runs."""
    with Checkpoint(lambda reason: None, interval=INTERVAL) as checkpoint:
        time.sleep(0.5)
        number = 200_000
        best = min(timeit.repeat(checkpoint.poll, number=number, repeat=5))
    report("checkpoint_poll", "us", 1e6 * best / number, 2.0)


def bench_sample() -> None:
    """Time one sample and its evaluation, with full windows."""
    sampler, risk = Sampler(), Risk(INTERVAL, bundled_trees())
    for _ in range(70):
        risk.add(sampler.take(), 0.0)
    begun = time.process_time()
    for _ in range(100):
        risk.add(sampler.take(), 0.0)
    each = (time.process_time() - begun) / 100
    report("checkpoint_sample", "ms", 1e3 * each)
    report("checkpoint_sampling_share_of_a_core", "%", 100 * each / INTERVAL, 0.5)


def bench_wrapper(seconds: float = 30.0) -> None:
    """Measure a whole wrapper process: its CPU time and memory at 5 s sampling."""
    with tempfile.TemporaryDirectory() as directory:
        pyz = Path(directory, "condor_checkpoint.pyz")
        subprocess.run([sys.executable, ROOT / "tools/make_pyz.py", pyz], check=True)
        report("checkpoint_pyz_size", "KB", pyz.stat().st_size / 1024, 300.0)
        command = [sys.executable, str(pyz), "run", "--signal", "USR1", "--", "sleep", "600"]
        with subprocess.Popen(command) as process:
            time.sleep(3.0)  # start-up happens once
            before = processor_seconds(process.pid)
            time.sleep(seconds)
            used = processor_seconds(process.pid) - before
            status = Path(f"/proc/{process.pid}/status").read_text()
            process.terminate()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    report("checkpoint_wrapper_share_of_a_core", "%", 100 * used / seconds, 0.5)
    report("checkpoint_wrapper_memory", "MB", int(peak.split()[1]) / 1024, 20.0)


def processor_seconds(pid: int) -> float:
    """Return the user and system time of one process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def bench_simulate() -> None:
    """Count the jobs per second that the simulator runs under our policy."""
    jobs, world = 100, World(1e5, 60.0)
    begun = time.perf_counter()
    run_policy("ours", world, exponential(), jobs, 1)
    report("checkpoint_simulate", "jobs/s", jobs / (time.perf_counter() - begun))


if __name__ == "__main__":
    bench_poll()
    bench_sample()
    bench_wrapper()
    bench_simulate()
