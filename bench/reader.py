"""Compare the events read per second with those of HTCondor's own reader on the same file.

    python bench/reader.py [--events N] [--rounds N] [--memory EVENTS] [--log FILE]

Unless you name a log, the script makes one from real events (tests/logs) with other job ids and
later times. Every reader gets the whole file on one core, and CPU time counts. HTCondor's reader
reads the file once per round; every few thousand events our readers run for as long as it did, so
that a slow phase of the machine slows all of them. The ratio is the median over rounds. Prints
one JSON line per benchmark.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.collect import Collector
from condor_advice.gather.fields import read_fields
from condor_advice.gather.memory import keep_freed_memory
from condor_advice.gather.reader import BLOCK_BYTES, ReaderState, read_block
from condor_advice.gather.store import Store
from condor_advice.gather.words import PADDING

LOGS = Path(__file__).resolve().parents[1] / "tests" / "logs"
LIVE_JOBS = 2000
TURN_EVENTS = 5000
COMMAND_EVENTS = 300_000
# How often each real log is the pattern of a job: most jobs just run.
SHARES = {
    "completed": 60, "exit_nonzero": 6, "killed_by_signal": 1, "evicted": 4,
    "missing_input": 2, "missing_output": 2, "memory_exceeded": 2, "on_exit_hold": 2,
    "released_and_succeeded": 3, "released_and_held_again": 1, "removed_while_running": 2,
}  # fmt: skip
HEADER = re.compile(rb"^(\d{3}) \(\d+\.\d+\.\d+\) \S+ \S+", re.MULTILINE)
# Other kinds of logs, each a repeated real one: with an ad after every event, JSON, and XML.
KINDS = {"ads": "global_no_year", "json": "global_json", "xml": "global_xml"}
KIND_BYTES = 6 << 20
CLUSTER = re.compile(rb'(^\d{3} \(|"Cluster": |"Cluster"><i>)(\d+)', re.MULTILINE)


def lives() -> list[tuple[int, list[bytes]]]:
    """Return the share of each kind of job, and its events as templates."""
    kinds = []
    held = (LOGS / "removed_while_held.log").read_bytes()
    removal = held[held.index(b"009 (") :]
    for name, share in SHARES.items():
        log = (LOGS / f"{name}.log").read_bytes()
        job = log[4 : log.index(b")") + 1]
        events = [event + b"\n...\n" for event in log.split(b"\n...\n") if job in event[:40]]
        if not events[-1].startswith((b"005", b"009")):
            events.append(removal)  # a job left on hold is removed in the end
        # Long jobs report their size again and again; recorded ones are short.
        sizes = [event for event in events if event.startswith(b"006")]
        at = max((n for n, event in enumerate(events) if event.startswith(b"001")), default=0)
        events[at + 1 : at + 1] = sizes[:1] * 2
        templates = [HEADER.sub(rb"\1 (%d.%03d.000) %b", e.replace(b"%", b"%%")) for e in events]
        kinds.append((share, templates))
    return kinds


def write_log(path: Path, events: int, seed: int = 1) -> None:
    """Write a log in which thousands of jobs are active at any time."""
    rng = random.Random(seed)
    kinds = lives()
    weights = [share for share, _ in kinds]
    moment, count = datetime(2026, 1, 5, 8), 0
    stamp = moment.strftime("%Y-%m-%d %H:%M:%S").encode()
    numbers = itertools.count()
    live: list[tuple[int, list[bytes], int]] = []
    for _ in range(LIVE_JOBS):  # a log starts with jobs under way, not with submits
        templates = rng.choices(kinds, weights)[0][1]
        live.append((next(numbers), templates, rng.randrange(len(templates))))
    with path.open("wb", buffering=1 << 20) as file:
        while count < events:
            while len(live) < LIVE_JOBS:
                live.append((next(numbers), rng.choices(kinds, weights)[0][1], 0))
            place = rng.randrange(len(live))
            job, templates, step = live[place]
            if rng.random() < 0.15:
                moment += timedelta(seconds=1)
                stamp = moment.strftime("%Y-%m-%d %H:%M:%S").encode()
            file.write(templates[step] % (1000 + job // 25, job % 25, stamp))
            count += 1
            if step + 1 < len(templates):
                live[place] = (job, templates, step + 1)
            else:
                live[place] = live[-1]
                live.pop()


def write_kind(path: Path, name: str) -> None:
    """Write a real log many times, each time with other cluster ids."""
    log = (LOGS / f"{name}.log").read_bytes()
    with path.open("wb") as file:
        for copy in range(KIND_BYTES // len(log)):
            further = 1000 * copy
            file.write(CLUSTER.sub(lambda m, n=further: m[1] + b"%d" % (int(m[2]) + n), log))


def cpu_seconds(work: Callable[[], int]) -> tuple[float, int]:
    """Run once; return the CPU time and the number of events read."""
    before = time.process_time()
    count = work()
    return time.process_time() - before, count


class Pace:
    """The events that a reader has read, and the CPU time it took."""

    def __init__(self) -> None:
        self.events, self.seconds = 0, 0.0

    def run(self, work: Callable[[], int], until: float = 0.0) -> None:
        """Run at least once, and until the total CPU time reaches `until` seconds."""
        while True:
            seconds, count = cpu_seconds(work)
            self.events, self.seconds = self.events + count, self.seconds + seconds
            if self.seconds >= until:
                return

    @property
    def events_per_second(self) -> float:
        """The mean speed so far."""
        return self.events / self.seconds


def by_htcondor(path: Path) -> Callable[[], int]:
    """Return a function that reads the next events with htcondor2 into columns, its fastest way."""
    import htcondor2

    columns: dict[str, list[object]] = {}
    events = htcondor2.JobEventLog(str(path)).events(stop_after=0)

    def read_on() -> int:
        count = 0
        for event in itertools.islice(events, TURN_EVENTS):
            count += 1
            for name, value in event.items():
                columns.setdefault(name, []).append(value)
        return count

    return read_on


def by_columns(path: Path) -> int:
    """Read every field into columns with our reader."""
    clock, state, offset, count = Clock(find_zone("UTC")), ReaderState(), 0, 0
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while offset < size:
            data = os.pread(file.fileno(), BLOCK_BYTES + PADDING, offset)
            block = min(len(data), BLOCK_BYTES)
            final = offset + block >= size
            columns, consumed = read_block(
                data, state, base=offset, clock=clock, final=final, size=block
            )
            read_fields(columns)
            offset += consumed
            count += len(columns)
    return count


def into_store(path: Path) -> int:
    """Gather the log into a new store, as the command does."""
    with tempfile.TemporaryDirectory() as directory, Store(Path(directory) / "s") as store:
        collector = Collector(store, [str(path)], access_point="ap", clock=Clock(find_zone("UTC")))
        collector.read()
        return sum(store.counts_by_type().values())


def race(path: Path, ours: dict[str, Callable[[], int]]) -> dict[str, float]:
    """Read a log with HTCondor's reader and ours; return the events per second of each."""
    paces = {name: Pace() for name in (*ours, "htcondor2")}
    theirs, read_on = paces["htcondor2"], by_htcondor(path)
    done = -1
    while theirs.events > done:
        done = theirs.events
        theirs.run(read_on)
        for name, work in ours.items():
            if paces[name].seconds < theirs.seconds:
                paces[name].run(work, theirs.seconds)
    return {name: pace.events_per_second for name, pace in paces.items()}


