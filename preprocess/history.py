"""What was known of a user's earlier jobs at one moment: strictly causal, streaming, vectorised.

Jobs become events (submit, start, end) and questions ("what is known of this job's like
now?"), all put into one order of time. An outcome enters the history at the job's end and not a
second earlier, so a feature cannot know what an observer could not have known.

For each *level* (the user, the user with this program, the queue, ...) and each key in it, a
small vector of numbers is kept. Every number obeys a linear recurrence x <- a*x + b over the
key's events: counts (a=1), rates that fade by outcome or by hour (a<1), "last time of" (a=0).
Such recurrences compose, so a whole block of events is worked off by doubling steps in NumPy,
and memory holds one block, the jobs now in the queue, and the keys, whatever the log's length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from condor_advice.gather.workloads.table import TEXT_COLUMNS, JobTable

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

# A level is named for the columns that make its key.
LEVELS: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "queue": ("queue",),
    "group": ("group",),
    "execution_point": ("execution_point",),
    "executable": ("executable",),
    "user": ("user",),
    "user_cpus": ("user", "cpus"),
    "user_time": ("user", "requested_seconds"),
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
# Levels that many users share tell of the pool's weather, not of one user's habits.
SHARED_LEVELS = ("all", "queue", "group", "execution_point")

FADE_BY_OUTCOME = {"last": 0.5, "few": 0.8, "many": 0.95}
FADE_BY_HOURS = {"hour": 1.0, "day": 24.0, "ten_days": 240.0}
LONG_RUN_SECONDS = 120.0  # outcomes of jobs that lived this long are kept apart
BATCH_GAP_SECONDS = 600.0  # submits closer than this belong to one batch

# State of one key. Order matters only in that the slices below stay in step with it.
OUTCOME_FIELDS = (
    "outcomes",
    "failures",
    "failure_streak",
    "success_streak",
    "end_time",
    "failure_time",
    "success_time",
    "long_outcomes",
    *(f"fail_{name}" for name in FADE_BY_OUTCOME),
    "fail_long",
    *(f"fail_{name}" for name in FADE_BY_HOURS),
    *(f"weight_{name}" for name in FADE_BY_HOURS),
    "log_run",
    "log_run_over_request",
    "at_limit",
)
SUBMIT_FIELDS = ("submits", "submit_time", "batch", "submit_rate", "log_request", "log_cpus")
QUEUE_FIELDS = ("queued", "queued_since", "running", "running_since")
FIELDS = (*OUTCOME_FIELDS, *SUBMIT_FIELDS, *QUEUE_FIELDS)

FEATURES = (
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
)
# Meaningless at submit, when the job has waited for nothing yet.
WAITING_FEATURES = ("submit_over_wait", "end_over_wait", "failure_over_wait")
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
)

# Events of one second are taken in the order of their jobs, and for one job in this order;
# ends come after everything else of that second, so that nobody profits from them yet.
# Questions have even numbers.
ASK_AT_SUBMIT, SUBMIT, ASK_AT_START, START, ASK_LATER, END = range(6)


class Questions(NamedTuple):
    """Rows of a table and the moments at which to ask about them."""

    rows: Ints
    times: Floats
    kind: int  # ASK_AT_SUBMIT, ASK_AT_START or ASK_LATER


def features_of(level: str) -> tuple[str, ...]:
    """Return the names of the features that a level gives."""
    return SHARED_FEATURES if level in SHARED_LEVELS else FEATURES


@dataclass(frozen=True, slots=True)
class Facts:
    """What the history needs of a block of jobs, row by row."""

    keys: Mapping[str, Keys]  # level -> key
    submit: Floats
    start: Floats  # NaN: never started
    end: Floats  # NaN: not ended
    outcome: Floats  # 1 failed, 0 succeeded, NaN neither
    cpus: Floats
    requested_seconds: Floats
    static: npt.NDArray[np.float32]  # axes: (job, column); handed through to the questions

    def __len__(self) -> int:
        return len(self.submit)


def usable_levels(table: JobTable) -> tuple[str, ...]:
    """Return the levels whose own columns this table knows; the others would repeat these."""
    known = {name for name, codes in table.text.items() if np.any(codes >= 0)}
    chosen = []
    for level, columns in LEVELS.items():
        own = [name for name in columns if name in TEXT_COLUMNS and name not in ("queue", "name")]
        if level == "queue":
            own = ["queue"]
        if all(name in known for name in own):
            chosen.append(level)
    return tuple(chosen)


def level_keys(table: JobTable, cpus: Floats, levels: Iterable[str]) -> dict[str, Keys]:
    """Return a 64-bit key per job and level, the same in every process and on every machine."""
    columns: dict[str, Keys] = {}

    def column(name: str) -> Keys:
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
        for name in LEVELS[level]:
            key = _mix(key ^ column(name))
        keys[level] = key
    return keys


class History:
    """The state of every level; `advance` moves it through events and answers questions."""

    def __init__(self, levels: Sequence[str], max_keys: int = 200_000) -> None:
        self.levels = {name: Level(max_keys) for name in levels}
        self.now = 0.0

    @property
    def names(self) -> list[str]:
        """Names of the features, in the order of the columns that `advance` returns."""
        return [f"{level}.{feature}" for level in self.levels for feature in features_of(level)]

    def advance(self, events: Events) -> npt.NDArray[np.float32]:
        """Move through these events (in order); return one row per question among them."""
        if not len(events):
            return np.empty((0, len(self.names)), dtype=np.float32)
        slim = events.without_passengers()
        asked = slim.take(slim.is_question)
        answers = [
            _features(level.advance(events.key(name), slim), asked, features_of(name))
            for name, level in self.levels.items()
        ]
        self.now = float(events.time[-1])
        return np.concatenate(answers, axis=1)

    def answer(self, asked: Events) -> npt.NDArray[np.float32]:
        """Answer questions from the state as it is, without moving it."""
        return np.concatenate(
            [
                _features(level.lookup(asked.key(name)), asked, features_of(name))
                for name, level in self.levels.items()
            ],
            axis=1,
        )

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the state as plain arrays, to be saved with a model."""
        found: dict[str, npt.NDArray[np.generic]] = {"now": np.array(self.now)}
        for name, level in self.levels.items():
            found[f"{name}.keys"], found[f"{name}.state"] = level.arrays()
        return found

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


