"""What happened around a hold: counts by reason, execution point, owner and cluster.

A *fact* is something that became known at one event: a hold, a release, an outcome. An
outcome is a fact of the event that decides it, the 005 or the next 012, and of no earlier one:
a release whose end is still open counts as a release and as nothing else.

A table keeps the facts of one level (all jobs, one reason, one execution point, ...) sorted by
key and by the order in which they became known, each with the counts up to it. So a question
("how many in the hour before?") is the difference of two rows, found by binary search, for
all questions of a batch at once. Counts are whole numbers: no answer depends on how the
events were cut into batches. Rows older than the longest window go, except each key's last.

In a storm of holds a day has more facts than memory should. So a window never reaches further
back than WINDOW_FACTS facts of the whole pool, however short that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from condor_advice.gather.words import distinct, stable_order

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Small = npt.NDArray[np.uint32]
Bools = npt.NDArray[np.bool_]

SECOND = 1_000_000
CONTEXT_WINDOWS = {"10m": 600, "1h": 3600, "1d": 86400}
# What a hold and its release lead to, and what jobs do anyway.
HOLD_FACTS = ("hold", "release", "good", "bad", "quick")
TRAFFIC_FACTS = ("submit", "start", "success", "failure", "eviction")
TIMED_FACTS = ("good", "bad")  # when they were last seen is kept, too
# A key that nothing was heard of for so long is forgotten, so that memory stays flat.
FORGET_SECONDS = 30 * 86400
# There are new clusters all the time, and most are over soon.
FORGET_CLUSTER_SECONDS = 3 * 86400

# Counted from here a log's seconds are above zero even where its year was guessed wrongly.
_FIRST_SECOND = -(1 << 34)
_ORDER_BITS = 36  # of the second or the sequence number, below the key
_NEVER = (1 << 32) - 1
WINDOW_FACTS = 1 << 17  # of holds, and as many of what jobs do anyway
MOST_SPAN = 1 << 18  # of keys that are looked up in a table


def seconds(clock: Ints) -> Ints:
    """Return whole seconds, above zero, of a clock in microseconds."""
    found: Ints = np.maximum(clock // SECOND - _FIRST_SECOND, 0)
    return found


@dataclass(slots=True)
class Answer:
    """What a table knows of one key at one moment, for each question."""

    total: Ints  # axes: (question, fact); since the key was first heard of
    last: Ints  # axes: (question, timed fact); second of the last one, -1 for never
    last_sequence: Ints  # axes: (question, timed fact); -1 for never
    recent: Mapping[str, Ints]  # window -> axes: (question, fact)


class FactTable:
    """The facts of one level.

    A pool has hundreds of thousands of rows within a day, so they are kept narrow: when a fact
    was last seen is told by how long before the row that was.
    """

    COLUMNS = ("key", "sequence", "second", "count", "ago", "ago_sequence")

    def __init__(
        self, facts: Sequence[str], windows: Sequence[str], forget: int = FORGET_SECONDS
    ) -> None:
        self.facts, self.windows, self.forget_seconds = tuple(facts), tuple(windows), forget
        self.longest = max(CONTEXT_WINDOWS[name] for name in windows)
        self._timed = np.array([n for n, fact in enumerate(facts) if fact in TIMED_FACTS], np.int64)
        width, timed = len(self.facts), len(self._timed)
        self.key = np.empty(0, np.uint32)
        self.sequence = np.empty(0, np.int64)
        self.second = np.empty(0, np.int64)
        self.count = np.empty((0, width), np.uint32)
        self.ago = np.empty((0, timed), np.uint32)  # seconds
        self.ago_sequence = np.empty((0, timed), np.uint32)

    def __len__(self) -> int:
        return len(self.key)

    def add(self, key: Ints, sequence: Ints, second: Ints, fact: Ints) -> None:
        """Add facts, in the order in which they became known; keys below zero are none."""
        real = np.flatnonzero(key >= 0)
        if not len(real):
            return
        order = real[stable_order(key[real])]
        key, sequence, second, fact = key[order], sequence[order], second[order], fact[order]
        count, last, last_sequence = self._running(key, sequence, second, fact)
        # Old rows come first among those of a key: they became known before the new ones.
        place = np.searchsorted(self.key, key, side="right")
        for name, new in (
            ("key", key),
            ("sequence", sequence),
            ("second", second),
            ("count", count),
            ("ago", _ago(last, second)),
            ("ago_sequence", _ago(last_sequence, sequence)),
        ):
            setattr(self, name, np.insert(getattr(self, name), place, new, axis=0))

    def _running(
        self, key: Ints, sequence: Ints, second: Ints, fact: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """Return counts and last times up to each new fact, going on from the key's last row."""
        width = len(self.facts)
        rows = len(key)
        # A run is what a key knows without having been forgotten in between.
        begins = np.r_[True, key[1:] != key[:-1]]
        begins[1:] |= second[1:] - second[:-1] > self.forget_seconds
        first = np.maximum.accumulate(np.where(begins, np.arange(rows), 0))
        is_fact = fact[:, None] == np.arange(width)
        before = np.cumsum(is_fact, axis=0) - is_fact
        count = before + is_fact - before[first]
        index = np.where(is_fact[:, self._timed], np.arange(rows)[:, None], -1)
        index = np.maximum.accumulate(index, axis=0)
        seen = index >= first[:, None]
        last = np.where(seen, second[index], -1)
        last_sequence = np.where(seen, sequence[index], -1)
        if len(self.key):
            old = np.searchsorted(self.key, key[first], side="right") - 1
            known = (old >= 0) & (self.key[old] == key) & (np.r_[-1, key[:-1]][first] != key)
            known &= second[first] - self.second[old] <= self.forget_seconds
            count += np.where(known[:, None], self.count[old], 0)
            carry = known[:, None] & ~seen
            last = np.where(carry, self._last(old), last)
            last_sequence = np.where(carry, self._last_sequence(old), last_sequence)
        return count, last, last_sequence

    def window_edge(self, sequence: Ints) -> Ints | None:
        """Return up to which event facts are too many ago, for a table with one key; None: none."""
        if len(self) <= WINDOW_FACTS:
            return None
        row = np.searchsorted(self.sequence, sequence, side="right") - 1 - WINDOW_FACTS
        return np.where(row >= 0, self.sequence[np.maximum(row, 0)], -1)

    def ask(self, key: Ints, sequence: Ints, second: Ints, edge: Ints | None = None) -> Answer:
        """Answer for each key as of the event with this sequence number, that one included.

        What was known at the event `edge` is in no window.
        """
        row, known = self._row_at(key, sequence, second)
        some = known[:, None]
        total = np.where(some, self._take(self.count, row), 0)
        last = np.where(some, self._last(row), -1)
        last_sequence = np.where(some, self._last_sequence(row), -1)
        assert total.shape == (len(key), len(self.facts))
        recent = self._recent(key, second, row, known, total, edge)
        return Answer(total, last, last_sequence, recent)

    def recent_in_order(
        self, sequence: Ints, second: Ints, asked: Sequence[tuple[str, str]]
    ) -> list[Ints]:
        """Answer for events in order with the counts of facts within windows.

        For a table with one key. `asked` names a window and a fact for each answer.
        """
        if not len(self):
            return [np.zeros(len(sequence), np.int64) for _ in asked]
        row = np.searchsorted(self.sequence, sequence, side="right") - 1
        unbroken = self.second[-1] - self.second[0] <= self.forget_seconds
        known = row >= 0
        row = np.maximum(row, 0)
        known &= second - self.second[row] <= self.forget_seconds
        all_known = bool(known.all())
        begins = np.flatnonzero(np.r_[True, second[1:] != second[:-1]])
        lengths = np.diff(begins, append=len(second))
        distinct = second[begins]
        edge = self.window_edge(sequence)
        if edge is not None:
            edge = np.searchsorted(self.sequence, edge, side="right") - 1
            # The edge moves with each event.
            begins, lengths, distinct = np.arange(len(second)), np.ones(len(second), int), second
        starts: dict[str, tuple[Ints, Bools | None]] = {}
        for window in dict.fromkeys(window for window, _ in asked):
            since = np.maximum(distinct - CONTEXT_WINDOWS[window], 0)
            start = np.searchsorted(self.second, since, side="right") - 1
            if edge is not None:
                start = np.maximum(start, edge)
            counted = None
            if not unbroken:
                begin = np.repeat(np.maximum(start, 0), lengths)
                pause = self.second[np.minimum(begin + 1, row)] - self.second[begin]
                counted = pause <= self.forget_seconds
            starts[window] = start, counted
        answers = []
        for window, fact in asked:
            count = self.count[:, self.facts.index(fact)].astype(np.int64)
            start, counted = starts[window]
            before = np.repeat(np.where(start >= 0, count[np.maximum(start, 0)], 0), lengths)
            if counted is not None:
                before *= counted
            answer = count[row] - before
            answers.append(answer if all_known else answer * known)
        return answers

    def _row_at(self, key: Ints, sequence: Ints, second: Ints) -> tuple[Ints, Bools]:
        """Return the last row of each key as of an event, and whether there is one."""
        asked = np.maximum(key, 0)
        ordered = (self.key.astype(np.int64) << _ORDER_BITS) + self.sequence
        row = np.searchsorted(ordered, (asked << _ORDER_BITS) + sequence, side="right") - 1
        row, known = self._same_key(row, asked, key)
        known &= second - self._take(self.second, row) <= self.forget_seconds
        return row, known

    def _recent(
        self, key: Ints, second: Ints, row: Ints, known: Bools, total: Ints, edge: Ints | None
    ) -> dict[str, Ints]:
        """Return the counts within each window, where `total` is all up to `row`."""
        asked = np.maximum(key, 0)
        timed = (self.key.astype(np.int64) << _ORDER_BITS) + self.second
        far = None
        if edge is not None:
            ordered = (self.key.astype(np.int64) << _ORDER_BITS) + self.sequence
            far = np.searchsorted(ordered, (asked << _ORDER_BITS) + edge, side="right") - 1
        recent = {}
        for name in self.windows:
            since = (asked << _ORDER_BITS) + np.maximum(second - CONTEXT_WINDOWS[name], 0)
            start = np.searchsorted(timed, since, side="right") - 1
            if far is not None:
                start = np.maximum(start, far)
            start, earlier = self._same_key(start, asked, key)
            # A row from before the key was forgotten is not part of today's counts.
            behind = np.minimum(start + 1, row)
            pause = self._take(self.second, behind) - self._take(self.second, start)
            counted = (earlier & known & (pause <= self.forget_seconds))[:, None]
            recent[name] = total - np.where(counted, self._take(self.count, start), 0)
        return recent

    def _same_key(self, row: Ints, asked: Ints, key: Ints) -> tuple[Ints, Bools]:
        inside = np.maximum(row, 0)
        same = (row >= 0) & (key >= 0) & (self._take(self.key, inside) == asked)
        return inside, same

    def _take(self, column: Ints | Small, row: Ints) -> Ints:
        if len(column):
            return column[row].astype(np.int64)
        return np.zeros((len(row), *column.shape[1:]), np.int64)

    def _last(self, row: Ints) -> Ints:
        return _before(self._take(self.ago, row), self._take(self.second, row))

    def _last_sequence(self, row: Ints) -> Ints:
        return _before(self._take(self.ago_sequence, row), self._take(self.sequence, row))

    def forget(self, now: int, edge: int = -1) -> Small:
        """Drop what no question can reach any more; return the keys that are left, in order.

        Facts from before the event `edge` are in no window.
        """
        if len(self.key):
            final = np.r_[self.key[1:] != self.key[:-1], True]
            # The last row before the window opens is what the window's counts start from.
            old = (self.second < now - self.longest) | (self.sequence < edge)
            next_old = np.r_[old[1:], False] & ~final
            kept = ~(old & next_old)
            kept &= self.second >= now - self.forget_seconds - self.longest
            if not kept.all():
                for name in self.COLUMNS:
                    setattr(self, name, getattr(self, name)[kept])
        left: Small = self.key[np.diff(self.key, prepend=_NEVER) != 0]
        return left

    def renumber(self, alive: Small) -> None:
        """Give keys the place that they have among those alive."""
        self.key = np.searchsorted(alive, self.key).astype(np.uint32)


