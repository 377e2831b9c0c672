"""Turn a job table into one dataset per horizon: what is known then, and the outcome.

Horizons: `submit` (before the job enters the queue), `start`, `two_minutes` after the start,
`running` (at growing ages), and `post_mortem`, which knows how the job ended. The last exists only
for comparison with published figures; it is not a prediction and cannot be used as one.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import UsageError
from condor_advice.gather.workloads.table import JobState, JobTable, UsageSamples, blocks
from condor_advice.preprocess.jobs.history import (
    AGE_FEATURES,
    ASK_AT_START,
    ASK_AT_SUBMIT,
    ASK_LATER,
    LEVELS_KNOWN_AT_START,
    WAITING_FEATURES,
    Events,
    Facts,
    History,
    Questions,
    level_keys,
    questions_of,
    stream,
    usable_levels,
)

Floats = npt.NDArray[np.float64]
Features = npt.NDArray[np.float32]


class Horizon(enum.StrEnum):
    """The moments at which a failure can be predicted."""

    SUBMIT = "submit"
    START = "start"
    TWO_MINUTES = "two_minutes"
    RUNNING = "running"
    POST_MORTEM = "post_mortem"


TWO_MINUTES_SECONDS = 120.0
RUNNING_AGES_SECONDS = tuple(600.0 * 2.0**step for step in range(10))  # 10 min to 3.5 days
TEXT_BUCKETS = 16
QUEUE_BUCKETS = 64
JOBS_PER_BLOCK = 50_000

SUBMIT_COLUMNS = (
    "log_cpus",
    "log_requested_seconds",
    "log_requested_memory",
    "log_requested_disk",
    "log_core_seconds",
    "queue_bucket",
    *(f"text_{bucket}" for bucket in range(TEXT_BUCKETS)),
)
START_COLUMNS = ("allocated_over_requested",)
STATIC_COLUMNS = (*SUBMIT_COLUMNS, *START_COLUMNS)
SAMPLE_COLUMNS = ("sample.log_memory", "sample.memory_over_requested", "sample.log_age")
POST_MORTEM_LEVELS = ("user", "user_shape", "signature")
POST_MORTEM_COLUMNS = (
    "log_wait",
    "log_run",
    "run_over_requested",
    "run_beyond_requested",
    "log_cpu",
    "cpu_over_run",
    "allocated_cpus",
    "log_used_memory",
    "used_over_requested_memory",
)


@dataclass(frozen=True, slots=True)
class Labels:
    """Which states count as failed and which as passed; the others have no label.

    By default a cancelled job is neither: its owner removed it, for unknown reasons.
    """

    failed: frozenset[JobState] = frozenset(
        {JobState.FAILED, JobState.TIMEOUT, JobState.OUT_OF_MEMORY, JobState.NODE_FAILED}
    )
    passed: frozenset[JobState] = frozenset({JobState.SUCCEEDED})

    def of(self, table: JobTable) -> Floats:
        """Return 1 for failed, 0 for passed, NaN for neither."""
        state = table.state
        label = np.full(len(table), np.nan)
        label[np.isin(state, [int(passed) for passed in self.passed])] = 0.0
        label[np.isin(state, [int(failed) for failed in self.failed])] = 1.0
        label[~np.isfinite(table["end_time"])] = np.nan
        return label


@dataclass(frozen=True, slots=True)
class JobDataset:
    """Questions at one horizon, with features and, where known, outcomes."""

    horizon: Horizon
    names: tuple[str, ...]
    features: Features  # axes: (question, feature)
    label: Floats  # 1 failed, 0 passed, NaN neither
    row: npt.NDArray[np.int64]  # of the job in the table
    asked: Floats  # moment of the question
    submit: Floats
    end: Floats  # when the outcome became known; NaN: not yet

    def __len__(self) -> int:
        return len(self.row)

    def take(self, index: npt.NDArray[np.generic]) -> JobDataset:
        """Return these questions."""
        return JobDataset(
            self.horizon,
            self.names,
            self.features[index],
            self.label[index],
            self.row[index],
            self.asked[index],
            self.submit[index],
            self.end[index],
        )

    def column(self, name: str) -> Features:
        """Return one feature."""
        return self.features[:, self.names.index(name)]


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """A moment between past and future.

    The past are the jobs that have ended by then, which a model can learn from. The future are
    the jobs submitted from then on. Jobs that span the moment are in neither.
    """

    moment: float

    @classmethod
    def at_share(cls, table: JobTable, share: float) -> TimeSplit:
        """Split so that this share of the jobs was submitted before."""
        if not 0.0 < share < 1.0:
            raise UsageError(f"--split {share}: give a share between 0 and 1, such as 0.6")
        times = np.sort(table["submit_time"])
        return cls(float(times[int(share * len(times))]))

    def past(self, data: JobDataset) -> npt.NDArray[np.bool_]:
        """Return which questions a model trained at the moment can learn from."""
        return np.isfinite(data.label) & (data.end < self.moment)

    def future(self, data: JobDataset) -> npt.NDArray[np.bool_]:
        """Return which questions are about jobs submitted later."""
        return np.isfinite(data.label) & (data.submit >= self.moment)


@dataclass(slots=True)
class JobFeatures:
    """How jobs become features: fixed at training and stored with the model."""

    levels: tuple[str, ...]
    labels: Labels = field(default_factory=Labels)
    cpus_from_allocation: bool = False

    @classmethod
    def for_table(cls, table: JobTable, labels: Labels | None = None) -> JobFeatures:
        """Choose the levels for which the table has columns.

        Some logs of rigid parallel jobs have only allocated processors; only there does the
        allocation stand for the request. Elsewhere a missing allocation reveals that the job
        never ran, so the allocation is not used.
        """
        return cls(
            usable_levels(table),
            labels or Labels(),
            not np.any(np.isfinite(table["requested_cpus"])),
        )

    def names(self, horizon: Horizon) -> tuple[str, ...]:
        """Return the names of a horizon's features."""
        history = History(self.levels).names
        return tuple(
            name
            for name, known in zip(
                (*history, *STATIC_COLUMNS, *_MOMENT_COLUMNS), self._known(horizon), strict=True
            )
            if known
        )

    def datasets(
        self, table: JobTable, horizons: Sequence[Horizon], history: History | None = None
    ) -> dict[Horizon, JobDataset]:
        """Return one dataset per horizon, in submit order."""
        table = table.in_submit_order()
        asked: list[Horizon] = [
            horizon for horizon in horizons if horizon is not Horizon.POST_MORTEM
        ]
        if Horizon.POST_MORTEM in horizons and Horizon.SUBMIT not in asked:
            asked.append(Horizon.SUBMIT)
        whole = {
            horizon: _Filling(
                horizon,
                self.names(horizon),
                sum(len(questions.rows) for questions in _questions(table, [horizon])),
            )
            for horizon in asked
        }
        for part in self.stream(blocks(table, JOBS_PER_BLOCK), asked, history):
            whole[part.horizon].add(part)
        labels, ends = self.labels.of(table), table["end_time"]
        datasets: dict[Horizon, JobDataset] = {}
        for horizon in asked:
            data = whole[horizon].data
            if table.samples is not None and horizon in (Horizon.TWO_MINUTES, Horizon.RUNNING):
                data = _with_samples(data, table, table.samples)
            datasets[horizon] = JobDataset(
                horizon,
                data.names,
                data.features,
                labels[data.row],
                data.row,
                data.asked,
                data.submit,
                ends[data.row],
            )
        if Horizon.POST_MORTEM in horizons:
            datasets[Horizon.POST_MORTEM] = _post_mortem(table, datasets[Horizon.SUBMIT], self)
        return {horizon: datasets[horizon] for horizon in horizons}

    def stream(
        self,
        tables: Iterable[JobTable],
        horizons: Sequence[Horizon],
        history: History | None = None,
    ) -> Iterator[JobDataset]:
        """Yield features block by block, in memory that does not grow with the log.

        Labels are NaN: no outcome is known when its question is asked.
        """
        history = history or History(self.levels)
        known = {horizon: self._known(horizon) for horizon in horizons}
        names = {horizon: self.names(horizon) for horizon in horizons}
        pairs = ((self.facts(table), _questions(table, horizons)) for table in tables)
        for events, answers in stream(pairs, history):
            values = _columns(events, answers)
            for horizon in horizons:
                rows = np.flatnonzero(_asked_at(events, horizon))
                if not len(rows):
                    continue
                unknown = np.full(len(rows), np.nan)
                mine = values[known[horizon]]
                yield JobDataset(
                    horizon,
                    names[horizon],
                    (mine if len(rows) == len(events) else mine[:, rows]).T,
                    unknown,
                    events.row[rows],
                    events.time[rows],
                    events.facts.submit[events.job[rows]],
                    unknown,
                )

    def at_submit(self, table: JobTable, history: History, now: float) -> JobDataset:
        """Return the features of jobs about to be submitted, without changing the history."""
        rows = np.arange(len(table))
        asked = questions_of(
            self.facts(table), [Questions(rows, np.full(len(table), now), ASK_AT_SUBMIT)]
        )
        known = self._known(Horizon.SUBMIT)
        values = _columns(asked, history.answer(asked))
        unknown = np.full(len(rows), np.nan)
        return JobDataset(
            Horizon.SUBMIT,
            self.names(Horizon.SUBMIT),
            values[known].T,
            unknown,
            asked.row,
            asked.time,
            asked.facts.submit[asked.job],
            unknown,
        )

    def facts(self, table: JobTable) -> Facts:
        """Return the columns of these jobs that the history needs."""
        cpus = table["allocated_cpus"] if self.cpus_from_allocation else table["requested_cpus"]
        return Facts(
            level_keys(table, cpus, self.levels),
            table["submit_time"],
            table["start_time"],
            table["end_time"],
            self.labels.of(table),
            cpus,
            table["requested_seconds"],
            _static(table, cpus),
        )

    def _known(self, horizon: Horizon) -> npt.NDArray[np.bool_]:
        """Return which of all columns exist at this horizon."""
        late = (
            ()
            if horizon is not Horizon.SUBMIT
            else (*LEVELS_KNOWN_AT_START, *START_COLUMNS, "log_wait")
        )
        waits = WAITING_FEATURES if horizon is Horizon.SUBMIT else ()
        ages = ("log_age", "age_over_requested", *AGE_FEATURES)
        asks_age = horizon in (Horizon.TWO_MINUTES, Horizon.RUNNING)
        columns = (*History(self.levels).names, *STATIC_COLUMNS, *_MOMENT_COLUMNS)
        return np.array(
            [
                not (
                    name in late
                    or name.partition(".")[0] in late
                    or name.rpartition(".")[2] in waits
                    or (not asks_age and name.rpartition(".")[2] in ages)
                )
                for name in columns
            ]
        )


