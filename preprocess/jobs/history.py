"""Keep what was known about earlier jobs at any moment: strictly causal, streaming, vectorised.

Jobs become events (submit, start, end) and questions ("what is known about similar jobs now?"),
all sorted by time. An outcome enters the history when the job ends, so a feature never uses
anything that was not known at the time.

For each *level* (the user, the user with this program, the queue, ...) and each key in it, the
history keeps a small vector of numbers. Each obeys a linear recurrence x <- a*x + b over the
key's events: counts (a=1), rates that fade by outcome or by hour (a<1), "last time of" (a=0).
Such recurrences compose, so NumPy processes a whole block of events in doubling steps. Memory
holds one block, the jobs in the queue, and the keys, however long the log is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from condor_advice.gather.hashing import MIX
from condor_advice.gather.workloads.table import TEXT_COLUMNS, JobTable

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
LevelKeys = npt.NDArray[np.uint64]

# A level is named for the columns that make its key.
HISTORY_LEVELS: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "queue": ("queue",),
    "group": ("group",),
    "execution_point": ("execution_point",),
    "executable": ("executable",),
    "user": ("user",),
    "user_cpus": ("user", "cpus"),
    "user_time": ("user", "requested_seconds"),
    "user_queue": ("user", "queue"),
    "user_shape": ("user", "cpus", "requested_seconds", "requested_memory_mb", "queue"),
    "user_program": ("user", "executable"),
    "signature": (
        "user",
        "executable",
        "name",
        "cpus",
        "requested_seconds",
        "requested_memory_mb",
        "queue",
    ),
    "cluster": ("user", "cluster"),
}
LEVELS_KNOWN_AT_START = ("execution_point",)
# Levels that many users share describe the state of the pool, not one user's habits.
SHARED_LEVELS = ("all", "queue", "group", "execution_point")

FADE_BY_OUTCOME = {"last": 0.5, "few": 0.8, "many": 0.95}
FADE_BY_HOURS = {"hour": 1.0, "day": 24.0, "ten_days": 240.0}
MONTH_HOURS = 720.0
LONG_RUN_SECONDS = 120.0  # outcomes of jobs that ran this long are also kept separately
MAX_POWER = 1000  # 0.95 to this power is negligible
BATCH_GAP_SECONDS = 600.0  # submits closer than this belong to one batch

# State of one key, in the order of `Changes`.
OUTCOME_FIELDS = (
    "outcomes",
    "failures",
    "ran_outcomes",
    "ran_failures",
    "long_outcomes",
    "end_time",
    "failure_streak",
    "success_time",
    "success_streak",
    "failure_time",
    "fail_last",
    "fail_few",
    "fail_many",
    "fail_long",
    *(f"{prefix}_{name}" for name in FADE_BY_HOURS for prefix in ("fail", "weight")),
    "fail_ran_few",
    "log_run",
    "log_run_square",
    "log_run_over_request",
    "at_limit",
    "fail_ran_many",
    "at_limit_many",
    "at_limit_last",
    "fail_long_many",
    "log_run_failed",
    "log_run_passed",
    "log_run_last",
    "limit_run",
    "limit_time",
    "fail_ran_month",
    "weight_ran_month",
    "fail_long_month",
    "weight_long_month",
)
SUBMIT_FIELDS = ("submits", "submit_time", "log_request", "log_cpus", "batch", "submit_rate")
START_FIELDS = ("starts", "start_time", "log_wait")
QUEUE_FIELDS = ("queued", "queued_since", "running", "running_since")
STATE_FIELDS = (*OUTCOME_FIELDS, *SUBMIT_FIELDS, *START_FIELDS, *QUEUE_FIELDS)

HISTORY_FEATURES = (
    "outcomes",
    "fail_rate",
    "fail_last",
    "fail_few",
    "fail_many",
    "fail_long",
    "fail_hour",
    "fail_day",
    "fail_ten_days",
    "weight_hour",
    "weight_day",
    "failure_streak",
    "success_streak",
    "since_end",
    "since_failure",
    "since_success",
    "since_submit",
    "no_news",
    "batch",
    "submit_rate",
    "request_change",
    "cpus_change",
    "queued",
    "queued_age",
    "running",
    "running_age",
    "log_run",
    "log_run_over_request",
    "at_limit",
    "request_over_run",
    "age_over_run",
    "submit_over_wait",
    "end_over_wait",
    "failure_over_wait",
    "fail_ran_few",
    "fail_ran_many",
    "fail_ran_month",
    "fail_long_many",
    "fail_long_month",
    "log_run_failed",
    "log_run_passed",
    "log_run_last",
    "at_limit_many",
    "at_limit_last",
    "since_limit",
    "request_over_limit",
    "request_over_last",
    "request_over_passed",
    "request_over_spread",
    "failed_over_passed",
    "age_over_failed",
    "age_over_passed",
    "wait_over_usual",
)
# Meaningless at submit, when the job has not waited yet.
WAITING_FEATURES = ("submit_over_wait", "end_over_wait", "failure_over_wait", "wait_over_usual")
# Meaningless before the job runs.
AGE_FEATURES = ("age_over_run", "age_over_failed", "age_over_passed")
SHARED_FEATURES = (
    "fail_few",
    "fail_hour",
    "fail_day",
    "fail_ten_days",
    "weight_hour",
    "since_end",
    "since_failure",
    "submit_rate",
    "queued",
    "running",
    "usual_wait",
    "wait_over_usual",
)

# Events of the same second are processed in job order, and for one job in this order. Ends come
# last in that second, so that no question in it knows about them. Questions have even numbers.
ASK_AT_SUBMIT, _SUBMIT, ASK_AT_START, _START, ASK_LATER, _END = range(6)


class Questions(NamedTuple):
    """Rows of a table and the moments at which to ask about them."""

    rows: Ints
    times: Floats
    kind: int  # ASK_AT_SUBMIT, ASK_AT_START or ASK_LATER


def features_of(level: str) -> tuple[str, ...]:
    """Return the names of a level's features."""
    return SHARED_FEATURES if level in SHARED_LEVELS else HISTORY_FEATURES


