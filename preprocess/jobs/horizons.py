"""A job table to one dataset per horizon: what is known at that moment, and the outcome.

Horizons: `submit` (before the job enters the queue), `start`, `two_minutes` after the start,
`running` (at growing ages), and `post_mortem`, which knows how the job ended up and exists only
to compare with published figures. It is no prediction and is refused as one.
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
    """The moments at which a job's failure can be asked for."""

    SUBMIT = "submit"
    START = "start"
    TWO_MINUTES = "two_minutes"
    RUNNING = "running"
    POST_MORTEM = "post_mortem"


PREDICTIVE = (Horizon.SUBMIT, Horizon.START, Horizon.TWO_MINUTES, Horizon.RUNNING)
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
    """Which ends count as failed and which as passed; the others have no label.

    By default a cancelled job is neither: its owner took it away, for reasons of their own.
    """

    failed: frozenset[JobState] = frozenset(
        {JobState.FAILED, JobState.TIMEOUT, JobState.OUT_OF_MEMORY, JobState.NODE_FAILED}
    )
    passed: frozenset[JobState] = frozenset({JobState.SUCCEEDED})

    def of(self, table: JobTable) -> Floats:
        """Return 1 for failed, 0 for passed, NaN for neither."""
        state = table.state
        found = np.full(len(table), np.nan)
        found[np.isin(state, [int(one) for one in self.passed])] = 0.0
        found[np.isin(state, [int(one) for one in self.failed])] = 1.0
        found[~np.isfinite(table["end_time"])] = np.nan
        return found


@dataclass(frozen=True, slots=True)
class JobDataset:
    """Questions of one horizon with their features and, where known, outcomes."""

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
    """A moment that parts the past from the future.

    The past is what an observer at that moment could learn from: jobs that had ended. The
    future are the jobs submitted from then on. Jobs that straddle the moment are in neither.
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
        """Return which questions an observer at the moment could learn from."""
        return np.isfinite(data.label) & (data.end < self.moment)

    def future(self, data: JobDataset) -> npt.NDArray[np.bool_]:
        """Return which questions were asked about jobs submitted later."""
        return np.isfinite(data.label) & (data.submit >= self.moment)


@dataclass(slots=True)
class JobFeatures:
    """How jobs become features: made at training, kept with the model, used again to predict."""

    levels: tuple[str, ...]
    labels: Labels = field(default_factory=Labels)
    cpus_from_allocation: bool = False

    @classmethod
    def for_table(cls, table: JobTable, labels: Labels | None = None) -> JobFeatures:
        """Choose levels by what the table knows.

        Some logs of rigid parallel jobs give only the processors allocated; there, and only
        there, these stand for the request. Elsewhere a missing allocation tells that the job
        never ran, and must stay out.
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
        """Return one dataset per horizon; the table is taken in submit order."""
        table = table.in_submit_order()
        asked: list[Horizon] = [one for one in horizons if one is not Horizon.POST_MORTEM]
        if Horizon.POST_MORTEM in horizons and Horizon.SUBMIT not in asked:
            asked.append(Horizon.SUBMIT)
        whole = {
            one: _Filling(one, self.names(one), sum(len(q.rows) for q in _questions(table, [one])))
            for one in asked
        }
        for part in self.stream(blocks(table, JOBS_PER_BLOCK), asked, history):
            whole[part.horizon].add(part)
        labels, ends = self.labels.of(table), table["end_time"]
        found: dict[Horizon, JobDataset] = {}
        for horizon in asked:
            data = whole[horizon].data
            if table.samples is not None and horizon in (Horizon.TWO_MINUTES, Horizon.RUNNING):
                data = _with_samples(data, table, table.samples)
            found[horizon] = JobDataset(
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
            found[Horizon.POST_MORTEM] = _post_mortem(table, found[Horizon.SUBMIT], self)
        return {one: found[one] for one in horizons}

    def stream(
        self,
        tables: Iterable[JobTable],
        horizons: Sequence[Horizon],
        history: History | None = None,
    ) -> Iterator[JobDataset]:
        """Yield features as the log goes by, in memory that does not grow with it.

        Labels are NaN here: an outcome is not known when its question is asked.
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
        """Return the features of jobs that are about to be submitted, from a history as it is."""
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
        """Return what the history and the questions need of these jobs."""
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
    """Return what follows from the moment of the question, one row per feature."""
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
    """Ask at each horizon about the jobs that were still in play then.

    That a job had not ended by the moment of the question is known at that moment; jobs whose
    end is not known yet count as still running.
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
        found = events.kind == ASK_AT_SUBMIT
    elif horizon is Horizon.START:
        found = events.kind == ASK_AT_START
    else:
        found = (events.kind == ASK_LATER) & (early == (horizon is Horizon.TWO_MINUTES))
    return np.asarray(found)


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
    # A missing allocation tells how the job ended in some logs, so it looks like a usual one.
    return np.concatenate(
        [
            np.stack(columns, axis=1),
            _hashed_text(table),
            np.nan_to_num(allocated, nan=1.0)[:, None],
        ],
        axis=1,
    ).astype(np.float32)


def _queue_bucket(table: JobTable) -> Floats:
    """Return a small number for each queue; queues are few and nobody's name."""
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

    Names that are nothing but a number are ids, and stay out.
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
    """Add what only the end reveals. For comparison with published figures, never to predict.

    Of the history only the user's levels stay: where the end is known, the others are noise.
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
    """Add what was last measured of each job before it is asked about."""
    # Samples are ordered by job and time; so is this number, which finds the last one before.
    span = 1.0 + float(np.max(np.r_[samples.time, data.asked], initial=0.0))
    order = samples.row * span + samples.time
    found = np.searchsorted(order, data.row * span + data.asked, side="left") - 1
    last = np.maximum(found, 0)
    known = (found >= 0) & (len(samples.row) > 0)
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
    """A dataset of known length that is filled part by part: no part is copied twice."""

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
        # Parts come feature by feature; few rows at a time turn round within the cache.
        for begin in range(0, len(part), 128):
            features[begin : begin + 128] = part.features[begin : begin + 128]
        self._filled = place.stop