def _ago(last: Ints, here: Ints) -> Small:
    """Tell the last times of each row by how long before it they were."""
    ago = np.clip(here[:, None] - last, 0, _NEVER - 1)
    return np.where(last < 0, _NEVER, ago).astype(np.uint32)


def _before(ago: Ints, here: Ints) -> Ints:
    """Return the last times that `_ago` was told of; -1 for never."""
    return np.where(ago == _NEVER, -1, here[:, None] - ago)


@dataclass(slots=True)
class ContextLevel:
    """One way to group jobs: the numbers of its keys, and the facts of each."""

    holds: FactTable
    traffic: FactTable | None
    keys: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # in order
    places: Small = field(default_factory=lambda: np.empty(0, np.uint32))  # number of each key
    next_key: int = 0

    def numbers(self, keys: Ints) -> Ints:
        """Return dense numbers for keys, -1 for those below zero."""
        real = keys >= 0
        if not real.any():
            return np.full(len(keys), -1, np.int64)
        low, high = int(keys[real].min()), int(keys.max())
        if high - low >= MOST_SPAN:
            distinct_keys, which = np.unique(keys, return_inverse=True)
            self._add_keys(distinct_keys[distinct_keys >= 0])
            place = np.searchsorted(self.keys, np.maximum(distinct_keys, self.keys[0]))
            return np.where(real, self.places[place].astype(np.int64)[which], -1)
        # Numbers of clusters and points are close to each other: a table is faster than sorting.
        found = self._table(low, high)[np.maximum(keys, low) - low]
        if (unknown := (found < 0) & real).any():
            self._add_keys(distinct(keys[unknown]))
            found = self._table(low, high)[np.maximum(keys, low) - low]
        return np.where(real, found, -1)

    def _table(self, low: int, high: int) -> Ints:
        """Return the numbers of all keys in a range, -1 for those that have none."""
        table = np.full(high - low + 1, -1, np.int64)
        known = slice(*np.searchsorted(self.keys, (low, high + 1)).tolist())
        table[self.keys[known] - low] = self.places[known]
        return table

    def _add_keys(self, keys: Ints) -> None:
        """Give numbers to those keys, all different and in order, that have none."""
        place = np.searchsorted(self.keys, keys)
        new = np.ones(len(keys), np.bool_)
        inside = place < len(self.keys)
        new[inside] = self.keys[place[inside]] != keys[inside]
        fresh = self.next_key + np.arange(int(new.sum()))
        self.keys = np.insert(self.keys, place[new], keys[new])
        self.places = np.insert(self.places, place[new], fresh)
        self.next_key += len(fresh)

    def forget(self, now: int, hold_edge: int, traffic_edge: int) -> None:
        """Drop old facts, and keys that have none left; close the gaps in their numbers."""
        left = [self.holds.forget(now, hold_edge)]
        tables = [self.holds]
        if self.traffic is not None:
            left.append(self.traffic.forget(now, traffic_edge))
            tables.append(self.traffic)
        alive = distinct(np.concatenate(left))
        if len(alive) > 0.7 * len(self.keys):
            return
        kept = np.isin(self.places, alive)
        self.keys = self.keys[kept]
        self.places = np.searchsorted(alive, self.places[kept]).astype(np.uint32)
        self.next_key = len(alive)
        for table in tables:
            table.renumber(alive)