class Level:
    """Keys of one level and their state; the least recently touched are forgotten."""

    def __init__(self, max_keys: int) -> None:
        self.max_keys = max_keys
        self.index: dict[int, int] = {}
        self.state = np.zeros((1024, len(FIELDS)))
        self.touched = np.zeros(1024)

    def advance(self, keys: Keys, events: Events) -> Floats:
        """Work off events; return the state of its key at each question, before its own event."""
        distinct, which = np.unique(keys, return_inverse=True)
        slots = self._slots(distinct, float(events.time[-1]))
        # NumPy sorts 16-bit numbers in linear time.
        small = which.astype(np.uint16) if len(distinct) < 1 << 16 else which
        order = np.argsort(small, kind="stable")
        segment = which[order]
        first = np.flatnonzero(np.r_[True, segment[1:] != segment[:-1]])
        last = np.r_[first[1:], len(segment)] - 1
        asked = np.flatnonzero(events.is_question[order])
        probes = np.concatenate([asked, last])
        before = self.state[slots]
        after = _probe(events.take(order), segment, first, before, probes)
        self.state[slots] = after[len(asked) :]
        answers = np.empty((len(asked), len(FIELDS)))
        answers[_rank(order[asked])] = after[: len(asked)]
        return answers

    def arrays(self) -> tuple[Keys, Floats]:
        """Return keys and their states."""
        keys = np.fromiter(self.index.keys(), dtype=np.uint64, count=len(self.index))
        slots = np.fromiter(self.index.values(), dtype=np.int64, count=len(self.index))
        return keys, self.state[slots]

    def restore(self, keys: Keys, state: Floats) -> None:
        """Take over keys and states saved by `arrays`."""
        self.index = {int(key): slot for slot, key in enumerate(keys)}
        self.state = state.copy() if len(state) else np.zeros((1024, len(FIELDS)))
        self.touched = np.zeros(len(self.state))

    def lookup(self, keys: Keys) -> Floats:
        """Return the states of these keys, zeros where a key was never seen."""
        found = np.zeros((len(keys), len(FIELDS)))
        for row, key in enumerate(keys):
            slot = self.index.get(int(key))
            if slot is not None:
                found[row] = self.state[slot]
        return found

    def _slots(self, distinct: Keys, now: float) -> Ints:
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
                [self.state, np.zeros((grown - len(self.state), len(FIELDS)))]
            )
            self.touched = np.concatenate([self.touched, np.zeros(grown - len(self.touched))])
        self.touched[slots] = now
        return slots

    def _forget(self) -> None:
        """Keep the half of the keys that was touched last."""
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
    """Events and questions in the order of time; every column has one entry per event."""

    time: Floats
    kind: npt.NDArray[np.int8]
    row: Ints  # number of the job in the stream
    submit: Floats
    start: Floats
    run: Floats  # NaN unless an END of a job that ran
    outcome: Floats  # NaN unless an END with a known outcome
    cpus: Floats
    requested_seconds: Floats
    static: npt.NDArray[np.float32]
    keys: Keys  # axes: (event, level)
    levels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.time)

    @property
    def is_question(self) -> npt.NDArray[np.bool_]:
        """True where a question stands, not an event."""
        return np.asarray(self.kind % 2 == 0)

    def key(self, level: str) -> Keys:
        """Return the keys of one level."""
        return self.keys[:, self.levels.index(level)]

    def take(self, index: npt.NDArray[np.generic] | slice) -> Events:
        """Return these events, in this order."""
        return Events(
            self.time[index],
            self.kind[index],
            self.row[index],
            self.submit[index],
            self.start[index],
            self.run[index],
            self.outcome[index],
            self.cpus[index],
            self.requested_seconds[index],
            self.static[index],
            self.keys[index],
            self.levels,
        )

    def without_passengers(self) -> Events:
        """Return the events without the columns that are only handed through: less to copy."""
        nothing = np.empty((len(self), 0))
        return replace(self, static=nothing.astype(np.float32), keys=nothing.astype(np.uint64))

    def in_order(self) -> Events:
        """Return the events in the order in which the world could have told them."""
        return self.take(np.lexsort((self.kind, self.row, self.kind == END, self.time)))