@dataclass(frozen=True, slots=True)
class Facts:
    """The columns of a block of jobs that the history needs, one row per job."""

    keys: Mapping[str, LevelKeys]  # level -> key
    submit: Floats
    start: Floats  # NaN: never started
    end: Floats  # NaN: not ended
    outcome: Floats  # 1 failed, 0 succeeded, NaN neither
    cpus: Floats
    requested_seconds: Floats
    static: npt.NDArray[np.float32]  # axes: (job, column); handed through to the questions

    def __len__(self) -> int:
        return len(self.submit)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns other than the keys, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "keys"}

    def take(self, rows: Ints) -> Facts:
        """Return these jobs."""
        return Facts(
            {level: keys[rows] for level, keys in self.keys.items()},
            **{name: values[rows] for name, values in self.columns().items()},
        )

    def followed_by(self, other: Facts) -> Facts:
        """Return these jobs, then those."""
        later = other.columns()
        return Facts(
            {level: np.concatenate([keys, other.keys[level]]) for level, keys in self.keys.items()},
            **{
                name: np.concatenate([values, later[name]])
                for name, values in self.columns().items()
            },
        )


def usable_levels(table: JobTable) -> tuple[str, ...]:
    """Return the levels whose columns this table has; other levels would only duplicate these."""
    known = {name for name, codes in table.text.items() if np.any(codes >= 0)}
    chosen = []
    for level, columns in HISTORY_LEVELS.items():
        own = [name for name in columns if name in TEXT_COLUMNS and name not in ("queue", "name")]
        if level in ("queue", "user_queue"):
            own.append("queue")
        if all(name in known for name in own):
            chosen.append(level)
    return tuple(chosen)


def level_keys(table: JobTable, cpus: Floats, levels: Iterable[str]) -> dict[str, LevelKeys]:
    """Return a 64-bit key per job and level, the same in every process and on every machine."""
    columns: dict[str, LevelKeys] = {}

    def column(name: str) -> LevelKeys:
        if name not in columns:
            if name in table.text:
                names = [*table.vocabularies[name].names, ""]
                columns[name] = np.array([_hash(text) for text in names], dtype=np.uint64)[
                    table.text[name]
                ]
            else:
                values = cpus if name == "cpus" else table[name]
                columns[name] = _mix(np.nan_to_num(values, nan=-1.0).view(np.uint64))
        return columns[name]

    keys = {}
    for level in levels:
        key = np.full(len(table), _hash(level), dtype=np.uint64)
        for name in HISTORY_LEVELS[level]:
            key = _mix(key ^ column(name))
        keys[level] = key
    return keys