def compare(path: Path, rounds: int) -> None:
    """Race the readers and print the ratios."""
    ours: dict[str, Callable[[], int]] = {
        "columns": lambda: by_columns(path),
        "store": lambda: into_store(path),
    }
    turns = [race(path, ours) for _ in range(rounds)]
    for name, target in (("columns", 40), ("store", 15)):
        print(
            json.dumps(
                {
                    "benchmark": f"reader.{name}",
                    "events_per_second": round(median(turn[name] for turn in turns)),
                    "htcondor2_events_per_second": round(median(t["htcondor2"] for t in turns)),
                    "ratio": round(median(turn[name] / turn["htcondor2"] for turn in turns), 1),
                    "target_ratio": target,
                    "log_bytes": path.stat().st_size,
                    "date": time.strftime("%Y-%m-%d"),
                }
            ),
            flush=True,
        )


def compare_command(directory: Path, rounds: int) -> None:
    """Compare the whole `gather` command with HTCondor's reader.

    The command starts, stores the events and computes the hold episodes; HTCondor's reader only
    reads. Each runs in its own process, and all of its CPU time counts. Modules are compiled
    beforehand, as in an installed package.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory / "bytecode")
    log = directory / "command.log"
    write_log(log, COMMAND_EVENTS)
    reading = (
        "import htcondor2, sys\ncolumns = {}\n"
        "for event in htcondor2.JobEventLog(sys.argv[1]).events(stop_after=0):\n"
        "    for name, value in event.items():\n"
        "        columns.setdefault(name, []).append(value)\n"
    )
    theirs = [sys.executable, "-c", reading, str(log)]
    turns = []
    for _ in range(rounds + 1):
        with tempfile.TemporaryDirectory() as store:
            ours = ["condor_advice", "gather", str(log), "--store", f"{store}/store"]
            turns.append((usage([sys.executable, "-m", *ours]), usage(theirs)))
    del turns[0]  # it compiled the modules
    print(
        json.dumps(
            {
                "benchmark": "gather.whole",
                "cpu_seconds": round(median(our.cpu_seconds for our, _ in turns), 2),
                "htcondor2_cpu_seconds": round(median(their.cpu_seconds for _, their in turns), 2),
                "ratio": round(median(t.cpu_seconds / o.cpu_seconds for o, t in turns), 1),
                "target_ratio": 10,
                "peak_mb": max(our.peak_mb for our, _ in turns),
                "log_bytes": log.stat().st_size,
                "date": time.strftime("%Y-%m-%d"),
            }
        ),
        flush=True,
    )


def compare_kinds(directory: Path, text: Path, rounds: int) -> None:
    """Compare our reader on other kinds of logs with HTCondor's reader, and with a text log.

    `ratio` is how many times as fast as HTCondor's reader ours reads every field;
    `time_over_text` is how many times as long an event takes as one of a text log.
    """
    ratios, over_text = {}, {}
    for kind, name in KINDS.items():
        path = directory / f"{kind}.log"
        write_kind(path, name)
        ours: dict[str, Callable[[], int]] = {
            "ours": lambda path=path: by_columns(path),
            "text": lambda: by_columns(text),
        }
        turns = [race(path, ours) for _ in range(rounds)]
        ratios[kind] = round(median(turn["ours"] / turn["htcondor2"] for turn in turns), 1)
        over_text[kind] = round(median(turn["text"] / turn["ours"] for turn in turns), 1)
    print(
        json.dumps(
            {
                "benchmark": "reader.kinds",
                "ratio": ratios,
                "time_over_text": over_text,
                "date": time.strftime("%Y-%m-%d"),
            }
        ),
        flush=True,
    )


def breakdown(path: Path) -> None:
    """Print where the time goes, as shares of the CPU time."""
    import zstandard

    spent = dict.fromkeys(("frame", "fields", "compress", "other"), 0.0)
    clock, state, offset = Clock(find_zone("UTC")), ReaderState(), 0
    compress = zstandard.ZstdCompressor(level=1).compress
    data = path.read_bytes()
    while offset < len(data):
        block = data[offset : offset + BLOCK_BYTES]
        final = offset + len(block) >= len(data)
        marks = [time.process_time()]
        columns, consumed = read_block(block, state, base=offset, clock=clock, final=final)
        marks.append(time.process_time())
        read_fields(columns)
        marks.append(time.process_time())
        compress(columns.data)
        marks.append(time.process_time())
        for name, before, after in zip(spent, marks, marks[1:], strict=False):
            spent[name] += after - before
        offset += consumed
    seconds, _ = cpu_seconds(lambda: into_store(path))
    spent["other"] = max(0.0, seconds - spent["frame"] - spent["compress"])
    whole = spent["frame"] + spent["fields"]
    shares = {
        "columns": {name: round(spent[name] / whole, 2) for name in ("frame", "fields")},
        "store": {
            "frame": round(spent["frame"] / seconds, 2),
            "compress": round(spent["compress"] / seconds, 2),
            "index_and_sqlite": round(spent["other"] / seconds, 2),
        },
    }
    print(
        json.dumps({"benchmark": "reader.shares", **shares, "date": time.strftime("%Y-%m-%d")}),
        flush=True,
    )


def memory(short: Path, long: Path) -> None:
    """Print the peak memory of reading a log into a store, and of `gather`, by log size."""
    reading = (
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, sys.argv[2])\n"
        "from reader import into_store, keep_freed_memory\nkeep_freed_memory()\n"
        "into_store(Path(sys.argv[1]))\n"
    )
    peaks: dict[str, dict[int, int]] = {"reading": {}, "command": {}}
    for log in (short, long):
        size = log.stat().st_size >> 20
        command = [sys.executable, "-c", reading, str(log), str(Path(__file__).parent)]
        peaks["reading"][size] = usage(command).peak_mb
        with tempfile.TemporaryDirectory() as directory:
            command = ["condor_advice", "gather", str(log), "--store", f"{directory}/store"]
            peaks["command"][size] = usage([sys.executable, "-m", *command]).peak_mb
    print(
        json.dumps(
            {
                "benchmark": "reader.memory",
                "peak_mb_by_log_mb": peaks["reading"],
                "target_mb": 200,
                "with_hold_episodes": peaks["command"],
                "date": time.strftime("%Y-%m-%d"),
            }
        ),
        flush=True,
    )


@dataclass(frozen=True, slots=True)
class Usage:
    """The CPU time and memory that a command used."""

    cpu_seconds: float
    peak_mb: int


def usage(command: list[str]) -> Usage:
    """Run a command; return its CPU time and its peak memory."""
    # A process inherits the peak of its parent, so a small process starts the command.
    starter = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(used.ru_utime + used.ru_stime, used.ru_maxrss >> 10)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", starter, *command], stdout=subprocess.PIPE, check=True
    )
    seconds, peak = done.stdout.split()
    return Usage(float(seconds), int(peak))


def main() -> None:
    """Write the log, then compare the readers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--memory", type=int, default=8_600_000, metavar="EVENTS")  # 2 GB; 0: none
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="compare the readers on this log only"
    )
    options = parser.parse_args()
    keep_freed_memory()  # as `gather` does
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if options.log:
        compare(options.log, options.rounds)
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "events.log"
        write_log(path, options.events)
        compare(path, options.rounds)
        compare_command(Path(directory), options.rounds)
        compare_kinds(Path(directory), path, options.rounds)
        breakdown(path)
        if options.memory:
            long = Path(directory) / "long.log"
            write_log(long, options.memory)
            memory(path, long)


if __name__ == "__main__":
    main()