_EVENT_COLUMNS = tuple(field.name for field in fields(Events) if field.name != "levels")


def stream(
    blocks: Iterable[tuple[Facts, Sequence[Questions]]],
    history: History,
    events_per_step: int = 32_768,
) -> Iterator[tuple[Events, npt.NDArray[np.float32]]]:
    """Feed blocks of jobs (in submit order) through a history; yield questions and answers.

    Steps end after a fixed number of events from the start of the log, whatever the blocks: a
    log that is cut short gives bit by bit the same answers as far as it goes.
    """
    waiting: Events | None = None
    rows = 0
    for facts, questions in blocks:
        block = _events(facts, questions, rows)
        rows += len(facts)
        waiting = block if waiting is None else _join(waiting, block)
        waiting = waiting.in_order()
        # Later blocks bring nothing before this block's last submit.
        safe = (
            int(np.searchsorted(waiting.time, np.floor(facts.submit[-1]), side="left"))
            if len(facts)
            else 0
        )
        whole = safe - safe % events_per_step
        for begin in range(0, whole, events_per_step):
            yield _step(waiting.take(slice(begin, begin + events_per_step)), history)
        waiting = waiting.take(slice(whole, None))
    if waiting is not None:
        for begin in range(0, len(waiting), events_per_step):
            yield _step(waiting.take(slice(begin, begin + events_per_step)), history)


def questions_of(facts: Facts, questions: Sequence[Questions]) -> Events:
    """Return the questions alone, to be put to a history that is not to move."""
    events = _events(facts, questions, 0)
    return events.take(events.is_question).in_order()