class History:
    """The state of every level; `advance` processes events and answers questions."""

    def __init__(self, levels: Sequence[str], max_keys: int = 200_000) -> None:
        self.levels = {name: LevelState(max_keys) for name in levels}
        self.now = 0.0

    @property
    def names(self) -> list[str]:
        """Names of the features, in the order of the columns that `advance` returns."""
        return [f"{level}.{feature}" for level in self.levels for feature in features_of(level)]

    def advance(self, events: Events) -> npt.NDArray[np.float32]:
        """Process these events, in order; return one row per question among them."""
        if not len(events):
            return np.empty((0, len(self.names)), dtype=np.float32)
        step = HistoryStep(events)
        moment = Moment(events.take(events.is_question))
        answers = [
            moment.features(
                level.advance(*step.keys(name), step, name in SHARED_LEVELS), features_of(name)
            )
            for name, level in self.levels.items()
        ]
        self.now = float(events.time[-1])
        return np.concatenate(answers).T

    def answer(self, asked: Events) -> npt.NDArray[np.float32]:
        """Answer questions from the current state, without changing it."""
        moment = Moment(asked)
        return np.concatenate(
            [
                moment.features(level.lookup(asked.key(name)).T, features_of(name))
                for name, level in self.levels.items()
            ]
        ).T

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the state as plain arrays, to be saved with a model."""
        arrays: dict[str, npt.NDArray[np.generic]] = {"now": np.array(self.now)}
        for name, level in self.levels.items():
            arrays[f"{name}.keys"], arrays[f"{name}.state"] = level.arrays()
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, npt.NDArray[np.generic]], levels: Sequence[str]
    ) -> History:
        """Rebuild a history from `arrays`."""
        history = cls(levels)
        history.now = float(arrays["now"].astype(np.float64))
        for name, level in history.levels.items():
            level.restore(
                arrays[f"{name}.keys"].astype(np.uint64), arrays[f"{name}.state"].astype(np.float64)
            )
        return history


class LevelState:
    """The keys of one level and their state; the least recently used are dropped."""

    def __init__(self, max_keys: int) -> None:
        self.max_keys = max_keys
        self.index: dict[int, int] = {}
        self.state = np.zeros((1024, len(STATE_FIELDS)))
        self.touched = np.zeros(1024)

    def advance(self, distinct: LevelKeys, which: Ints, step: HistoryStep, shared: bool) -> Floats:
        """Process a step; return the state of its key at each question, before its own event.

        `distinct` are the keys of the step, `which` gives the key of each event. The result has
        one row per field of the state, one column per question.
        """
        slots = self._slots(distinct, float(step.events.time[-1]))
        before = np.ascontiguousarray(self.state[slots].T)
        asked, after = step.states(which, before, shared)
        self.state[slots] = after.T
        return asked

    def arrays(self) -> tuple[LevelKeys, Floats]:
        """Return keys and their states."""
        keys = np.fromiter(self.index.keys(), dtype=np.uint64, count=len(self.index))
        slots = np.fromiter(self.index.values(), dtype=np.int64, count=len(self.index))
        return keys, self.state[slots]

    def restore(self, keys: LevelKeys, state: Floats) -> None:
        """Restore keys and states saved by `arrays`."""
        self.index = {int(key): slot for slot, key in enumerate(keys)}
        self.state = state.copy() if len(state) else np.zeros((1024, len(STATE_FIELDS)))
        self.touched = np.zeros(len(self.state))

    def lookup(self, keys: LevelKeys) -> Floats:
        """Return the states of these keys; zeros for a key never seen."""
        states = np.zeros((len(keys), len(STATE_FIELDS)))
        for row, key in enumerate(keys):
            slot = self.index.get(int(key))
            if slot is not None:
                states[row] = self.state[slot]
        return states

    def _slots(self, distinct: LevelKeys, now: float) -> Ints:
        if len(self.index) + len(distinct) > self.max_keys:
            self._forget()
        slots = np.empty(len(distinct), dtype=np.int64)
        index = self.index
        for position, key in enumerate(distinct.tolist()):
            slot = index.get(key)
            if slot is None:
                slot = index[key] = len(index)
            slots[position] = slot
        if len(index) > len(self.state):
            grown = max(2 * len(self.state), len(index))
            self.state = np.concatenate(
                [self.state, np.zeros((grown - len(self.state), len(STATE_FIELDS)))]
            )
            self.touched = np.concatenate([self.touched, np.zeros(grown - len(self.touched))])
        self.touched[slots] = now
        return slots

    def _forget(self) -> None:
        """Keep the most recently used half of the keys."""
        keys = np.fromiter(self.index.keys(), dtype=np.uint64, count=len(self.index))
        slots = np.fromiter(self.index.values(), dtype=np.int64, count=len(self.index))
        kept = np.argsort(-self.touched[slots], kind="stable")[: self.max_keys // 2]
        state, touched = self.state[slots[kept]], self.touched[slots[kept]]
        self.index = {int(key): slot for slot, key in enumerate(keys[kept])}
        self.state[:] = 0.0
        self.touched[:] = 0.0
        self.state[: len(kept)], self.touched[: len(kept)] = state, touched


@dataclass(frozen=True, slots=True)
class Events:
    """Events and questions in time order, each with its job."""

    time: Floats
    kind: npt.NDArray[np.int8]
    job: Ints  # row in the facts
    facts: Facts
    numbers: Ints  # of the facts' jobs in the stream

    def __len__(self) -> int:
        return len(self.time)

    @property
    def is_question(self) -> npt.NDArray[np.bool_]:
        """True for questions, False for events."""
        return np.asarray(self.kind % 2 == 0)

    @property
    def row(self) -> Ints:
        """Number of each event's job in the stream."""
        return self.numbers[self.job]

    def key(self, level: str) -> LevelKeys:
        """Return the keys of one level."""
        keys = self.facts.keys[level][self.job]
        if level in LEVELS_KNOWN_AT_START:  # unknown before the job starts
            keys[self.kind < ASK_AT_START] = 0
        return keys

    def take(self, index: npt.NDArray[np.generic] | slice) -> Events:
        """Return these events, in this order."""
        return Events(self.time[index], self.kind[index], self.job[index], self.facts, self.numbers)

    def in_order(self) -> Events:
        """Return the events in the order in which they become known."""
        return self.take(np.lexsort((self.kind, self.row, self.kind == _END, self.time)))

    def without_idle_facts(self) -> Events:
        """Return the events with the facts of their own jobs only."""
        idle = np.ones(len(self.facts), dtype=bool)
        idle[self.job] = False
        kept = np.flatnonzero(~idle)
        place = np.cumsum(~idle) - 1
        return Events(
            self.time, self.kind, place[self.job], self.facts.take(kept), self.numbers[kept]
        )


