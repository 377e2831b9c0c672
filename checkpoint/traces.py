"""Times between failures: drawn from a distribution, or read from a table of jobs."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import math
import random
from typing import IO, Callable, Iterable, List, Sequence, Tuple


class Trace:
    """Times between failures in units of their mean, so that a cell can set the mean."""

    def __init__(
        self, name: str, draw: Callable[[int, int, random.Random], float], mtbf: float = math.nan
    ) -> None:
        self.name, self._draw, self.mtbf = name, draw, mtbf

    def gap(self, job: int, attempt: int, rng: random.Random) -> float:
        """Return the time to the failure of one run of one job."""
        return self._draw(job, attempt, rng)


def exponential() -> Trace:
    """Return memoryless failures."""
    return Trace("exponential", lambda job, attempt, rng: rng.expovariate(1.0))


def weibull(shape: float = 0.7) -> Trace:
    """Return failures that come in bursts (shape below 1), as on most measured machines."""
    scale = 1.0 / math.gamma(1.0 + 1.0 / shape)
    return Trace(f"weibull-{shape:g}", lambda job, attempt, rng: rng.weibullvariate(scale, shape))


def replayed(name: str, gaps: Sequence[float]) -> Trace:
    """Return recorded times between failures in their order; each job starts at another one."""
    if not gaps:
        raise ValueError(f"{name}: contains no failure, so nothing can be replayed")
    mean = sum(gaps) / len(gaps)
    scaled = [gap / mean for gap in gaps]

    def draw(job: int, attempt: int, rng: random.Random) -> float:
        # A stride prime to most lengths: neighbours in time stay together within a job.
        return scaled[(job * 7919 + attempt) % len(scaled)]

    return Trace(name, draw, mean)


def gaps_between_failures(rows: Iterable[Tuple[float, float, bool]]) -> List[float]:
    """Turn (start, end, failed) of jobs into running time between failures, in time order.

    The running times of the jobs are laid end to end in the order in which the jobs ended;
    a failed job ends a gap. So successful jobs count as time without a failure, and the
    mean is running time divided by failures.
    """
    gaps, running = [], 0.0
    for start, end, failed in sorted(rows, key=lambda row: row[1]):
        running += end - start
        if failed and running > 0.0:
            gaps.append(running)
            running = 0.0
    return gaps


def read_table(path: str) -> List[Tuple[float, float, bool]]:
    """Read jobs from a CSV with start, end, failed, or from a workload log (.swf).

    Either may be compressed (.gz, .xz). Rows whose times are missing are left out.
    """
    with _open(path) as file:
        if ".swf" in path.lower():
            return list(_swf_rows(file))
        return list(_csv_rows(path, file))


def find_trace(name: str) -> Trace:
    """Return a trace by its name: exponential, weibull, weibull:SHAPE, or a table of jobs."""
    law, _, shape = name.partition(":")
    if law == "exponential":
        return exponential()
    if law == "weibull":
        return weibull(float(shape) if shape else 0.7)
    return read_trace(name)


def read_trace(path: str) -> Trace:
    """Read a table of jobs as a trace of failures."""
    return replayed(path.rsplit("/", 1)[-1].split(".")[0], gaps_between_failures(read_table(path)))


def _open(path: str) -> IO[str]:
    if path.endswith(".xz"):
        return io.TextIOWrapper(lzma.open(path), errors="replace")
    if path.endswith(".gz"):
        return io.TextIOWrapper(gzip.open(path), errors="replace")
    return open(path, errors="replace")


def _csv_rows(path: str, file: IO[str]) -> Iterable[Tuple[float, float, bool]]:
    reader = csv.DictReader(file)
    missing = {"start", "end", "failed"}.difference(reader.fieldnames or ())
    if missing:
        raise ValueError(
            f"{path}: no column {', '.join(sorted(missing))}; "
            "a table of jobs has start, end (seconds) and failed (0 or 1)"
        )
    for row in reader:
        try:
            start, end = float(row["start"]), float(row["end"])
        except ValueError:
            continue
        if end >= start:
            yield start, end, row["failed"].strip().lower() in ("1", "true", "yes")


def _swf_rows(file: IO[str]) -> Iterable[Tuple[float, float, bool]]:
    """Read the Standard Workload Format: field 2 submit, 3 wait, 4 run time, 11 status.

    Status 1 is completed and 0 failed; a cancelled job (5) is no failure of the machine, and
    its running time counts as time without a failure.
    """
    for line in file:
        if line.startswith(";") or not line.strip():
            continue
        fields = line.split()
        submit, wait, run = (float(fields[i]) for i in (1, 2, 3))
        if run >= 0.0:
            start = submit + max(0.0, wait)
            yield start, start + run, fields[10] == "0"