def _step(events: Events, history: History) -> tuple[Events, npt.NDArray[np.float32]]:
    answers = history.advance(events)
    return events.take(events.is_question), answers


def _join(one: Events, other: Events) -> Events:
    columns: dict[str, npt.NDArray[Any]] = {
        name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in _EVENT_COLUMNS
    }
    return Events(**columns, levels=one.levels)


def _events(facts: Facts, questions: Sequence[Questions], first_row: int) -> Events:
    """Make events of jobs. Times are cut to whole seconds, which keeps sums exact."""
    levels = tuple(facts.keys)
    keys = (
        np.stack([facts.keys[level] for level in levels], axis=1)
        if levels
        else np.empty((len(facts), 0), dtype=np.uint64)
    )
    submit, start, end = np.floor(facts.submit), np.floor(facts.start), np.floor(facts.end)
    never = np.full(len(facts), np.nan)
    started, ended = np.isfinite(start), np.isfinite(end)
    every = np.arange(len(facts))
    parts = [
        (every, submit, SUBMIT, never, never),
        (every[started], start[started], START, never, never),
        (every[ended], np.maximum(end, submit)[ended], END, end - start, facts.outcome),
    ]
    parts += [(asked.rows, np.floor(asked.times), asked.kind, never, never) for asked in questions]
    rows = np.concatenate([part[0] for part in parts])
    kinds = np.concatenate([np.full(len(part[0]), part[2], dtype=np.int8) for part in parts])
    event_keys = keys[rows]
    for level in LEVELS_KNOWN_AT_START:
        if level in levels:  # before the start nobody knows where the job will run
            event_keys[kinds < ASK_AT_START, levels.index(level)] = 0
    return Events(
        time=np.concatenate([part[1] for part in parts]),
        kind=kinds,
        row=rows + first_row,
        submit=submit[rows],
        start=start[rows],
        run=np.concatenate([part[3][part[0]] for part in parts]),
        outcome=np.concatenate([part[4][part[0]] for part in parts]),
        cpus=facts.cpus[rows],
        requested_seconds=facts.requested_seconds[rows],
        static=facts.static[rows],
        keys=event_keys,
        levels=levels,
    )


Steps = Callable[[Events, npt.NDArray[np.bool_], Floats], tuple[Floats, Floats]]


def _probe(events: Events, segment: Ints, first: Ints, before: Floats, probes: Ints) -> Floats:
    """Return the state after the event at each probe; events are grouped by key."""
    state = np.empty((len(probes), len(FIELDS)))
    outcomes, submits = len(OUTCOME_FIELDS), len(OUTCOME_FIELDS) + len(SUBMIT_FIELDS)
    known = np.flatnonzero((events.kind == END) & np.isfinite(events.outcome))
    state[:, :outcomes] = _recur(
        _outcome_steps, events, segment, known, before[:, :outcomes], probes
    )
    submitted = np.flatnonzero(events.kind == SUBMIT)
    state[:, outcomes:submits] = _recur(
        _submit_steps, events, segment, submitted, before[:, outcomes:submits], probes
    )
    moves = np.cumsum(_queue_moves(events), axis=0)
    base = np.zeros((len(before), moves.shape[1]))
    base[1:] = moves[first[1:] - 1]
    state[:, submits:] = moves[probes] - (base - before[:, submits:])[segment[probes]]
    return state


def _recur(
    steps: Steps, events: Events, segment: Ints, chosen: Ints, before: Floats, probes: Ints
) -> Floats:
    """Run the recurrence of `steps` over the chosen events and read it off at the probes."""
    values = before[segment[probes]]
    if not len(chosen):
        return values
    groups = segment[chosen]
    opens = np.r_[True, groups[1:] != groups[:-1]]
    carried = before[groups[opens]]
    factors, terms = steps(events.take(chosen), opens, carried)
    # The first event of a key takes up what was known before this block; its factor becomes 0,
    # and so no product ever reaches into the key before it.
    terms[opens] += factors[opens] * carried
    factors[opens] = 0.0
    longest = int(np.max(np.diff(np.r_[np.flatnonzero(opens), len(chosen)])))
    _scan(factors, terms, longest)
    # The last chosen event at or before each probe, if it is of the same key.
    latest = np.searchsorted(chosen, probes, side="right") - 1
    same = (latest >= 0) & (groups[np.maximum(latest, 0)] == segment[probes])
    values[same] = terms[latest[same]]
    return values


