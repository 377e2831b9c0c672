"""Replay a day of a very busy access point: does the follower keep up and stay small?

    python bench/soak.py                          half an hour in half a minute
    python bench/soak.py --hours 24 --speed 120   6 million events in 12 minutes (`make soak`)

A busy access point writes about 7 events a second. Here a process writes ten times as many,
`speed` times faster than real time, into a log that rotates as HTCondor's does, while the real
`condor-advice gather --follow` runs. The script samples the follower's memory, CPU time and lag
and plots them to a file. At the end every event must be in the store exactly once. Prints one
JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing import Process, Value
from pathlib import Path
from typing import Any

import numpy as np

from condor_advice.gather.store import Store, StoreUnreachable

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/gather"))
from rotating_log import RotatingLog, job_events

EVENTS_PER_SECOND = 70.0  # ten times a busy access point
SLICE_SECONDS = 0.05


@dataclass
class SoakSample:
    """The follower at one moment of the soak."""

    seconds: float
    written: int
    stored: int
    memory_mb: float
    cpu_seconds: float
    rotations: int


@dataclass
class Soak:
    """The result of a soak."""

    events: int
    stored: int
    doubled: int
    gaps: int
    seconds: float
    rotations: int
    samples: list[SoakSample]

    @property
    def lag_seconds(self) -> list[float]:
        """The age, at each sample, of the last event stored."""
        times = [0.0, *(sample.seconds for sample in self.samples)]
        written = [0, *(sample.written for sample in self.samples)]
        # `written` only grows, so invert it: when was this number of events written?
        when = np.interp([sample.stored for sample in self.samples], written, times)
        return [max(0.0, s.seconds - float(w)) for s, w in zip(self.samples, when, strict=True)]

    def figures(self) -> dict[str, Any]:
        """Return the figures that the benchmark prints."""
        memory = [sample.memory_mb for sample in self.samples if sample.stored > 0]
        half = len(memory) // 2
        lag = sorted(self.lag_seconds)
        return {
            "benchmark": "soak",
            "events": self.events,
            "stored": self.stored,
            "missing": self.events - self.stored,
            "doubled": self.doubled,
            "gaps": self.gaps,
            "rotations": self.rotations,
            "seconds": round(self.seconds, 1),
            "events_per_second": round(self.events / self.seconds),
            "memory_mb_first_half": round(max(memory[:half], default=0.0), 1),
            "memory_mb_second_half": round(max(memory[half:], default=0.0), 1),
            "lag_seconds_median": round(lag[len(lag) // 2], 2),
            "lag_seconds_max": round(lag[-1], 2),
            "cpu_share": round(self.samples[-1].cpu_seconds / self.seconds, 3),
        }


def write(log_path: Path, events: int, rate: float, size: int, written: Any, turned: Any) -> None:
    """Write the events of jobs to a rotating log at a steady rate."""
    log = RotatingLog(log_path, max_rotations=40)
    start = time.monotonic()
    source = job_events()
    done = 0
    while done < events:
        due = min(events, int((time.monotonic() - start + SLICE_SECONDS) * rate))
        log.write_part(b"".join(next(source) for _ in range(due - done)))
        log.events += due - done
        done = written.value = due
        if log.size > size:
            log.rotate()
            turned.value += 1
        time.sleep(SLICE_SECONDS)
    log.close()


def soak(directory: Path, *, hours: float, speed: float, log_mb: float) -> Soak:
    """Run the follower against a writer for `hours` of log time."""
    events = int(hours * 3600 * EVENTS_PER_SECOND)
    rate = EVENTS_PER_SECOND * speed
    log_path, store_path = directory / "EventLog", directory / "store.sqlite"
    written, turned = Value("q", 0), Value("q", 0)
    arguments = (log_path, events, rate, int(log_mb * 1e6), written, turned)
    writer = Process(target=write, args=arguments, daemon=True)
    command = [sys.executable, "-m", "condor_advice", "gather", "--follow", str(log_path)]
    command += ["--store", str(store_path), "--zone", "UTC"]
    start = time.monotonic()
    writer.start()
    follower = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    samples: list[SoakSample] = []
    pause = max(0.2, min(5.0, events / rate / 200))
    try:
        while not samples or samples[-1].stored < events:
            time.sleep(pause)
            assert follower.poll() is None, f"the follower exited with {follower.returncode}"
            memory, cpu = usage(follower.pid)
            stored, seconds = count(store_path), time.monotonic() - start
            samples.append(SoakSample(seconds, written.value, stored, memory, cpu, turned.value))
            if not writer.is_alive() and len(samples) > 100 and stored == samples[-100].stored:
                break  # no more progress; the figures show it
        taken = time.monotonic() - start
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(timeout=60) == 0
    finally:
        follower.kill()
        follower.wait()
        writer.kill()
        writer.join()
    with Store(store_path, readonly=True) as store:
        jobs = [piece.columns.cluster[piece.columns.type == 0] for piece in store.pieces()]
        clusters = np.concatenate(jobs)
        doubled = len(clusters) - len(np.unique(clusters))
        gaps = len(store.gaps())
    stored = count(store_path)
    return Soak(events, stored, doubled, gaps, taken, turned.value, samples)


def count(store_path: Path) -> int:
    """Return how many events are stored, without the headers of the log."""
    try:
        with Store(store_path, readonly=True) as store:
            counts = store.counts_by_type()
    except StoreUnreachable:
        return 0  # not made yet
    return sum(counts.values()) - counts.get(8, 0)


def usage(pid: int) -> tuple[float, float]:
    """Return a process's resident memory in MB and its CPU seconds."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = int(fields[11]) + int(fields[12])
    return int(resident.split()[1]) / 1024, ticks / os.sysconf("SC_CLK_TCK")


def plot(soaked: Soak, path: Path) -> None:
    """Plot memory and lag over the soak."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    seconds = [sample.seconds for sample in soaked.samples]
    figure, (memory, lag, events) = pyplot.subplots(3, 1, sharex=True, figsize=(9, 8))
    memory.plot(seconds, [sample.memory_mb for sample in soaked.samples])
    memory.set_ylabel("resident memory (MB)")
    memory.set_ylim(bottom=0)
    lag.plot(seconds, soaked.lag_seconds)
    lag.set_ylabel("lag (s)")
    lag.set_ylim(bottom=0)
    events.plot(seconds, [sample.written / 1e6 for sample in soaked.samples], label="written")
    events.plot(seconds, [sample.stored / 1e6 for sample in soaked.samples], label="stored")
    events.set_ylabel("events (millions)")
    events.set_xlabel("seconds")
    events.legend()
    figure.suptitle(f"{soaked.events:,} events, {soaked.rotations} rotations")
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def main() -> None:
    """Run the soak and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hours", type=float, default=0.5, help="log time [0.5]")
    parser.add_argument("--speed", type=float, default=60.0, help="times real time [60]")
    parser.add_argument("--log-mb", type=float, default=5.0, help="size of a rotation [5]")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the plot goes [out]")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        soaked = soak(
            Path(directory), hours=options.hours, speed=options.speed, log_mb=options.log_mb
        )
    plot(soaked, options.out / "soak.png")
    samples = [asdict(sample) for sample in soaked.samples]
    (options.out / "soak.json").write_text(json.dumps(samples))
    print(json.dumps(soaked.figures()))
    sys.exit(soaked.stored != soaked.events or soaked.doubled > 0 or soaked.gaps > 0)


if __name__ == "__main__":
    main()
