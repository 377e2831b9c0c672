"""The job table that all readers produce: its columns, their units, and when each is known."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]


class JobState(enum.IntEnum):
    """How a job ended, in terms common to HTCondor, SWF and Slurm."""

    UNKNOWN = 0  # still in the queue, or the record does not say
    SUCCEEDED = 1
    FAILED = 2  # nonzero exit code, a signal, or "failed" without details
    CANCELLED = 3  # removed by its owner or an administrator
    TIMEOUT = 4
    OUT_OF_MEMORY = 5
    NODE_FAILED = 6
    PREEMPTED = 7


class Known(enum.IntEnum):
    """The first moment at which a column's value exists."""

    SUBMIT = 0
    START = 1
    END = 2


@dataclass(frozen=True, slots=True)
class Column:
    """What a column means. `text` columns hold codes into the table's vocabulary."""

    known: Known
    unit: str
    meaning: str
    text: bool = False


COLUMNS: Mapping[str, Column] = {
    "submit_time": Column(Known.SUBMIT, "s", "seconds since 1970, UTC"),
    "user": Column(Known.SUBMIT, "", "owner", text=True),
    "group": Column(Known.SUBMIT, "", "accounting group, account or Unix group", text=True),
    "executable": Column(Known.SUBMIT, "", "program", text=True),
    "name": Column(Known.SUBMIT, "", "batch name or job name", text=True),
    "queue": Column(Known.SUBMIT, "", "queue, partition or universe", text=True),
    "cluster": Column(Known.SUBMIT, "", "cluster or array: jobs of one submit", text=True),
    "requested_cpus": Column(Known.SUBMIT, "cores", "requested cores"),
    "requested_seconds": Column(Known.SUBMIT, "s", "requested wall time"),
    "requested_memory_mb": Column(Known.SUBMIT, "MB", "requested memory of the whole job"),
    "requested_disk_mb": Column(Known.SUBMIT, "MB", "requested disk"),
    "preceding_job": Column(Known.SUBMIT, "", "number of the job this one waited for"),
    "think_seconds": Column(Known.SUBMIT, "s", "from the preceding job's end to this submit"),
    "start_time": Column(Known.START, "s", "seconds since 1970, UTC; unknown: never ran"),
    "allocated_cpus": Column(Known.START, "cores", "allocated cores"),
    "execution_point": Column(Known.START, "", "where it ran", text=True),
    "end_time": Column(Known.END, "s", "seconds since 1970, UTC"),
    "state": Column(Known.END, "", "a JobState"),
    "cpu_seconds": Column(Known.END, "s", "CPU time used, per core"),
    "used_memory_mb": Column(Known.END, "MB", "peak memory of the whole job"),
    "used_disk_mb": Column(Known.END, "MB", "peak disk"),
}
TEXT_COLUMNS = tuple(name for name, column in COLUMNS.items() if column.text)
NUMBER_COLUMNS = tuple(name for name, column in COLUMNS.items() if not column.text)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A record that could not be read. It is reported, never dropped silently."""

    path: str
    line: int
    reason: str


class NotAJobTable(AdviceError):
    """The file is not in the format that it was read as."""

    def __init__(self, path: Path | str, wanted: str, problem: str) -> None:
        super().__init__(f"{path}: not {wanted}: {problem}")


class Vocabulary:
    """The strings of one text column, numbered in order of first appearance."""

    __slots__ = ("codes", "names")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: list[str] = []
        self.codes: dict[str, int] = {}
        for name in names:
            self.code(name)

    def code(self, name: str) -> int:
        """Return the number of `name`, adding it if new; the empty string is -1, unknown."""
        if not name:
            return -1
        code = self.codes.get(name)
        if code is None:
            code = self.codes[name] = len(self.names)
            self.names.append(name)
        return code


@dataclass(frozen=True, slots=True)
class UsageSamples:
    """Memory measured while jobs ran: the job's row in its table, the time, the memory."""

    row: npt.NDArray[np.int64]
    time: Floats
    memory_mb: Floats

    def keep(self, index: npt.NDArray[np.generic]) -> UsageSamples:
        """Return the samples at these indices, or where a mask is true."""
        return UsageSamples(self.row[index], self.time[index], self.memory_mb[index])

    def of_rows(self, rows: npt.NDArray[np.int64], length: int) -> UsageSamples:
        """Return the samples of these rows of a table of `length` jobs, renumbered."""
        new = np.full(length, -1, dtype=np.int64)
        new[rows] = np.arange(len(rows))
        kept = UsageSamples(new[self.row], self.time, self.memory_mb)
        kept = kept.keep(kept.row >= 0)
        return kept.keep(np.lexsort((kept.time, kept.row)))


