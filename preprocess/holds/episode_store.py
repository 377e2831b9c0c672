"""Hold episodes kept ready: advice on one job reads one row, whatever the size of the store.

`gather` goes on with the pass over the events (stream.py) after it has read them, and writes
each hold episode with its features, steps and outcome into tables of the same SQLite file; an
outcome that comes later replaces the earlier one. The state of the pass is written last, and
while a log is followed now and then only. After a `kill -9` the next pass goes on from the
state: what is ahead of it is dropped and worked out again, to the same bits.

Reading needs neither the pass nor its packages. The same tables in memory serve event logs
that no store has, so that advice has one way to its evidence.
"""

from __future__ import annotations

import io
import json
import math
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError
from condor_advice.gather.events import JobId
from condor_advice.gather.store import Store, microseconds
from condor_advice.preprocess.holds.facts import (
    CHUNK,
    END,
    FACTS_TABLE,
    Ends,
    Facts,
    cut_facts,
    facts_of,
    join_chunks,
    write_facts,
)
from condor_advice.preprocess.holds.job_numbers import cluster_of, job_number, job_parts

if TYPE_CHECKING:
    from condor_advice.preprocess.holds.known import KnownFacts
    from condor_advice.preprocess.holds.samples import Samples
    from condor_advice.preprocess.holds.stream import EpisodeBatch, EpisodeStream, Finished
    from condor_advice.preprocess.holds.timeline import Timeline

_P = ParamSpec("_P")
_T = TypeVar("_T")
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

KEPT_VERSION = 3
# While a log is followed, writing the state may take this share of the time.
STATE_SHARE = 0.02
# What writing the first state is taken to cost: a short pass writes its state once, at its end.
FIRST_STATE_SECONDS = 0.1
SIZES_KEPT = 64  # of each kin, the latest
# Evidence is looked for among so many of the latest episodes.
MOST_FACTS = 100_000
LATEST_PIECES = 2  # of a log, looked at for what is not kept
SQLITE_VALUES = 500  # in one statement
TERMINATED = 5
OVERRUN = -1  # the key of what jobs needed that had been over their memory

_SHAPE = ("job", "number", "time", "sequence", "code", "subcode", "family", "template", "point",
          "owner", "dag", "batch", "program", "stem", "run", "submitted", "starts")  # fmt: skip
_OUTCOME = ("outcome", "released", "decided", "decided_sequence", "released_sequence", "changed")
_COLUMNS = ("episode", *_SHAPE, *_OUTCOME, "reason", "features", "length", "steps")
_SELECTED = (*_COLUMNS, "template_name", "point_name", "owner_name")

EPISODE_TABLES = (
    """CREATE TABLE kept_pass (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        made_by TEXT NOT NULL,          -- see made_by()
        features TEXT NOT NULL,         -- their names, as JSON
        step_width INTEGER NOT NULL,
        last_us INTEGER,                -- the last event taken up
        taken_up_at REAL NOT NULL,
        state BLOB NOT NULL,
        state_episodes INTEGER NOT NULL
    )""",
    """CREATE TABLE kept_episodes (
        episode INTEGER PRIMARY KEY,
        job INTEGER NOT NULL,           -- see job_numbers.py
        number INTEGER NOT NULL,
        time INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        code INTEGER NOT NULL,
        subcode INTEGER NOT NULL,
        family INTEGER NOT NULL,
        template INTEGER NOT NULL,
        point INTEGER NOT NULL,
        owner INTEGER NOT NULL,
        dag INTEGER NOT NULL,
        batch INTEGER NOT NULL,
        program INTEGER NOT NULL,
        stem INTEGER NOT NULL,
        run REAL NOT NULL,
        submitted INTEGER NOT NULL,
        starts INTEGER NOT NULL,
        outcome INTEGER NOT NULL,
        released INTEGER NOT NULL,
        decided INTEGER NOT NULL,
        decided_sequence INTEGER NOT NULL,
        released_sequence INTEGER NOT NULL,
        changed INTEGER NOT NULL,
        reason TEXT NOT NULL,
        features BLOB NOT NULL,
        length INTEGER NOT NULL,
        steps BLOB NOT NULL
    )""",
    "CREATE INDEX kept_by_job ON kept_episodes (job, episode)",
    "CREATE INDEX kept_by_time ON kept_episodes (time)",
    "CREATE INDEX kept_open ON kept_episodes (job) WHERE decided < 0 AND released < 0",
    """CREATE TABLE kept_names (
        kind TEXT NOT NULL,             -- access_point, point, owner or template
        id INTEGER NOT NULL,
        name TEXT NOT NULL,
        PRIMARY KEY (kind, id)
    ) WITHOUT ROWID""",
    """CREATE TABLE kept_sizes (
        kin INTEGER PRIMARY KEY,        -- a cluster, a batch, or OVERRUN
        memory BLOB NOT NULL,           -- MB of the latest that succeeded, float32
        sequence INTEGER NOT NULL       -- place of the last event that counts in it
    )""",
    """CREATE TABLE kept_ends (
        id INTEGER PRIMARY KEY,
        cluster INTEGER NOT NULL,
        sequence INTEGER NOT NULL,      -- place of the first of these ends
        ends BLOB NOT NULL              -- see pack_ends
    )""",
    "CREATE INDEX kept_ends_by_cluster ON kept_ends (cluster, sequence)",
    FACTS_TABLE,
)
_TABLES = ("kept_pass", "kept_episodes", "kept_names", "kept_sizes", "kept_ends", "kept_facts")