_MOMENT_COLUMNS = ("hour", "weekday", "log_wait", "log_age", "age_over_requested")


def _columns(events: Events, answers: Features) -> Features:
    """Return one row per feature, one column per question: history, request, moment."""
    return np.concatenate(
        [answers.T, events.facts.static[events.job].T, _moment_columns(events)], axis=0
    )


def _moment_columns(events: Events) -> Features:
    """Return the features of the moment itself, one row per feature."""
    facts, job = events.facts, events.job
    submit, start, requested = facts.submit[job], facts.start[job], facts.requested_seconds[job]
    hours = events.time / 3600.0
    later = events.kind == ASK_LATER
    age = np.where(later, events.time - start, np.nan)
    wait = np.where(events.kind == ASK_AT_SUBMIT, np.nan, start - submit)
    with np.errstate(invalid="ignore", divide="ignore"):
        over = np.where(requested > 0, age / requested, np.nan)
    return np.stack(
        [hours % 24.0, hours // 24.0 % 7.0, np.log1p(np.maximum(wait, 0.0)), np.log1p(age), over]
    ).astype(np.float32)


def _questions(table: JobTable, horizons: Sequence[Horizon]) -> list[Questions]:
    """Ask at each horizon about the jobs that have not ended by then.

    Whether a job has ended is known at that moment; jobs without a known end count as running.
    """
    rows = np.arange(len(table))
    start, end = np.floor(table["start_time"]), np.floor(table["end_time"])
    asked: list[Questions] = []

    def ask_at_age(age: float) -> None:
        alive = np.isfinite(start) & ~(end <= start + age)
        asked.append(Questions(rows[alive], start[alive] + age, ASK_LATER))

    for horizon in horizons:
        if horizon is Horizon.SUBMIT:
            asked.append(Questions(rows, table["submit_time"], ASK_AT_SUBMIT))
        elif horizon is Horizon.START:
            began = np.isfinite(start)
            asked.append(Questions(rows[began], start[began], ASK_AT_START))
        elif horizon is Horizon.TWO_MINUTES:
            ask_at_age(TWO_MINUTES_SECONDS)
        elif horizon is Horizon.RUNNING:
            for age in RUNNING_AGES_SECONDS:
                ask_at_age(age)
    return asked


def _asked_at(events: Events, horizon: Horizon) -> npt.NDArray[np.bool_]:
    early = events.time - events.facts.start[events.job] <= TWO_MINUTES_SECONDS
    if horizon is Horizon.SUBMIT:
        chosen = events.kind == ASK_AT_SUBMIT
    elif horizon is Horizon.START:
        chosen = events.kind == ASK_AT_START
    else:
        chosen = (events.kind == ASK_LATER) & (early == (horizon is Horizon.TWO_MINUTES))
    return np.asarray(chosen)


def _static(table: JobTable, cpus: Floats) -> Features:
    """Return the columns that do not change while the job waits and runs."""
    with np.errstate(invalid="ignore", divide="ignore"):
        allocated = table["allocated_cpus"] / cpus
    columns = [
        np.log1p(cpus),
        np.log1p(table["requested_seconds"]),
        np.log1p(table["requested_memory_mb"]),
        np.log1p(table["requested_disk_mb"]),
        np.log1p(cpus * table["requested_seconds"]),
        _queue_bucket(table),
    ]
    # In some logs a missing allocation reveals how the job ended, so give it the usual value.
    return np.concatenate(
        [
            np.stack(columns, axis=1),
            _hashed_text(table),
            np.nan_to_num(allocated, nan=1.0)[:, None],
        ],
        axis=1,
    ).astype(np.float32)


def _queue_bucket(table: JobTable) -> Floats:
    """Return a small number for each queue; there are few, and they identify nobody."""
    names = table.vocabularies["queue"].names
    buckets = [_bucket(name, QUEUE_BUCKETS) for name in names]
    return np.array([*buckets, np.nan])[table.text["queue"]]


@lru_cache(maxsize=1 << 16)
def _bucket(word: str, buckets: int) -> int:
    """Return the bucket of a word, the same in every process."""
    digest = hashlib.blake2b(word.encode(), digest_size=2).digest()
    return int.from_bytes(digest, "little") % buckets


def _hashed_text(table: JobTable) -> Features:
    """Count the words of program paths and job names in a few hashed buckets.

    A name that is only a number is an id and is not used.
    """
    counts = np.zeros((len(table), TEXT_BUCKETS), dtype=np.float32)
    for column in ("executable", "name"):
        names = table.vocabularies[column].names
        words = np.zeros((len(names) + 1, TEXT_BUCKETS), dtype=np.float32)
        for code, name in enumerate(names):
            for word in re.findall(r"[a-z]+", name.lower()):
                words[code, _bucket(word, TEXT_BUCKETS)] += 1.0
        counts += words[table.text[column]]
    return counts


def _post_mortem(table: JobTable, submit: JobDataset, maker: JobFeatures) -> JobDataset:
    """Add what is known only after the end, for comparison with published figures.

    Of the history only the user's levels are kept: with the end known, the others are noise.
    """
    kept = [
        column
        for column, name in enumerate(submit.names)
        if "." not in name or name.partition(".")[0] in POST_MORTEM_LEVELS
    ]
    job = table.take(submit.row)
    run = job.run_seconds
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = np.stack(
            [
                np.log1p(job["start_time"] - job["submit_time"]),
                np.log1p(run),
                run / job["requested_seconds"],
                np.clip(run - job["requested_seconds"], -900.0, 900.0),
                np.log1p(job["cpu_seconds"]),
                job["cpu_seconds"] / run,
                job["allocated_cpus"],
                np.log1p(job["used_memory_mb"]),
                job["used_memory_mb"] / job["requested_memory_mb"],
            ],
            axis=1,
        )
    columns[~np.isfinite(columns)] = np.nan
    return JobDataset(
        Horizon.POST_MORTEM,
        (
            *(submit.names[column] for column in kept),
            *(f"post_mortem.{name}" for name in POST_MORTEM_COLUMNS),
        ),
        np.concatenate([submit.features[:, kept], columns.astype(np.float32)], axis=1),
        submit.label,
        submit.row,
        submit.asked,
        submit.submit,
        submit.end,
    )


def _with_samples(data: JobDataset, table: JobTable, samples: UsageSamples) -> JobDataset:
    """Add the last usage sample of each job before its question."""
    # Samples are sorted by job and time, and so is this number, used to find the last before.
    span = 1.0 + float(np.max(np.r_[samples.time, data.asked], initial=0.0))
    order = samples.row * span + samples.time
    before = np.searchsorted(order, data.row * span + data.asked, side="left") - 1
    last = np.maximum(before, 0)
    known = (before >= 0) & (len(samples.row) > 0)
    if np.any(known):
        known &= samples.row[last] == data.row
    memory = np.full(len(data), np.nan)
    age = np.full(len(data), np.nan)
    memory[known] = samples.memory_mb[last[known]]
    age[known] = data.asked[known] - samples.time[last[known]]
    with np.errstate(invalid="ignore", divide="ignore"):
        over = memory / table["requested_memory_mb"][data.row]
    columns = np.stack([np.log1p(memory), over, np.log1p(age)], axis=1).astype(np.float32)
    return replace(
        data,
        names=(*data.names, *SAMPLE_COLUMNS),
        features=np.concatenate([data.features, columns], axis=1),
    )


class _Filling:
    """A dataset of known length that is filled part by part, each copied once."""

    def __init__(self, horizon: Horizon, names: tuple[str, ...], length: int) -> None:
        self.data = JobDataset(
            horizon,
            names,
            np.empty((length, len(names)), dtype=np.float32),
            np.empty(length),
            np.empty(length, dtype=np.int64),
            np.empty(length),
            np.empty(length),
            np.empty(length),
        )
        self._filled = 0

    def add(self, part: JobDataset) -> None:
        place = slice(self._filled, self._filled + len(part))
        for name in ("label", "row", "asked", "submit", "end"):
            getattr(self.data, name)[place] = getattr(part, name)
        features = self.data.features[place]
        # Parts are stored by feature; transposing a few rows at a time stays in the cache.
        for begin in range(0, len(part), 128):
            features[begin : begin + 128] = part.features[begin : begin + 128]
        self._filled = place.stop