# level -> whether it counts what jobs do anyway, too
CONTEXT_LEVELS: Mapping[str, bool] = {
    "pool": True,
    "family": False,
    "template": False,
    "point": True,
    "point_template": False,
    "owner": True,
    "owner_family": False,
    "cluster": True,
    "cluster_template": False,
}


class Context:
    """The facts of every level."""

    def __init__(self) -> None:
        self.levels = {}
        for name, traffic in CONTEXT_LEVELS.items():
            forget = FORGET_CLUSTER_SECONDS if name.startswith("cluster") else FORGET_SECONDS
            self.levels[name] = ContextLevel(
                FactTable(HOLD_FACTS, ("10m", "1h", "1d"), forget),
                FactTable(TRAFFIC_FACTS, ("1h",), forget) if traffic else None,
            )

    def add_holds(self, keys: Mapping[str, Ints], sequence: Ints, second: Ints, fact: Ints) -> None:
        """Add facts about holds; `keys` has the key of each fact in every level."""
        for name, level in self.levels.items():
            level.holds.add(level.numbers(keys[name]), sequence, second, fact)

    def add_traffic(
        self, keys: Mapping[str, Ints], sequence: Ints, second: Ints, fact: Ints
    ) -> None:
        """Add facts about what jobs do anyway."""
        for name, level in self.levels.items():
            if level.traffic is not None:
                level.traffic.add(level.numbers(keys[name]), sequence, second, fact)

    def ask(
        self, keys: Mapping[str, Ints], sequence: Ints, second: Ints
    ) -> dict[str, tuple[Answer, Answer | None]]:
        """Answer for all levels, as of these events, themselves included."""
        pool = self.levels["pool"]
        assert pool.traffic is not None
        hold_edge = pool.holds.window_edge(sequence)
        traffic_edge = pool.traffic.window_edge(sequence)
        answers = {}
        for name, level in self.levels.items():
            number = level.numbers(keys[name])
            traffic = None
            if level.traffic is not None:
                traffic = level.traffic.ask(number, sequence, second, traffic_edge)
            answers[name] = level.holds.ask(number, sequence, second, hold_edge), traffic
        return answers

    def forget(self, now: int) -> None:
        """Drop what no question can reach any more."""
        pool = self.levels["pool"]
        assert pool.traffic is not None
        edges = [
            int(table.sequence[-1 - WINDOW_FACTS]) if len(table) > WINDOW_FACTS else -1
            for table in (pool.holds, pool.traffic)
        ]
        for level in self.levels.values():
            level.forget(now, *edges)

    def __len__(self) -> int:
        """Count the rows kept."""
        tables = (t for level in self.levels.values() for t in (level.holds, level.traffic))
        return sum(len(table) for table in tables if table is not None)