@dataclass(frozen=True, slots=True)
class KeptEpisode:
    """One hold as it was known when it came, and what is known of its end by now."""

    episode: int
    job: JobId
    kin: tuple[int, ...]  # its cluster and its batch, as keys of sizes
    number: int  # 1 for the job's first hold
    time_us: int
    sequence: int
    code: int | None
    subcode: int | None
    family: int  # place in templates.FAMILIES
    template_id: int
    template: str
    point: str  # empty where none is known
    owner: str  # empty where it is not known
    reason: str
    outcome: int  # place in labels.OUTCOMES
    released_us: int | None
    decided_us: int | None
    features: Floats
    steps: Floats  # axes: (step, feature); the last row is the hold

    @property
    def is_open(self) -> bool:
        """Tell whether the job is still on hold, as far as its events tell."""
        return self.decided_us is None and self.released_us is None

    def is_held_before(self, time_us: int) -> bool:
        """Tell whether the job was in this hold right before a time."""
        ends = [end for end in (self.released_us, self.decided_us) if end is not None]
        return self.time_us < time_us <= min(ends, default=time_us)


class _Memory:
    """Tables that no file has."""

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None)

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        return self._db.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN")
        yield self._db
        self._db.execute("COMMIT")


def _decoded(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Report what a method of KeptEpisodes cannot decode as damage of its store."""

    @wraps(method)
    def decode(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        kept = cast(KeptEpisodes, args[0])
        with nullcontext() if kept._store is None else kept._store.decoding():
            return method(*args, **kwargs)

    return decode


class KeptEpisodes:
    """The kept hold episodes of a store, or of a timeline that no store has."""

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._tables: Store | _Memory = store or _Memory()
        self._stream: EpisodeStream | None = None
        self._after: dict[str, tuple[int, int]] = {}
        self.behind = False  # whether the last pass left events to the next one
        self._state_cost = FIRST_STATE_SECONDS
        self._state_at = time.time()
        self._state_sequence = -1
        self._names_written = {"access_point": 0, "point": 0, "owner": 0}
        self._templates_written: set[int] = set()

    @classmethod
    def of_timeline(cls, timeline: Timeline) -> KeptEpisodes:
        """Work off a timeline and keep its episodes in memory."""
        from condor_advice.preprocess.holds.stream import EpisodeStream

        kept = cls()
        timeline.names.reasons = {}
        kept._stream = stream = EpisodeStream(names=timeline.names)
        kept._write_all(stream, timeline, final=False)
        return kept

    # ---- writing

    def take_up(
        self,
        *,
        final: bool = True,
        stop: Callable[[], bool] = lambda: False,
        seconds: float = math.inf,
    ) -> int:
        """Go on with the pass over the store's events; return how many episodes are new.

        `final` is for a process that ends here: it leaves the state behind even if that was
        done a moment ago. When `stop` says so, the rest is left to the next time; after so many
        `seconds`, too, unless some of it would then have to be done again (see `behind`).
        """
        from condor_advice.preprocess.holds.timeline import store_timeline

        assert self._store is not None
        stream = self._stream
        if stream is None:
            stream = self._stream = self._resume()
        stream.names.reasons = {}
        timeline = store_timeline(self._store, self._after, stream.names, stream.clocks)
        late = time.monotonic() + seconds
        self.behind = False

        def end() -> bool:
            self.behind = stop() or (timeline.settled and time.monotonic() > late)
            return self.behind

        def stopped() -> bool:
            self.behind = self.behind or stop()
            return self.behind

        timeline.stop = stopped
        return self._write_all(stream, timeline, final, end)

    def _write_all(
        self,
        stream: EpisodeStream,
        timeline: Timeline,
        final: bool,
        stop: Callable[[], bool] = lambda: False,
    ) -> int:
        before, events = stream.episodes, stream.sequence
        try:
            with self._tables.transaction() as db:
                self._prepare(db, stream)
            # Others may write, too, while the next batch is worked out.
            for batch in stream.run(timeline):
                with self._tables.transaction() as db:
                    self._write(db, batch, stream)
                    if timeline.settled:
                        self._write_pass(db, stream, final=False)
                        stream.names.reasons = {}  # those left are of copies
                if stop():
                    break
            if not timeline.settled:
                self._stream = None  # of several logs one is ahead: begin again from the last state
            elif stream.sequence > events or final or self._store is None:
                with self._tables.transaction() as db:
                    self._write_pass(db, stream, final)
        except BaseException:
            self._stream = None  # it is ahead of what was written: begin again from there
            raise
        return stream.episodes - before

    def _resume(self) -> EpisodeStream:
        """Take up the state that was left, or begin anew where there is none that fits."""
        from condor_advice.preprocess.holds.stream import EpisodeStream

        self._after, self._state_sequence = {}, -1
        self._names_written = dict.fromkeys(self._names_written, 0)
        self._templates_written = set()
        if self._has_tables():
            saved = self._tables.rows("SELECT made_by, state FROM kept_pass")
            if saved and saved[0][0] == made_by() and saved[0][1]:
                try:
                    stream, self._after = EpisodeStream.restore(io.BytesIO(saved[0][1]))
                    self._note_names(stream)
                    return stream
                except (ValueError, KeyError, OSError):
                    pass  # all that is kept can be worked out again
        return EpisodeStream()

    def _note_names(self, stream: EpisodeStream) -> None:
        names = stream.names
        self._names_written = {
            "access_point": len(names.access_points),
            "point": len(names.points),
            "owner": len(names.owners),
        }
        self._templates_written = set(names.templates)

    def _prepare(self, db: sqlite3.Connection, stream: EpisodeStream) -> None:
        """Make the tables, or drop from them what is ahead of the state of the pass."""
        known = db.execute("SELECT name FROM sqlite_master WHERE name = 'kept_pass'").fetchone()
        fits = known and [made_by()] in map(list, db.execute("SELECT made_by FROM kept_pass"))
        if not fits:
            for table in _TABLES:
                db.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in EPISODE_TABLES:
                db.execute(statement)
            return
        [last] = db.execute("SELECT max(episode) FROM kept_episodes").fetchone()
        if last is not None and last >= stream.episodes:
            db.execute("DELETE FROM kept_episodes WHERE episode >= ?", (stream.episodes,))
            cut_facts(db, stream.episodes)
        ahead = db.execute("SELECT sequence FROM kept_ends ORDER BY id DESC LIMIT 1").fetchone()
        if ahead is not None and ahead[0] >= stream.sequence:
            db.execute("DELETE FROM kept_ends WHERE sequence >= ?", (stream.sequence,))
        for kind, count in self._names_written.items():
            db.execute("DELETE FROM kept_names WHERE kind = ? AND id >= ?", (kind, count))

    def _write(self, db: sqlite3.Connection, batch: EpisodeBatch, stream: EpisodeStream) -> None:
        texts = stream.names.reasons or {}
        episodes = batch.episodes
        shape = [episodes[name].tolist() for name in ("episode", *_SHAPE)]
        holds = [episodes[name].tolist() for name in ("job", "time", "template")]
        keys = list(zip(*holds, strict=True))
        reasons = [texts.get(key, "") for key in keys]
        ends = batch.outcomes
        fresh = ends["episode"] >= stream.episodes - len(episodes)
        own = ends[fresh][np.argsort(ends["episode"][fresh])]  # one of each new episode
        rows = zip(
            *shape,
            *(own[name].tolist() for name in _OUTCOME),
            reasons,
            pack_features(batch.features),
            np.diff(batch.offsets).tolist(),
            pack_steps(batch.steps, batch.offsets),
            strict=True,
        )
        db.executemany(
            f"INSERT OR REPLACE INTO kept_episodes ({', '.join(_COLUMNS)}) VALUES "
            f"({', '.join('?' * len(_COLUMNS))})",
            rows,
        )
        earlier = ends[~fresh]
        db.executemany(
            f"UPDATE kept_episodes SET {', '.join(f'{name} = ?' for name in _OUTCOME)}"
            " WHERE episode = ?",
            zip(*(earlier[name].tolist() for name in (*_OUTCOME, "episode")), strict=True),
        )
        write_facts(db, facts_of(episodes, own), earlier)
        for key in keys:
            texts.pop(key, None)
        self._write_names(db, stream)
        self._write_sizes(db, batch.finished)
        db.executemany(
            "INSERT INTO kept_ends (cluster, sequence, ends) VALUES (?, ?, ?)",
            pack_ends(batch.ends),
        )

    def _write_names(self, db: sqlite3.Connection, stream: EpisodeStream) -> None:
        names = stream.names
        tables: dict[str, Mapping[str, int]] = {
            "access_point": names.access_points,
            "point": names.points,
            "owner": names.owners,
        }
        for kind, known in tables.items():
            done = self._names_written[kind]
            if len(known) > done:
                # A dictionary keeps its order, and numbers are given in turn.
                new = [(kind, number, name) for name, number in list(known.items())[done:]]
                db.executemany("INSERT OR REPLACE INTO kept_names VALUES (?, ?, ?)", new)
                self._names_written[kind] = len(known)
        fresh = names.templates.keys() - self._templates_written
        if fresh:
            db.executemany(
                "INSERT OR REPLACE INTO kept_names VALUES ('template', ?, ?)",
                [(number, names.templates[number]) for number in fresh],
            )
            self._templates_written |= fresh

    def _write_sizes(self, db: sqlite3.Connection, finished: Finished) -> None:
        """Add what jobs that succeeded have used to what is known of their kin.

        An event that is worked off again, after a pass was cut short, is not counted again.
        """
        over = finished.overrun_sequence
        kin = np.concatenate((finished.kin, np.full(len(over), OVERRUN)))
        sequence = np.concatenate((finished.sequence, over))
        memory = np.concatenate((finished.memory, finished.overrun))
        if not len(kin):
            return
        order = np.lexsort((memory, sequence, kin))
        kin, sequence, memory = kin[order], sequence[order], memory[order]
        distinct, begins = np.unique(kin, return_index=True)
        known: dict[int, tuple[bytes, int]] = {}
        for keys in batched(distinct.tolist(), SQLITE_VALUES):
            marks = ",".join("?" * len(keys))
            rows = db.execute(f"SELECT * FROM kept_sizes WHERE kin IN ({marks})", keys)
            known.update((key, (sizes, last)) for key, sizes, last in rows)
        new = []
        for key, begin, end in zip(
            distinct.tolist(), begins.tolist(), [*begins[1:].tolist(), len(kin)], strict=True
        ):
            sizes, last = known.get(key, (b"", -1))
            begin += int(np.searchsorted(sequence[begin:end], last, "right")) if last >= 0 else 0
            if begin < end:
                added = sizes + memory[begin:end].tobytes()
                new.append((key, added[-4 * SIZES_KEPT :], int(sequence[end - 1])))
        db.executemany("INSERT OR REPLACE INTO kept_sizes VALUES (?, ?, ?)", new)

    def _write_pass(self, db: sqlite3.Connection, stream: EpisodeStream, final: bool) -> None:
        """Note how far the pass is, and its state when that is due."""
        from condor_advice.preprocess.holds.features import FEATURE_NAMES

        now = time.time()
        last = stream.now if stream.sequence else None
        db.execute(
            "INSERT INTO kept_pass VALUES (1, ?, ?, ?, ?, ?, x'', 0) ON CONFLICT (id) DO UPDATE"
            " SET last_us = excluded.last_us, taken_up_at = excluded.taken_up_at",
            (made_by(), json.dumps(FEATURE_NAMES), stream.spec.num_features, last, now),
        )
        due = now - self._state_at > self._state_cost / STATE_SHARE
        left = stream.sequence == self._state_sequence  # by the batch that happened to be the last
        if self._store is None or left or not (final or due):
            return
        state = io.BytesIO()
        stream.dump(state, self._after)
        db.execute(
            "UPDATE kept_pass SET state = ?, state_episodes = ?",
            (state.getbuffer(), stream.episodes),
        )
        self._state_at, self._state_cost = time.time(), time.time() - now
        self._state_sequence = stream.sequence

    # ---- reading

    def _has_tables(self) -> bool:
        return bool(self._tables.rows("SELECT 1 FROM sqlite_master WHERE name = 'kept_pass'"))

    @cached_property
    @_decoded
    def ready(self) -> bool:
        """Tell whether there is anything kept that this version can read."""
        if not self._has_tables():
            return False
        saved = self._tables.rows("SELECT made_by FROM kept_pass")
        return bool(saved) and saved[0][0].split(" ")[0] == str(KEPT_VERSION)

    @cached_property
    @_decoded
    def _shape(self) -> tuple[tuple[str, ...], int]:
        [[names, width]] = self._tables.rows("SELECT features, step_width FROM kept_pass")
        return tuple(json.loads(names)), int(width)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in their order."""
        return self._shape[0]

    @_decoded
    def taken_up(self) -> tuple[float | None, float]:
        """Return when the last event happened that was taken up, and when that was done."""
        [[last, at]] = self._tables.rows("SELECT last_us, taken_up_at FROM kept_pass")
        return None if last is None else last / 1e6, float(at)

    @cached_property
    @_decoded
    def last_us(self) -> int | None:
        """When the last event happened that was taken up, in microseconds."""
        [[last]] = self._tables.rows("SELECT last_us FROM kept_pass")
        return None if last is None else int(last)

    @cached_property
    @_decoded
    def access_points(self) -> dict[int, str]:
        """The access points by their number."""
        names = self._tables.rows("SELECT id, name FROM kept_names WHERE kind = 'access_point'")
        return dict(names)

    def find(
        self, cluster: int, proc: int, number: int | None = None, access_point: str | None = None
    ) -> KeptEpisode | None:
        """Return a job's hold by its number, or its last one; None without any."""
        numbers = self._job_numbers(cluster, proc, access_point)
        episodes: list[KeptEpisode] = []
        for job in numbers:
            chosen = "" if number is None else "AND number = ?"
            values = [job] if number is None else [job, number]
            episodes += self._select(f"job = ? {chosen} ORDER BY episode DESC LIMIT 1", values)
        return max(episodes, key=lambda one: one.episode, default=None)

    def holds_of(
        self, cluster: int, first: int, last: int, access_point: str | None = None
    ) -> list[KeptEpisode]:
        """Return all holds of a range of a cluster's procs, by proc and in order."""
        episodes: list[KeptEpisode] = []
        ends = zip(
            self._job_numbers(cluster, first, access_point),
            self._job_numbers(cluster, last, access_point),
            strict=True,
        )
        for low, high in ends:
            episodes += self._select("job BETWEEN ? AND ? ORDER BY job, episode", (low, high))
        return episodes

    def open_holds(self, owner: str | None = None) -> list[KeptEpisode]:
        """Return the holds that have not ended, as far as the events tell."""
        where = "decided < 0 AND released < 0"
        if owner is not None:
            where += " AND owner = (SELECT id FROM kept_names WHERE kind = 'owner' AND name = ?)"
        return self._select(f"{where} ORDER BY job", () if owner is None else (owner,))

    def holds_before(self, time_us: int, owner: str | None = None) -> list[KeptEpisode]:
        """Return the holds that jobs were in right before a time; reads all episodes."""
        where = "time < ? AND (decided < 0 OR decided >= ?) AND (released < 0 OR released >= ?)"
        values: tuple[object, ...] = (time_us, time_us, time_us)
        if owner is not None:
            where += " AND owner = (SELECT id FROM kept_names WHERE kind = 'owner' AND name = ?)"
            values += (owner,)
        return self._select(f"{where} ORDER BY job", values)

    def every_hold(self) -> list[KeptEpisode]:
        """Return all holds, in the order of `samples`."""
        return self._select("1 ORDER BY episode", ())

    def numbered_holds(self, number: int, owner: str | None = None) -> list[KeptEpisode]:
        """Return the hold with this number of every job that has one; reads all episodes."""
        where = "number = ?"
        if owner is not None:
            where += " AND owner = (SELECT id FROM kept_names WHERE kind = 'owner' AND name = ?)"
        values = (number,) if owner is None else (number, owner)
        return self._select(f"{where} ORDER BY job", values)

    def knows_owners(self) -> bool:
        """Tell whether the events say whose jobs they are of."""
        return bool(self._tables.rows("SELECT 1 FROM kept_names WHERE kind = 'owner' LIMIT 1"))

    @_decoded
    def latest_of(self, jobs: Iterable[JobId]) -> dict[JobId, KeptEpisode]:
        """Return the last hold of each of these jobs that has any."""
        asked: dict[int, JobId] = {}
        for job in jobs:
            for number in self._job_numbers(job.cluster, job.proc, job.access_point):
                asked[number] = job
        numbers = list(asked)
        episodes = {}
        for some in batched(numbers, SQLITE_VALUES):
            marks = ",".join("?" * len(some))
            newest = f"SELECT max(episode) FROM kept_episodes WHERE job IN ({marks}) GROUP BY job"
            for one in self._select(f"kept_episodes.episode IN ({newest})", some):
                points = self._points_called(one.job.access_point)
                episodes[asked[int(job_number(points[0], one.job.cluster, one.job.proc))]] = one
        return episodes

    @_decoded
    def memory_of_kin(self, kin: Sequence[int]) -> Floats:
        """Return the memory that a job's kin used that succeeded, MB; of the first that has any."""
        for key in kin:
            sizes = self._tables.rows("SELECT memory FROM kept_sizes WHERE kin = ?", (key,))
            if sizes:
                return np.frombuffer(sizes[0][0], np.float32)
        return np.empty(0, np.float32)

    def disk_of_mates(self, cluster: int) -> Floats:
        """Return the disk that a cluster's jobs used that ended lately, MB; from their events.

        Few holds ask for it, and the 005 events that tell are long: they are not kept apart.
        """
        sizes: list[float] = []
        if self._store is not None:
            for piece in self._store.job_pieces(cluster, latest=LATEST_PIECES):
                columns = piece.columns
                columns.keep(columns.type == TERMINATED)
                for row in range(len(columns))[-SIZES_KEPT:]:
                    ad = columns.ad(row)
                    used = ad.get("DiskUsage")
                    if ad.get("ReturnValue") == 0 and isinstance(used, int | float):
                        sizes.append(used / 1024)
        return np.array(sizes[-SIZES_KEPT:], np.float32)

    def overruns(self) -> Floats:
        """Return what jobs needed that were held for memory and then succeeded.

        Each is the memory used in the end over that measured when it was stopped.
        """
        return self.memory_of_kin([OVERRUN])

    @_decoded
    def since_newest(self, count: int) -> float | None:
        """Return since when there are so many holds, to ask `samples` for no more; None: fewer."""
        times = self._tables.rows(
            "SELECT time FROM kept_episodes ORDER BY time DESC LIMIT 1 OFFSET ?", (count - 1,)
        )
        return times[0][0] / 1e6 if times else None

    @_decoded
    def samples(self, since: float | None = None, until: float | None = None) -> Samples:
        """Return the episodes held in [since, until), as the pass gives them."""
        from condor_advice.preprocess.holds.samples import Samples
        from condor_advice.preprocess.holds.steps import Names
        from condor_advice.preprocess.holds.stream import EPISODE, OUTCOME

        low = -(1 << 62) if since is None else int(since * 1e6)
        high = (1 << 62) if until is None else int(until * 1e6)
        rows = self._tables.rows(
            f"SELECT {', '.join(_COLUMNS)} FROM kept_episodes WHERE time >= ? AND time < ?"
            " ORDER BY episode",
            (low, high),
        )
        columns = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True)) if rows else {}
        episodes, outcomes = np.zeros(len(rows), EPISODE), np.zeros(len(rows), OUTCOME)
        for name in ("episode", *_SHAPE):
            episodes[name] = columns.get(name, ())
        for name in ("episode", *_OUTCOME):
            outcomes[name] = columns.get(name, ())
        names, width = self._shape
        known: dict[str, dict[Any, Any]] = {"access_point": {}, "point": {}, "owner": {}}
        templates = {}
        for kind, number, name in self._tables.rows("SELECT kind, id, name FROM kept_names"):
            if kind == "template":
                templates[number] = name
            else:
                known[kind][name] = number
        return Samples(
            episodes,
            unpack_features(columns.get("features", ()), len(names)),
            unpack_steps(columns.get("steps", ()), columns.get("length", ()), width),
            np.append(0, np.cumsum(np.array(columns.get("length", ()), np.int64))),
            outcomes,
            Names(known["access_point"], known["point"], known["owner"], templates),
            self._ends(low, high),
        )

    @_decoded
    def facts(self, since: int | None = None) -> Facts:
        """Return the facts of the latest episodes, and of all from number `since` on."""
        [[last]] = self._tables.rows("SELECT coalesce(max(chunk), 0) FROM kept_facts")
        first = last - MOST_FACTS // CHUNK + 1
        if since is not None:
            first = min(first, since // CHUNK)
        rows = self._tables.rows(
            "SELECT facts FROM kept_facts WHERE chunk >= ? ORDER BY chunk", (first,)
        )
        return join_chunks(chunk for (chunk,) in rows)

    @cached_property
    def known(self) -> KnownFacts:
        """Everything that is known about the holds, to be asked about any moment."""
        from condor_advice.preprocess.holds.known import KnownFacts

        return KnownFacts(self.facts(), self.ends_of)

    @_decoded
    def ends_of(self, clusters: Iterable[int], most: int) -> Ends:
        """Return how jobs of clusters ended that were never held, in order.

        Of each cluster that has more than `most`, the latest are enough, and some more may come.
        """
        rows: list[tuple[int, int, bytes]] = []
        for cluster in clusters:
            rows += self._tables.rows(
                "SELECT cluster, sequence, ends FROM kept_ends WHERE cluster = ?"
                " ORDER BY sequence DESC LIMIT ?",
                (cluster, most),
            )
        ends = unpack_ends(rows)
        return ends[np.argsort(ends["sequence"])]

    @_decoded
    def _ends(self, low: int, high: int) -> Ends:
        """Return how jobs ended in [low, high) that were never held, in order."""
        rows = self._tables.rows("SELECT cluster, sequence, ends FROM kept_ends ORDER BY id")
        ends = unpack_ends(rows)
        ends = ends[(ends["time"] >= low) & (ends["time"] < high)]
        return ends[np.argsort(ends["sequence"])]

    def _job_numbers(self, cluster: int, proc: int, access_point: str | None) -> list[int]:
        numbers = self._points_called(access_point)
        return [int(job_number(number, cluster, proc)) for number in numbers]

    @_decoded
    def _points_called(self, name: str | None) -> list[int]:
        """Return the access points that a name may mean: `ap1` is `ap1.example.org`, too."""
        known = self.access_points
        if name is None:
            return list(known)
        if exact := [number for number, full in known.items() if full == name]:
            return exact
        host = name.split("@")[-1]
        return [
            number
            for number, full in known.items()
            if full.split("@")[-1] == host or full.split("@")[-1].startswith(f"{host}.")
        ]

    @_decoded
    def _select(self, where: str, values: Sequence[object]) -> list[KeptEpisode]:
        columns = ", ".join(f"kept_episodes.{name}" for name in _COLUMNS)
        rows = self._tables.rows(
            f"SELECT {columns},"
            " (SELECT name FROM kept_names WHERE kind = 'template' AND id = template),"
            " (SELECT name FROM kept_names WHERE kind = 'point' AND id = point),"
            " (SELECT name FROM kept_names WHERE kind = 'owner' AND id = owner)"
            f" FROM kept_episodes WHERE {where}",
            values,
        )
        found = [dict(zip(_SELECTED, row, strict=True)) for row in rows]
        names, width = self._shape if rows else ((), 0)
        features = unpack_features([row["features"] for row in found], len(names))
        lengths = [row["length"] for row in found]
        steps = unpack_steps([row["steps"] for row in found], lengths, width)
        ends = np.cumsum(lengths, dtype=np.int64)
        return [
            self._episode(row, features[at], steps[ends[at] - row["length"] : ends[at]])
            for at, row in enumerate(found)
        ]

    def _episode(self, row: dict[str, Any], features: Floats, steps: Floats) -> KeptEpisode:
        access_point, cluster, proc = job_parts(row["job"])
        job = JobId(self.access_points[access_point], cluster, proc)
        kin = cluster_of(row["job"])
        told = row["code"] >= 0
        return KeptEpisode(
            episode=row["episode"],
            job=job,
            kin=(kin, row["batch"]) if row["batch"] else (kin,),
            number=row["number"],
            time_us=microseconds(row["time"]),
            sequence=row["sequence"],
            code=row["code"] if told else None,
            subcode=row["subcode"] if told else None,
            family=row["family"],
            template_id=row["template"],
            template=row["template_name"] or "",
            point=row["point_name"] or "",
            owner=row["owner_name"] or "",
            reason=row["reason"],
            outcome=row["outcome"],
            released_us=microseconds(row["released"]) if row["released"] >= 0 else None,
            decided_us=microseconds(row["decided"]) if row["decided"] >= 0 else None,
            features=features,
            steps=steps,
        )


def made_by() -> str:
    """Return what the kept rows depend on; rows made by anything else are made anew."""
    from condor_advice.preprocess.holds.features import FEATURE_NAMES
    from condor_advice.preprocess.holds.hold_reasons import signs_fingerprint
    from condor_advice.preprocess.holds.stream import STATE_VERSION
    from condor_advice.preprocess.holds.tensors import TensorSpec

    shape = zlib.crc32(repr((FEATURE_NAMES, TensorSpec().columns, TensorSpec())).encode())
    return f"{KEPT_VERSION} {STATE_VERSION} {shape:08x} {signs_fingerprint()}"


def kept_of(store: Store) -> KeptEpisodes:
    """Return a store's kept episodes; say how to make them where there are none."""
    kept = KeptEpisodes(store)
    if not kept.ready:
        raise AdviceError(
            f"{store.path}: no hold episodes are kept in it yet; run `condor-advice gather` once"
        )
    return kept


def batched(values: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Yield values some at a time."""
    for begin in range(0, len(values), size):
        yield values[begin : begin + size]


# ---- numbers as bytes: most features and steps are 0 or not known, and cost a bit each

_NAN_WORD = np.uint32(0x7FC00000)


def pack_features(features: Floats) -> list[bytes]:
    """Return each row as bytes that `unpack_features` turns back into the same bits."""
    words = np.ascontiguousarray(features, np.float32).view(np.uint32)
    unknown = words == _NAN_WORD
    other = (words != 0) & ~unknown
    masks = np.concatenate((np.packbits(other, axis=1), np.packbits(unknown, axis=1)), axis=1)
    values = words[other].tobytes()
    ends = 4 * np.cumsum(other.sum(axis=1))
    starts = np.append(0, ends)[:-1]
    return [
        mask.tobytes() + values[start:end]
        for mask, start, end in zip(masks, starts.tolist(), ends.tolist(), strict=True)
    ]


def unpack_features(packed: Sequence[bytes], width: int) -> Floats:
    """Return rows of features; axes: (episode, feature)."""
    size = (width + 7) // 8
    words = np.zeros((len(packed), width), np.uint32)
    if len(packed):
        masks = np.frombuffer(b"".join(one[: 2 * size] for one in packed), np.uint8)
        bits = np.unpackbits(masks.reshape(len(packed), 2, size), axis=2, count=width).view(bool)
        words[bits[:, 0]] = np.frombuffer(b"".join(one[2 * size :] for one in packed), np.uint32)
        words[bits[:, 1]] = _NAN_WORD
    return words.view(np.float32)


def pack_steps(steps: Floats, offsets: Ints) -> list[bytes]:
    """Return each episode's steps as bytes that `unpack_steps` turns back into the same bits."""
    words = np.ascontiguousarray(steps, np.float32).view(np.uint32)
    some = words != 0
    masks = np.packbits(some, axis=1)
    size = masks.shape[1]
    mask_bytes, values = masks.tobytes(), words[some].tobytes()
    ends = np.append(0, 4 * np.cumsum(some.sum(axis=1)))[offsets].tolist()
    rows = (offsets * size).tolist()
    return [
        mask_bytes[rows[at] : rows[at + 1]] + values[ends[at] : ends[at + 1]]
        for at in range(len(offsets) - 1)
    ]


def unpack_steps(packed: Sequence[bytes], lengths: Sequence[int], width: int) -> Floats:
    """Return the steps of all episodes, one after the other; axes: (step, feature)."""
    size = (width + 7) // 8
    pairs = list(zip(packed, lengths, strict=True))
    if any(not 0 <= n * size <= len(one) for one, n in pairs):
        raise ValueError("steps are cut short")
    words = np.zeros((sum(lengths), width), np.uint32)
    if len(packed):
        masks = np.frombuffer(b"".join(one[: n * size] for one, n in pairs), np.uint8)
        bits = np.unpackbits(masks.reshape(-1, size), axis=1, count=width).view(bool)
        words[bits] = np.frombuffer(b"".join(one[n * size :] for one, n in pairs), np.uint32)
    return words.view(np.float32)


# Behind the first end of a cluster: the others' distance to it in events, the time, and where the
# job was, with how it ended in the lowest bit.
_PACKED_END = np.dtype([("behind", "<u4"), ("time", "<i8"), ("point_good", "<u4")])


def pack_ends(ends: npt.NDArray[np.void]) -> list[tuple[int, int, bytes]]:
    """Return the ends of each cluster as (cluster, first sequence, bytes), in order."""
    if not len(ends):
        return []
    order = np.argsort(ends["cluster"], kind="stable")
    cluster, sequence = ends["cluster"][order], ends["sequence"][order]
    first = np.flatnonzero(np.r_[True, cluster[1:] != cluster[:-1]])
    sizes = np.diff(first, append=len(cluster))
    packed = np.empty(len(ends), _PACKED_END)
    packed["behind"] = sequence - np.repeat(sequence[first], sizes)
    packed["time"] = ends["time"][order]
    packed["point_good"] = (ends["point"][order] + 1) * 2 + ends["good"][order]
    data, width = packed.tobytes(), packed.dtype.itemsize
    edges = [width * at for at in [*first.tolist(), len(cluster)]]
    return [
        (key, begin, data[edges[at] : edges[at + 1]])
        for at, (key, begin) in enumerate(
            zip(cluster[first].tolist(), sequence[first].tolist(), strict=True)
        )
    ]


def unpack_ends(rows: Sequence[tuple[int, int, bytes]]) -> npt.NDArray[np.void]:
    """Return the ends that `pack_ends` packed, cluster by cluster."""
    packed = np.frombuffer(b"".join(data for _, _, data in rows), _PACKED_END)
    sizes = [len(data) // _PACKED_END.itemsize for _, _, data in rows]
    ends = np.empty(len(packed), END)
    ends["cluster"] = np.repeat(np.array([key for key, _, _ in rows], np.int64), sizes)
    first = np.repeat(np.array([begin for _, begin, _ in rows], np.int64), sizes)
    ends["sequence"] = first + packed["behind"]
    ends["time"] = packed["time"]
    ends["point"] = packed["point_good"].astype(np.int64) // 2 - 1
    ends["good"] = packed["point_good"] & 1
    return ends