@dataclass(frozen=True, slots=True)
class JobTable:
    """Jobs as columns. Numbers are float64, NaN if unknown; text is int32 codes, -1 if unknown.

    Tables of one reader share their vocabularies, so blocks of one file can be concatenated
    without comparing strings. `job` is each job's name in its own log. It is not in a
    vocabulary, which would grow with the number of jobs.
    """

    job: npt.NDArray[np.str_]
    numbers: Mapping[str, Floats]
    text: Mapping[str, Codes]
    vocabularies: Mapping[str, Vocabulary]
    bad_lines: tuple[BadLine, ...] = ()
    header: Mapping[str, str] = field(default_factory=dict)
    samples: UsageSamples | None = None

    def __len__(self) -> int:
        return len(self.numbers["submit_time"])

    def __getitem__(self, column: str) -> Floats:
        return self.numbers[column]

    @property
    def state(self) -> npt.NDArray[np.int8]:
        """How each job ended, as JobState numbers."""
        return np.nan_to_num(self.numbers["state"]).astype(np.int8)

    @property
    def run_seconds(self) -> Floats:
        """Time from start to end; unknown for jobs that never ran or have not ended."""
        return self.numbers["end_time"] - self.numbers["start_time"]

    def strings(self, column: str) -> list[str]:
        """Return the text column as strings, empty where unknown."""
        names = [*self.vocabularies[column].names, ""]
        return [names[code] for code in self.text[column]]

    def take(self, rows: npt.ArrayLike) -> JobTable:
        """Return these rows (indices or a mask), in this order."""
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        samples = self.samples and self.samples.of_rows(rows, len(self))
        return JobTable(
            self.job[rows],
            {name: values[rows] for name, values in self.numbers.items()},
            {name: codes[rows] for name, codes in self.text.items()},
            self.vocabularies,
            self.bad_lines,
            self.header,
            samples,
        )

    def in_submit_order(self) -> JobTable:
        """Return the table sorted by submit time, without jobs whose submit time is unknown."""
        times = self["submit_time"]
        if np.all(times[1:] >= times[:-1]):
            return self
        order = np.argsort(times, kind="stable")
        return self.take(order[: np.count_nonzero(np.isfinite(times))])

    def known_at(self, moment: float) -> JobTable:
        """Return only what was known at `moment`.

        Jobs submitted later are left out. A job that has not started or ended by then has no
        start or end, nor any value known only from then on.
        """
        table = self.take(self["submit_time"] < moment)
        started, ended = table["start_time"] < moment, table["end_time"] < moment
        numbers, text = dict(table.numbers), dict(table.text)
        for name, column in COLUMNS.items():
            if column.known is Known.SUBMIT:
                continue
            seen = started if column.known is Known.START else ended
            if column.text:
                text[name] = np.where(seen, text[name], -1).astype(np.int32)
            else:
                numbers[name] = np.where(seen, numbers[name], np.nan)
        samples = table.samples and table.samples.keep(table.samples.time < moment)
        return JobTable(
            table.job, numbers, text, self.vocabularies, self.bad_lines, self.header, samples
        )


class TableBuilder:
    """Builds a table record by record, for formats that cannot be read by columns."""

    def __init__(self, vocabularies: Mapping[str, Vocabulary] | None = None) -> None:
        self.vocabularies = dict(vocabularies or new_vocabularies())
        self.bad_lines: list[BadLine] = []
        self._jobs: list[str] = []
        self._numbers: dict[str, list[float]] = {name: [] for name in NUMBER_COLUMNS}
        self._text: dict[str, list[int]] = {name: [] for name in TEXT_COLUMNS}

    def add(self, job: str, record: Mapping[str, float | str | None]) -> None:
        """Add one job; columns that the record lacks are unknown."""
        self._jobs.append(job)
        for name, numbers in self._numbers.items():
            value = record.get(name)
            numbers.append(np.nan if value is None else float(value))
        for name, codes in self._text.items():
            value = record.get(name)
            codes.append(-1 if value is None else self.vocabularies[name].code(str(value)))

    def table(self, header: Mapping[str, str] | None = None) -> JobTable:
        """Return the jobs added so far."""
        return JobTable(
            np.array(self._jobs, dtype=np.str_),
            {name: np.array(values, dtype=np.float64) for name, values in self._numbers.items()},
            {name: np.array(codes, dtype=np.int32) for name, codes in self._text.items()},
            self.vocabularies,
            tuple(self.bad_lines),
            header or {},
        )


def new_vocabularies() -> dict[str, Vocabulary]:
    """Return one empty vocabulary for each text column."""
    return {name: Vocabulary() for name in TEXT_COLUMNS}


def concatenate(tables: Sequence[JobTable]) -> JobTable:
    """Return the rows of all tables as one table with common vocabularies."""
    if not tables:
        return TableBuilder().table()
    shared = tables[0].vocabularies
    if any(table.vocabularies is not shared for table in tables):
        shared = new_vocabularies()
        tables = [_with_vocabularies(table, shared) for table in tables]
    first_rows = np.cumsum([0, *(len(table) for table in tables)])
    sampled = [
        UsageSamples(table.samples.row + first, table.samples.time, table.samples.memory_mb)
        for table, first in zip(tables, first_rows, strict=False)
        if table.samples is not None
    ]
    return JobTable(
        np.concatenate([table.job for table in tables]),
        {name: np.concatenate([table[name] for table in tables]) for name in NUMBER_COLUMNS},
        {name: np.concatenate([table.text[name] for table in tables]) for name in TEXT_COLUMNS},
        shared,
        tuple(bad for table in tables for bad in table.bad_lines),
        tables[0].header,
        UsageSamples(
            *(
                np.concatenate([getattr(samples, name) for samples in sampled])
                for name in ("row", "time", "memory_mb")
            )
        )
        if sampled
        else None,
    )


def blocks(table: JobTable, size: int) -> Iterator[JobTable]:
    """Cut a table into consecutive blocks of at most `size` jobs."""
    for start in range(0, len(table), size):
        yield table.take(np.arange(start, min(start + size, len(table))))


def _with_vocabularies(table: JobTable, shared: Mapping[str, Vocabulary]) -> JobTable:
    text: dict[str, Codes] = {}
    for name in TEXT_COLUMNS:
        new_codes = [shared[name].code(string) for string in table.vocabularies[name].names]
        text[name] = np.array([*new_codes, -1], dtype=np.int32)[table.text[name]]
    return JobTable(
        table.job, table.numbers, text, shared, table.bad_lines, table.header, table.samples
    )
