"""Many holds, many logs, many held jobs: time, memory and size of the store.

    python bench/scale.py                        a tenth of each
    python bench/scale.py --share 1              50,000 jobs with 8 holds each, 100,000 logs,
                                                 50,000 held jobs; some minutes and 1 GB of disk

Every figure is of the real command in a process of its own. Prints one JSON line for each.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

JOBS, HOLDS = 50_000, 8
LOGS = 100_000
POINTS = 400
BEGIN = datetime(2026, 9, 1)
REASONS = (
    (
        13,
        2,
        "Transfer input files failure at access point ap1 while sending files to execution point"
        " slot1_{slot}@ep{point}. Details: 1 total failures: first failure: reading from file"
        " /home/user{user}/run/table_{job}.csv: (errno 2) No such file or directory",
    ),
    (34, 0, "Error from slot1_{slot}@ep{point}: memory usage exceeded request_memory"),
    (26, 102, "The job exceeded allowed execute duration of 0+02:00:00"),
    (6, 0, "Error from slot1_{slot}@ep{point}: Failed to execute '/home/user{user}/run/step':"
     " (errno=8: 'Exec format error')"),
)  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    seconds: float
    peak_mb: float
    status: int


def report(benchmark: str, unit: str, value: float, **more: object) -> None:
    """Print one figure."""
    shown = {"benchmark": f"scale.{benchmark}", "unit": unit, "value": float(f"{value:.4g}")}
    print(json.dumps(shown | more), flush=True)


def run(arguments: list[str], directory: Path, memory_mb: int | None = None) -> Cost:
    """Run condor-advice; `memory_mb` limits its address space."""

    def limit() -> None:
        # Of 100,000 names each costs its bytes and a pointer; the kernel allows for as many as
        # fit into a quarter of the stack.
        resource.setrlimit(resource.RLIMIT_STACK, (64 << 20, 64 << 20))
        if memory_mb is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))

    began = time.monotonic()
    command = [sys.executable, "-m", "condor_advice", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, preexec_fn=limit, cwd=directory
    ) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return Cost(time.monotonic() - began, usage.ru_maxrss / 1024, child.returncode)


def event(kind: int, cluster: int, proc: int, at: datetime, text: str) -> str:
    """Return one event as HTCondor writes it."""
    return f"{kind:03d} ({cluster:03d}.{proc:03d}.000) {at:%Y-%m-%d %H:%M:%S} {text}\n...\n"


def held_jobs(
    jobs: int, holds: int, *, procs: int = 50, released: bool = True, hours: float = 24.0
) -> Iterator[str]:
    """Yield the events of jobs that are all in the queue at once, and held again and again.

    Without `released` each stays on its last hold.
    """
    step = timedelta(hours=hours) / (jobs * (holds + 1))
    at = BEGIN
    for job in range(jobs):
        at += step
        where = f"Job submitted from host: <10.0.0.1:9618?alias=ap1&sock=schedd_{job % 7}>"
        yield event(0, 1 + job // procs, job % procs, at, where)
    for number in range(holds):
        for job in range(jobs):
            at += step
            cluster, proc = 1 + job // procs, job % procs
            point, slot = (job * 7 + number) % POINTS, job % 32
            code, subcode, words = REASONS[(job // procs + number) % len(REASONS)]
            reason = words.format(slot=slot, point=point, user=cluster % 97, job=job)
            host = f"<10.0.1.{point % 250}:9618?alias=ep{point}>"
            yield event(
                1, cluster, proc, at,
                f"Job executing on host: {host}\n\tSlotName: slot1_{slot}@ep{point}",
            )  # fmt: skip
            held = f"Job was held.\n\t{reason}\n\tCode {code} Subcode {subcode}"
            yield event(12, cluster, proc, at + timedelta(seconds=20), held)
            if released or number + 1 < holds:
                freed = "Job was released.\n\tvia condor_release (by user user1)"
                yield event(13, cluster, proc, at + timedelta(seconds=40), freed)


def write_log(path: Path, events: Iterator[str]) -> int:
    """Write a log; return how many events it has."""
    count = 0
    with open(path, "w") as log:
        for text in events:
            log.write(text)
            count += 1
    return count


def bench_holds(directory: Path, share: float) -> None:
    """Gather one log of many jobs that are held again and again."""
    log, store = directory / "EventLog", directory / "holds.sqlite"
    events = write_log(log, held_jobs(int(JOBS * share), HOLDS))
    size = log.stat().st_size
    cost = run(["gather", str(log), "--store", str(store), "--access-point", "ap1"], directory)
    report(
        "gather_peak", "MB", cost.peak_mb, target=400, met=cost.peak_mb <= 400, events=events,
        log_mb=size >> 20, seconds=round(cost.seconds, 1), status=cost.status,
    )  # fmt: skip
    kept = store.stat().st_size
    report(
        "store_size", "ratio to the log", kept / size, target=1.5, met=kept <= 1.5 * size,
        store_mb_per_million_events=round(kept / events, 1),
    )  # fmt: skip


def bench_logs(directory: Path, share: float) -> None:
    """Gather many small logs, twice, and stop in between."""
    logs, store = directory / "logs", directory / "logs.sqlite"
    count = int(LOGS * share)
    for number in range(count):
        sub = logs / f"{number // 1000:03d}"
        if number % 1000 == 0:
            sub.mkdir(parents=True)
        jobs = held_jobs(1, 1, hours=1)
        texts = [text.replace("(001.000", f"({number + 1:03d}.000") for text in jobs]
        (sub / f"job{number}.log").write_text("".join(texts))
    names = log_names(directory)
    arguments = ["gather", "--store", str(store), "--access-point", "ap1", *names]
    first = run(arguments, directory)
    report(
        "many_logs", "s", first.seconds, target=180 * share, met=first.seconds <= 180 * share,
        logs=count, peak_mb=round(first.peak_mb), status=first.status,
    )  # fmt: skip
    second = run(arguments, directory)
    report(
        "many_logs_again", "s", second.seconds, target=10 * share, met=second.seconds <= 10 * share,
        logs=count, peak_mb=round(second.peak_mb), status=second.status,
    )  # fmt: skip


def log_names(directory: Path) -> list[str]:
    """Return the names of the many logs, short enough for one command line."""
    return sorted(str(path.relative_to(directory)) for path in directory.glob("logs/*/*.log"))


def bench_stop(directory: Path, seconds: float) -> None:
    """Send SIGTERM after so many seconds; how long does `gather` take to end?"""
    names = log_names(directory)
    with tempfile.TemporaryDirectory(dir=directory) as fresh:
        arguments = ["gather", "--store", f"{fresh}/store", "--access-point", "ap1", *names]
        command = [sys.executable, "-m", "condor_advice", *arguments]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
            time.sleep(seconds)
            began = time.monotonic()
            child.send_signal(signal.SIGTERM)
            status = child.wait()
        took = time.monotonic() - began
    report("stop", "s", took, target=5, met=took <= 5, after_seconds=seconds, status=status)


def bench_all(directory: Path, share: float) -> None:
    """Advise on many held jobs at once."""
    log, store = directory / "Held", directory / "held.sqlite"
    write_log(log, held_jobs(int(JOBS * share), 1, released=False))
    run(["gather", str(log), "--store", str(store), "--access-point", "ap1"], directory)
    cost = run(["--all", "--store", str(store)], directory)
    report(
        "all_held", "s", cost.seconds, target=3, met=cost.seconds <= 3, target_mb=250,
        peak_mb=round(cost.peak_mb), met_mb=cost.peak_mb <= 250, jobs=int(JOBS * share),
        status=cost.status,
    )  # fmt: skip


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--only", choices=["holds", "logs", "all"])
    parser.add_argument("--stop-after", type=float, action="append", help="seconds; with logs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        os.environ |= {key: f"{name}/{key}" for key in ("XDG_STATE_HOME", "XDG_DATA_HOME")}
        os.environ["CONDOR_CONFIG"] = "/dev/null"
        directory = Path(name)
        if options.only in (None, "holds"):
            bench_holds(directory, options.share)
        if options.only in (None, "all"):
            bench_all(directory, options.share)
        if options.only in (None, "logs"):
            bench_logs(directory, options.share)
            for seconds in options.stop_after or [2.0]:
                bench_stop(directory, seconds)


if __name__ == "__main__":
    main()