def _scan(factors: Floats, terms: Floats, longest: int) -> None:
    """Solve x[i] = factors[i]*x[i-1] + terms[i] in place, in log2(longest) doubling steps."""
    reach = 1
    while reach < longest:
        terms[reach:] += factors[reach:] * terms[:-reach]
        factors[reach:] = factors[reach:] * factors[:-reach]
        reach *= 2


def _outcome_steps(
    events: Events,
    opens: npt.NDArray[np.bool_],
    carried: Floats,
) -> tuple[Floats, Floats]:
    count = len(events)
    factors = np.ones((count, len(OUTCOME_FIELDS)))
    terms = np.zeros((count, len(OUTCOME_FIELDS)))
    column = {name: index for index, name in enumerate(OUTCOME_FIELDS)}
    failed = events.outcome
    passed = 1.0 - failed
    long = (np.nan_to_num(events.run) > LONG_RUN_SECONDS).astype(np.float64)

    def put(name: str, factor: Floats | float, term: Floats | float) -> None:
        factors[:, column[name]], terms[:, column[name]] = factor, term

    put("outcomes", 1.0, 1.0)
    put("failures", 1.0, failed)
    put("failure_streak", failed, failed)
    put("success_streak", passed, passed)
    put("end_time", 0.0, events.time)
    put("failure_time", passed, failed * events.time)
    put("success_time", failed, passed * events.time)
    put("long_outcomes", 1.0, long)
    for name, fade in FADE_BY_OUTCOME.items():
        put(f"fail_{name}", fade, (1.0 - fade) * failed)
    few = FADE_BY_OUTCOME["few"]
    put("fail_long", np.where(long > 0, few, 1.0), long * (1.0 - few) * failed)
    previous = np.r_[0.0, events.time[:-1]]
    previous[opens] = carried[:, column["end_time"]]
    for name, hours in FADE_BY_HOURS.items():
        fade = np.exp2((previous - events.time) / (3600.0 * hours))
        put(f"fail_{name}", fade, failed)
        put(f"weight_{name}", fade, 1.0)
    run = np.maximum(np.nan_to_num(events.run), 0.0)
    log_run = np.log1p(run)
    request = np.nan_to_num(events.requested_seconds, nan=0.0)
    put("log_run", few, (1.0 - few) * log_run)
    put(
        "log_run_over_request",
        few,
        (1.0 - few) * np.where(request > 0, log_run - np.log1p(request), 0.0),
    )
    put("at_limit", few, (1.0 - few) * ((request > 0) & (run >= request)).astype(np.float64))
    return factors, terms


def _submit_steps(
    events: Events,
    opens: npt.NDArray[np.bool_],
    carried: Floats,
) -> tuple[Floats, Floats]:
    column = {name: index for index, name in enumerate(SUBMIT_FIELDS)}
    previous = np.r_[0.0, events.time[:-1]]
    previous[opens] = carried[:, column["submit_time"]]
    gap = events.time - previous
    one, zero = np.ones(len(events)), np.zeros(len(events))
    factors = {
        "submits": one,
        "submit_time": zero,
        "batch": (gap <= BATCH_GAP_SECONDS).astype(np.float64),
        "submit_rate": np.exp2(-gap / 3600.0),
        "log_request": zero,
        "log_cpus": zero,
    }
    terms = {
        "submits": one,
        "submit_time": events.time,
        "batch": one,
        "submit_rate": one,
        "log_request": np.log1p(np.nan_to_num(events.requested_seconds)),
        "log_cpus": np.log1p(np.nan_to_num(events.cpus)),
    }
    return (
        np.stack([factors[name] for name in SUBMIT_FIELDS], axis=1),
        np.stack([terms[name] for name in SUBMIT_FIELDS], axis=1),
    )