def stream(
    blocks: Iterable[tuple[Facts, Sequence[Questions]]],
    history: History,
    events_per_step: int = 32_768,
) -> Iterator[tuple[Events, npt.NDArray[np.float32]]]:
    """Feed blocks of jobs (in submit order) through a history; yield questions and answers.

    Each step has a fixed number of events, counted from the start of the log, whatever the
    blocks are. So a truncated log gives bit for bit the same answers up to its end.
    """
    waiting: Events | None = None
    rows = 0
    for facts, questions in blocks:
        block = _events(facts, questions, rows)
        rows += len(facts)
        waiting = block if waiting is None else _join(waiting, block)
        waiting = waiting.in_order()
        # Later blocks have no event before this block's last submit.
        safe = (
            int(np.searchsorted(waiting.time, np.floor(facts.submit[-1]), side="left"))
            if len(facts)
            else 0
        )
        whole = safe - safe % events_per_step
        for begin in range(0, whole, events_per_step):
            yield _step(waiting.take(slice(begin, begin + events_per_step)), history)
        waiting = waiting.take(slice(whole, None)).without_idle_facts()
    if waiting is not None:
        for begin in range(0, len(waiting), events_per_step):
            yield _step(waiting.take(slice(begin, begin + events_per_step)), history)


def questions_of(facts: Facts, questions: Sequence[Questions]) -> Events:
    """Return the questions alone, for `History.answer`."""
    events = _events(facts, questions, 0)
    return events.take(events.is_question).in_order()


def _step(events: Events, history: History) -> tuple[Events, npt.NDArray[np.float32]]:
    answers = history.advance(events)
    return events.take(events.is_question), answers


def _join(earlier: Events, later: Events) -> Events:
    return Events(
        np.concatenate([earlier.time, later.time]),
        np.concatenate([earlier.kind, later.kind]),
        np.concatenate([earlier.job, later.job + len(earlier.facts)]),
        earlier.facts.followed_by(later.facts),
        np.concatenate([earlier.numbers, later.numbers]),
    )


def _events(facts: Facts, questions: Sequence[Questions], first_row: int) -> Events:
    """Turn jobs into events. Times are rounded down to whole seconds, so sums stay exact."""
    submit, start, end = np.floor(facts.submit), np.floor(facts.start), np.floor(facts.end)
    facts = replace(facts, submit=submit, start=start, end=end)
    every = np.arange(len(facts))
    started, ended = np.isfinite(start), np.isfinite(end)
    parts = [
        Questions(every, submit, _SUBMIT),
        Questions(every[started], start[started], _START),
        Questions(every[ended], np.maximum(end, submit)[ended], _END),
        *questions,
    ]
    return Events(
        np.floor(np.concatenate([part.times for part in parts])),
        np.concatenate([np.full(len(part.rows), part.kind, dtype=np.int8) for part in parts]),
        np.concatenate([part.rows for part in parts]),
        facts,
        every + first_row,
    )


