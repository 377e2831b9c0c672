"""Read the Standard Workload Format of the Parallel Workloads Archive: 18 numbers per job."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from condor_advice.gather.workloads.files import open_text
from condor_advice.gather.workloads.table import (
    NUMBER_COLUMNS,
    TEXT_COLUMNS,
    BadLine,
    Codes,
    Floats,
    JobState,
    JobTable,
    NotAJobTable,
    Vocabulary,
    concatenate,
    new_vocabularies,
)

FIELDS = (
    "job",
    "submit",
    "wait",
    "run",
    "cpus",
    "cpu_seconds",
    "memory_kb",
    "requested_cpus",
    "requested_seconds",
    "requested_memory_kb",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding_job",
    "think_seconds",
)
# Statuses 2, 3 and 4 describe parts of jobs that were swapped out, not whole jobs.
SWF_STATES = {0: JobState.FAILED, 1: JobState.SUCCEEDED, 5: JobState.CANCELLED}
PARTIAL_STATUSES = (2, 3, 4)
LINES_PER_BLOCK = 50_000


def read_swf(path: Path | str) -> JobTable:
    """Read a whole SWF file; it may be compressed (.gz or .xz)."""
    return concatenate(list(swf_blocks(path)))


def swf_blocks(path: Path | str, lines_per_block: int = LINES_PER_BLOCK) -> Iterator[JobTable]:
    """Read an SWF file block by block, so that a log of any length fits in memory.

    Times become seconds since 1970 using the header's UnixStartTime; without it they count from
    the log's own start. A job without a run time never started, and ended when its wait did.
    """
    header: dict[str, str] = {}
    vocabularies = new_vocabularies()
    any_block = False
    with open_text(path) as lines:
        numbered = enumerate(lines, start=1)
        while block := list(itertools.islice(numbered, lines_per_block)):
            records, numbers, bad = _parse(str(path), block, header)
            if not any_block and bad and not len(records):
                raise NotAJobTable(path, "an SWF file", f"line {bad[0].line}: {bad[0].reason}")
            any_block = True
            yield _table(str(path), records, numbers, bad, header, vocabularies)
    if not any_block:
        raise NotAJobTable(path, "an SWF file", "it is empty")


def _parse(
    path: str,
    block: list[tuple[int, str]],
    header: dict[str, str],
) -> tuple[Floats, list[int], list[BadLine]]:
    """Separate headers and bad lines; return the records as an array, and their line numbers."""
    lines: list[str] = []
    numbers: list[int] = []
    for number, line in block:
        line = line.strip()
        if line.startswith(";"):
            key, colon, value = line.lstrip("; ").partition(":")
            if colon and key and key not in header:
                header[key.strip()] = value.strip()
        elif line:
            lines.append(line)
            numbers.append(number)
    if not lines:
        return np.empty((0, len(FIELDS))), [], []
    try:
        records = np.loadtxt(lines, dtype=np.float64, ndmin=2, comments=None)
        if records.shape[1] == len(FIELDS):
            return records, numbers, []
    except ValueError:
        pass  # some line is bad: parse them one by one to find it
    good: list[list[float]] = []
    good_numbers: list[int] = []
    bad: list[BadLine] = []
    for number, line in zip(numbers, lines, strict=True):
        words = line.split()
        try:
            if len(words) != len(FIELDS):
                raise ValueError(f"{len(words)} fields instead of {len(FIELDS)}")
            good.append([float(word) for word in words])
            good_numbers.append(number)
        except ValueError as error:
            bad.append(BadLine(path, number, str(error)))
    return np.array(good).reshape(-1, len(FIELDS)), good_numbers, bad


def _table(
    path: str,
    records: Floats,
    line_numbers: list[int],
    bad: list[BadLine],
    header: Mapping[str, str],
    vocabularies: dict[str, Vocabulary],
) -> JobTable:
    status = records[:, FIELDS.index("status")]
    whole = ~np.isin(status, PARTIAL_STATUSES)
    bad += [
        BadLine(path, line_numbers[row], "part of a job, not a whole job (status 2, 3 or 4)")
        for row in np.flatnonzero(~whole)
    ]
    records = records[whole]
    raw = {name: records[:, index] for index, name in enumerate(FIELDS)}
    known = {name: np.where(values < 0, np.nan, values) for name, values in raw.items()}

    submit = raw["submit"] + _unix_start(header)
    wait_end = submit + np.nan_to_num(known["wait"])
    started = np.isfinite(known["run"])
    states = np.full(len(records), float(JobState.UNKNOWN))
    for code, state in SWF_STATES.items():
        states[raw["status"] == code] = state
    cpus_for_memory = np.where(
        np.isfinite(known["requested_cpus"]), known["requested_cpus"], known["cpus"]
    )
    numbers = {
        "submit_time": submit,
        "start_time": np.where(started, wait_end, np.nan),
        "end_time": np.where(started, wait_end + np.nan_to_num(known["run"]), wait_end),
        "state": states,
        "requested_cpus": known["requested_cpus"],
        "requested_seconds": known["requested_seconds"],
        # SWF counts memory in kilobytes per processor; the table in megabytes per job.
        "requested_memory_mb": known["requested_memory_kb"] * cpus_for_memory / 1024,
        "used_memory_mb": known["memory_kb"] * known["cpus"] / 1024,
        "allocated_cpus": known["cpus"],
        "cpu_seconds": known["cpu_seconds"],
        "preceding_job": known["preceding_job"],
        "think_seconds": known["think_seconds"],
    }
    text = {
        "user": raw["user"],
        "group": raw["group"],
        "executable": raw["executable"],
        "queue": raw["queue"],
        "execution_point": raw["partition"],
    }
    empty = np.full(len(records), np.nan)
    return JobTable(
        raw["job"].astype(np.int64).astype(np.str_),
        {name: numbers.get(name, empty) for name in NUMBER_COLUMNS},
        {name: _codes(text.get(name), len(records), vocabularies[name]) for name in TEXT_COLUMNS},
        vocabularies,
        tuple(bad),
        header,
    )


def _codes(ids: Floats | None, length: int, vocabulary: Vocabulary) -> Codes:
    if ids is None:
        return np.full(length, -1, dtype=np.int32)
    distinct, inverse = np.unique(ids, return_inverse=True)
    codes = [vocabulary.code(str(int(value)) if value >= 0 else "") for value in distinct]
    return np.array(codes, dtype=np.int32)[inverse]


def _unix_start(header: Mapping[str, str]) -> float:
    words = header.get("UnixStartTime", "0").split()
    try:
        return float(words[0]) if words else 0.0
    except ValueError:
        return 0.0