def _queue_moves(events: Events) -> Floats:
    """Return what each event adds to the numbers queued and running, and to their times."""
    started = np.isfinite(events.start)
    queued = (
        (events.kind == SUBMIT) * 1.0 - (events.kind == START) - ((events.kind == END) & ~started)
    )
    running = (events.kind == START) * 1.0 - ((events.kind == END) & started)
    return np.stack(
        [queued, queued * events.submit, running, running * np.nan_to_num(events.start)], axis=1
    )


def _features(state: Floats, asked: Events, names: Sequence[str]) -> npt.NDArray[np.float32]:
    """Turn the state of keys into features at the moments asked; NaN where nothing is known."""
    get = {name: state[:, index] for index, name in enumerate(FIELDS)}
    now = asked.time
    n, submits = get["outcomes"], get["submits"]
    none = n == 0
    log_request = np.where(
        asked.requested_seconds > 0, np.log1p(np.nan_to_num(asked.requested_seconds)), np.nan
    )

    def unless_none(values: Floats) -> Floats:
        return np.where(none, np.nan, values)

    def since(name: str) -> Floats:
        return np.where(get[name] > 0, np.log1p(np.maximum(now - get[name], 0.0)), np.nan)

    found: dict[str, Floats] = {
        "outcomes": np.log1p(n),
        "fail_rate": unless_none((get["failures"] + 0.4) / (n + 2.0)),
        "failure_streak": get["failure_streak"],
        "success_streak": get["success_streak"],
        "since_end": since("end_time"),
        "since_failure": since("failure_time"),
        "since_success": since("success_time"),
        "since_submit": since("submit_time"),
        "no_news": np.where(submits > 0, get["submit_time"] - get["end_time"] > 0, np.nan),
        "batch": np.where(now - get["submit_time"] <= BATCH_GAP_SECONDS, get["batch"], 0.0),
        "submit_rate": get["submit_rate"] * np.exp2((get["submit_time"] - now) / 3600.0),
        "request_change": np.where(submits > 0, log_request - get["log_request"], np.nan),
        "cpus_change": np.where(
            submits > 0, np.log1p(np.nan_to_num(asked.cpus)) - get["log_cpus"], np.nan
        ),
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        for name, fade in FADE_BY_OUTCOME.items():
            found[f"fail_{name}"] = get[f"fail_{name}"] / (1.0 - fade**n)
        few = FADE_BY_OUTCOME["few"]
        found["fail_long"] = get["fail_long"] / (1.0 - few ** get["long_outcomes"])
        faded = 1.0 - few**n
        for name in ("log_run", "log_run_over_request", "at_limit"):
            found[name] = get[name] / faded
        for name, hours in FADE_BY_HOURS.items():
            found[f"fail_{name}"] = get[f"fail_{name}"] / get[f"weight_{name}"]
            found[f"weight_{name}"] = np.log1p(
                get[f"weight_{name}"] * np.exp2((get["end_time"] - now) / (3600.0 * hours))
            )
        for name in ("queued", "running"):
            many = np.maximum(get[name], 0.0)
            found[name] = np.log1p(many)
            found[f"{name}_age"] = np.where(
                many > 0, np.log1p(np.maximum(now - get[f"{name}_since"] / many, 0.0)), np.nan
            )
    age = np.log1p(np.maximum(now - np.where(asked.kind == ASK_LATER, asked.start, now), 0.0))
    waited = np.log1p(np.maximum(now - asked.submit, 0.0))
    for name in ("submit", "end", "failure"):  # negative: since this job's own submit
        found[f"{name}_over_wait"] = found[f"since_{name}"] - waited
    found["request_over_run"] = log_request - found["log_run"]
    found["age_over_run"] = age - found["log_run"]
    features = np.empty((len(now), len(names)), dtype=np.float32)
    for place, name in enumerate(names):
        features[:, place] = found[name]
    return features


def _rank(values: Ints) -> Ints:
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


@lru_cache(maxsize=1 << 16)
def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _mix(values: Keys) -> Keys:
    """Scramble 64-bit numbers (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