class HistoryStep:
    """A run of events and their effect on any key, computed once for all levels."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.questions = np.flatnonzero(events.is_question)
        ended = (events.kind == _END) & np.isfinite(events.facts.outcome[events.job])
        self.recurrences = [
            Recurrence(chosen, changes(events.take(chosen)), names)
            for chosen, changes, names in (
                (ended, _outcomes, OUTCOME_FIELDS),
                (events.kind == _SUBMIT, _submits, SUBMIT_FIELDS),
                (events.kind == _START, _starts, START_FIELDS),
            )
        ]
        self.moves = _queue_moves(events)
        mine = np.zeros(len(events.facts), dtype=bool)
        mine[events.job] = True
        self._jobs = np.flatnonzero(mine)
        self._job = (np.cumsum(mine) - 1)[events.job]

    def keys(self, level: str) -> tuple[LevelKeys, Ints]:
        """Return the distinct keys of a level, and which of them each event has."""
        if level in LEVELS_KNOWN_AT_START:
            distinct, which = np.unique(self.events.key(level), return_inverse=True)
            return distinct, which
        # All events of a job share its key, so sort the jobs, not the events.
        keys = self.events.facts.keys[level][self._jobs]
        distinct, which = np.unique(keys, return_inverse=True)
        return distinct, which[self._job]

    def states(self, which: Ints, before: Floats, shared: bool) -> tuple[Floats, Floats]:
        """Return the state of its key at each question, and the final state of every key.

        `before` is the state of every key before the step, one row per field. The personal
        fields of a shared level stay 0.
        """
        # NumPy sorts 16-bit numbers in linear time.
        small = which.astype(np.uint16) if before.shape[1] < 1 << 16 else which
        order = np.argsort(small, kind="stable")
        segment = which[order]
        first = np.flatnonzero(np.r_[True, segment[1:] != segment[:-1]])
        last = np.r_[first[1:], len(segment)] - 1
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        probes = np.concatenate([place[self.questions], last])
        state = np.empty((len(STATE_FIELDS), len(probes)))
        stop = 0
        for recurrence in self.recurrences:
            rows = slice(stop, stop + len(recurrence.changes.names))
            state[rows] = recurrence.run(order, segment, before[rows], probes, shared)
            stop = rows.stop
        of_probe = segment[probes]
        for field, moves, carried in zip(state[stop:], self.moves, before[stop:], strict=True):
            total = np.cumsum(moves[order])
            base = np.r_[0.0, total[last[:-1]]]
            field[:] = total[probes] - (base - carried)[of_probe]
        return state[:, : len(self.questions)], state[:, len(self.questions) :]


# A constant, one factor per event, or a function of the time since the key's previous event.
Factor = float | Floats | Callable[[Floats], Floats]


class Fade(NamedTuple):
    """Fields with one factor: x <- factor*x + term."""

    factor: Factor
    terms: Mapping[str, Floats]
    personal: bool = True  # not kept for keys that many users share


class Changes(NamedTuple):
    """How events of one kind change their fields."""

    counts: Mapping[str, Floats]  # x <- x + term
    latest: Mapping[str, Floats]  # x <- term; the first is the event's own time
    fades: tuple[Fade, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The fields in the order of `Recurrence`."""
        faded = (name for fade in self.fades for name in fade.terms)
        return (*self.counts, *self.latest, *faded)


class Recurrence:
    """The fields that one kind of event changes, computed over a step."""

    def __init__(
        self, chosen: npt.NDArray[np.bool_], changes: Changes, names: Sequence[str]
    ) -> None:
        assert changes.names == tuple(names)
        self.chosen = chosen
        self.number = np.cumsum(chosen) - 1
        self.changes = changes

    def run(self, order: Ints, segment: Ints, before: Floats, probes: Ints, shared: bool) -> Floats:
        """Return the fields after the event at each probe; `order` groups events by key."""
        mine = self.chosen[order]
        groups = segment[mine]
        count = len(groups)
        of_probe = segment[probes]
        if not count:
            return before[:, of_probe]
        taken = self.number[order[mine]]
        opens = np.r_[True, groups[1:] != groups[:-1]]
        firsts = np.flatnonzero(opens)
        key = np.cumsum(opens) - 1
        longest = int(np.max(np.diff(np.r_[firsts, count])))
        carried = before[:, groups[firsts]]
        # The values after each event come first, those before any event last, so that one
        # lookup serves both.
        values = np.empty((len(before), count + before.shape[1]))
        values[:, count:] = before
        field = 0
        for term in self.changes.counts.values():
            total = np.cumsum(term[taken])
            base = np.r_[0.0, total[firsts[1:] - 1]]
            values[field, :count] = total + (carried[field] - base)[key]
            field += 1
        times = field
        for term in self.changes.latest.values():
            values[field, :count] = term[taken]
            field += 1
        previous = np.r_[0.0, values[times, : count - 1]]
        previous[firsts] = carried[times]
        gap = values[times, :count] - previous
        for fade in self.changes.fades:
            rows = slice(field, field + len(fade.terms))
            field = rows.stop
            terms = values[rows, :count]
            if shared and fade.personal:
                terms[:] = 0.0
                continue
            for row, term in zip(terms, fade.terms.values(), strict=True):
                row[:] = term[taken]
            factor = _factor(fade.factor, taken, gap)
            # The first event of a key adds the value from before this step. Its factor becomes
            # 0, so that no product reaches into the previous key.
            terms[:, firsts] += factor[firsts] * carried[rows]
            factor[firsts] = 0.0
            _scan(factor, terms, longest)
        latest = np.cumsum(mine)[probes] - 1
        same = (latest >= 0) & (groups[latest] == of_probe)
        return np.take(values, np.where(same, latest, count + of_probe), axis=1)


def _factor(factor: Factor, taken: Ints, gap: Floats) -> Floats:
    if isinstance(factor, float):
        return np.full(len(taken), factor)
    return factor[taken] if isinstance(factor, np.ndarray) else factor(gap)


def _scan(factor: Floats, terms: Floats, longest: int) -> None:
    """Solve x[i] = factor[i]*x[i-1] + terms[i] in place, in log2(longest) doubling steps."""
    reach = 1
    while reach < longest and factor.any():
        terms[:, reach:] += factor[reach:] * terms[:, :-reach]
        factor[reach:] = factor[reach:] * factor[:-reach]
        reach *= 2


def _by_hours(hours: float) -> Callable[[Floats], Floats]:
    """Return the decay factor with this half-life."""
    return lambda gap: np.exp2(-gap / (3600.0 * hours))


def _outcomes(events: Events) -> Changes:
    """Return how known outcomes change a key's state."""
    facts, job = events.facts, events.job
    failed, start = facts.outcome[job], facts.start[job]
    passed = 1.0 - failed
    ones = np.ones(len(events))
    # Jobs removed from the queue failed without running, which is another kind of failure.
    ran = np.isfinite(start)
    run = np.maximum(np.nan_to_num(facts.end[job] - start), 0.0)
    long = run > LONG_RUN_SECONDS
    log_run = np.log1p(run)
    request = np.nan_to_num(facts.requested_seconds[job], nan=0.0)
    over = np.where(request > 0, log_run - np.log1p(request), 0.0)
    at_limit = ((request > 0) & (run >= request)).astype(np.float64)
    few, many = FADE_BY_OUTCOME["few"], FADE_BY_OUTCOME["many"]

    def faded(fade: float, personal: bool = True, **values: Floats) -> Fade:
        terms = {name: (1.0 - fade) * value for name, value in values.items()}
        return Fade(fade, terms, personal)

    def faded_where(some: npt.NDArray[np.bool_], fade: float, **values: Floats) -> Fade:
        """Fade at some events only; at the others the value stays."""
        terms = {name: some * (1.0 - fade) * value for name, value in values.items()}
        return Fade(np.where(some, fade, 1.0), terms)

    return Changes(
        {
            "outcomes": ones,
            "failures": failed,
            "ran_outcomes": ran * ones,
            "ran_failures": ran * failed,
            "long_outcomes": long * ones,
        },
        {"end_time": events.time},
        (
            Fade(failed, {"failure_streak": failed, "success_time": passed * events.time}),
            Fade(passed, {"success_streak": passed, "failure_time": failed * events.time}, False),
            faded(FADE_BY_OUTCOME["last"], fail_last=failed),
            faded(few, personal=False, fail_few=failed),
            faded(many, fail_many=failed),
            faded_where(long, few, fail_long=failed),
            *(
                Fade(_by_hours(hours), {f"fail_{name}": failed, f"weight_{name}": ones}, False)
                for name, hours in FADE_BY_HOURS.items()
            ),
            faded_where(
                ran,
                few,
                fail_ran_few=failed,
                log_run=log_run,
                log_run_square=log_run**2,
                log_run_over_request=over,
                at_limit=at_limit,
            ),
            faded_where(ran, many, fail_ran_many=failed, at_limit_many=at_limit),
            faded_where(ran, FADE_BY_OUTCOME["last"], at_limit_last=at_limit),
            faded_where(long, many, fail_long_many=failed),
            faded_where(ran & (failed > 0), few, log_run_failed=log_run),
            faded_where(ran & (failed == 0), few, log_run_passed=log_run),
            faded_where(ran, 0.0, log_run_last=log_run),
            faded_where(at_limit > 0, 0.0, limit_run=log_run, limit_time=events.time),
            Fade(
                _by_hours(MONTH_HOURS),
                {
                    "fail_ran_month": ran * failed,
                    "weight_ran_month": ran * ones,
                    "fail_long_month": long * failed,
                    "weight_long_month": long * ones,
                },
            ),
        ),
    )


def _submits(events: Events) -> Changes:
    """Return how submits change a key's state."""
    ones = np.ones(len(events))
    return Changes(
        {"submits": ones},
        {
            "submit_time": events.time,
            "log_request": np.log1p(np.nan_to_num(events.facts.requested_seconds[events.job])),
            "log_cpus": np.log1p(np.nan_to_num(events.facts.cpus[events.job])),
        },
        (
            Fade(lambda gap: (gap <= BATCH_GAP_SECONDS).astype(np.float64), {"batch": ones}),
            Fade(_by_hours(1.0), {"submit_rate": ones}, False),
        ),
    )


def _starts(events: Events) -> Changes:
    """Return how starts change a key's state."""
    many = FADE_BY_OUTCOME["many"]
    wait = np.log1p(np.maximum(events.time - events.facts.submit[events.job], 0.0))
    return Changes(
        {"starts": np.ones(len(events))},
        {"start_time": events.time},
        (Fade(many, {"log_wait": (1.0 - many) * wait}, False),),
    )


def _queue_moves(events: Events) -> Floats:
    """Return what each event adds to the numbers of queued and running jobs, and to their times.

    One row per field of QUEUE_FIELDS, one column per event.
    """
    submit, start = events.facts.submit[events.job], events.facts.start[events.job]
    started = np.isfinite(start)
    queued = (
        (events.kind == _SUBMIT) * 1.0
        - (events.kind == _START)
        - ((events.kind == _END) & ~started)
    )
    running = (events.kind == _START) * 1.0 - ((events.kind == _END) & started)
    return np.stack([queued, queued * submit, running, running * np.nan_to_num(start)])


class Moment:
    """Questions at a moment; turns the state of their keys into features."""

    def __init__(self, asked: Events) -> None:
        facts, job = asked.facts, asked.job
        self.now = asked.time
        requested = facts.requested_seconds[job]
        self.log_request = np.where(requested > 0, np.log1p(np.nan_to_num(requested)), np.nan)
        self.log_cpus = np.log1p(np.nan_to_num(facts.cpus[job]))
        self.log_wait = np.log1p(np.maximum(asked.time - facts.submit[job], 0.0))
        began = np.where(asked.kind == ASK_LATER, facts.start[job], asked.time)
        self.log_age = np.log1p(np.maximum(asked.time - began, 0.0))
        self.log_whole_wait = np.log1p(np.maximum(began - facts.submit[job], 0.0))

    def features(self, state: Floats, names: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return one row per feature, one column per question; NaN where nothing is known.

        `state` has one row per field of STATE_FIELDS. Only the features asked for are computed.
        """
        values = _FeatureValues(self, state)
        features = np.empty((len(names), len(self.now)), dtype=np.float32)
        with np.errstate(invalid="ignore", divide="ignore"):
            for row, name in zip(features, names, strict=True):
                row[:] = values[name]
        return features


Formulas = dict[str, Callable[[], Floats]]


class _FeatureValues:
    """The features of some questions by name, each computed on first use."""

    def __init__(self, moment: Moment, state: Floats) -> None:
        self._moment = moment
        self._state = dict(zip(STATE_FIELDS, state, strict=True))
        self._values: dict[str, Floats] = {}
        self._formulas: Formulas = {
            **self._failure_rates(),
            **self._times_since(),
            **self._submits(),
            **self._queue(),
            **self._run_times(),
            **self._limits(),
            **self._waits(),
        }

    def __getitem__(self, name: str) -> Floats:
        if name not in self._values:
            self._values[name] = self._formulas[name]()
        return self._values[name]

    def _failure_rates(self) -> Formulas:
        """Return how often jobs failed: all of them, those that ran, those that ran long."""
        state, now = self._state, self._moment.now
        outcomes, ran, ran_long = (
            state["outcomes"],
            state["ran_outcomes"],
            state["long_outcomes"],
        )
        few, many = FADE_BY_OUTCOME["few"], FADE_BY_OUTCOME["many"]

        def recent(name: str, hours: float) -> Floats:
            fade = np.exp2((state["end_time"] - now) / (3600.0 * hours))
            return np.asarray(np.log1p(state[f"weight_{name}"] * fade))

        formulas: Formulas = {
            "outcomes": lambda: np.log1p(outcomes),
            "fail_rate": lambda: np.where(
                outcomes > 0, (state["failures"] + 0.4) / (outcomes + 2.0), np.nan
            ),
            "failure_streak": lambda: state["failure_streak"],
            "success_streak": lambda: state["success_streak"],
            "fail_ran_few": lambda: _mean(state["fail_ran_few"], few, ran),
            "fail_ran_many": lambda: _mean(state["fail_ran_many"], many, ran),
            "fail_ran_month": lambda: state["fail_ran_month"] / state["weight_ran_month"],
            "fail_long": lambda: _mean(state["fail_long"], few, ran_long),
            "fail_long_many": lambda: _mean(state["fail_long_many"], many, ran_long),
            "fail_long_month": lambda: state["fail_long_month"] / state["weight_long_month"],
        }
        for name, fade in FADE_BY_OUTCOME.items():
            formulas[f"fail_{name}"] = partial(_mean, state[f"fail_{name}"], fade, outcomes)
        for name, hours in FADE_BY_HOURS.items():
            formulas[f"fail_{name}"] = partial(
                np.divide, state[f"fail_{name}"], state[f"weight_{name}"]
            )
            formulas[f"weight_{name}"] = partial(recent, name, hours)
        return formulas

    def _times_since(self) -> Formulas:
        """Return how long ago something last happened, also relative to this job's wait."""
        state, moment = self._state, self._moment

        def since(time: Floats) -> Floats:
            return np.where(time > 0, np.log1p(np.maximum(moment.now - time, 0.0)), np.nan)

        formulas: Formulas = {
            f"since_{name}": partial(since, state[f"{name}_time"])
            for name in ("end", "failure", "success", "submit", "limit")
        }
        for name in ("submit", "end", "failure"):  # negative: since this job's own submit
            formulas[f"{name}_over_wait"] = partial(
                lambda since_name: self[since_name] - moment.log_wait, f"since_{name}"
            )
        return formulas

    def _submits(self) -> Formulas:
        """Return what was submitted before, and how this job differs from it."""
        state, moment, now = self._state, self._moment, self._moment.now

        def once_submitted(values: Floats) -> Floats:
            return np.where(state["submits"] > 0, values, np.nan)

        return {
            "no_news": lambda: once_submitted(state["submit_time"] - state["end_time"] > 0),
            "batch": lambda: np.where(
                now - state["submit_time"] <= BATCH_GAP_SECONDS, state["batch"], 0.0
            ),
            "submit_rate": lambda: (
                state["submit_rate"] * np.exp2((state["submit_time"] - now) / 3600.0)
            ),
            "request_change": lambda: once_submitted(moment.log_request - state["log_request"]),
            "cpus_change": lambda: once_submitted(moment.log_cpus - state["log_cpus"]),
        }

    def _queue(self) -> Formulas:
        """Return the numbers of queued and running jobs now, and their mean age."""
        state, now = self._state, self._moment.now

        def age(name: str) -> Floats:
            mean = state[f"{name}_since"] / state[name]
            return np.where(state[name] > 0, np.log1p(np.maximum(now - mean, 0.0)), np.nan)

        return {
            "queued": lambda: np.log1p(np.maximum(state["queued"], 0.0)),
            "running": lambda: np.log1p(np.maximum(state["running"], 0.0)),
            "queued_age": lambda: age("queued"),
            "running_age": lambda: age("running"),
        }

    def _run_times(self) -> Formulas:
        """Return how long earlier jobs ran, relative to this job's request and age."""
        state, moment = self._state, self._moment
        log_request, log_age = moment.log_request, moment.log_age
        ran, ran_failed = state["ran_outcomes"], state["ran_failures"]
        few = FADE_BY_OUTCOME["few"]

        def request_over_spread() -> Floats:
            variance = self["log_run_square"] - self["log_run"] ** 2
            return (log_request - self["log_run"]) / (0.1 + np.sqrt(np.maximum(variance, 0.0)))

        formulas: Formulas = {
            "log_run_failed": lambda: _mean(state["log_run_failed"], few, ran_failed),
            "log_run_passed": lambda: _mean(state["log_run_passed"], few, ran - ran_failed),
            "log_run_last": lambda: np.where(ran > 0, state["log_run_last"], np.nan),
            "failed_over_passed": lambda: self["log_run_failed"] - self["log_run_passed"],
            "request_over_run": lambda: log_request - self["log_run"],
            "request_over_last": lambda: log_request - self["log_run_last"],
            "request_over_passed": lambda: log_request - self["log_run_passed"],
            "request_over_spread": request_over_spread,
            "age_over_run": lambda: log_age - self["log_run"],
            "age_over_failed": lambda: log_age - self["log_run_failed"],
            "age_over_passed": lambda: log_age - self["log_run_passed"],
        }
        for name in ("log_run", "log_run_square", "log_run_over_request"):
            formulas[name] = partial(_mean, state[name], few, ran)
        return formulas

    def _limits(self) -> Formulas:
        """Return how often earlier jobs reached their time limit."""
        state, ran = self._state, self._state["ran_outcomes"]
        fades = FADE_BY_OUTCOME
        return {
            "at_limit": lambda: _mean(state["at_limit"], fades["few"], ran),
            "at_limit_many": lambda: _mean(state["at_limit_many"], fades["many"], ran),
            "at_limit_last": lambda: _mean(state["at_limit_last"], fades["last"], ran),
            "request_over_limit": lambda: np.where(
                state["limit_time"] > 0, self._moment.log_request - state["limit_run"], np.nan
            ),
        }

    def _waits(self) -> Formulas:
        """Return how long jobs usually wait to start, relative to this job's wait."""
        state, many = self._state, FADE_BY_OUTCOME["many"]
        return {
            "usual_wait": lambda: _mean(state["log_wait"], many, state["starts"]),
            "wait_over_usual": lambda: self._moment.log_whole_wait - self["usual_wait"],
        }


def _mean(faded: Floats, fade: float, count: Floats) -> Floats:
    """Return a fading mean from its fading sum; NaN where there is no outcome."""
    return faded / (1.0 - _powers(fade)[np.minimum(count, MAX_POWER).astype(np.int64)])


@lru_cache
def _powers(base: float) -> Floats:
    """Return the powers of a fade, up to where they are negligible."""
    return np.asarray(np.power(base, np.arange(MAX_POWER + 1.0)))


@lru_cache(maxsize=1 << 16)
def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _mix(values: LevelKeys) -> LevelKeys:
    """Scramble 64-bit numbers (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        values = values + MIX
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
