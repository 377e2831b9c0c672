"""Keep events, and how far each log has been read, in one SQLite file.

The store keeps the log itself: consecutive pieces of its bytes, compressed, each with the columns
decoded from it and an index of the jobs in it. So nothing in a log is lost, an improved reader can
read it again, and a million events take a few hundred rows instead of a million. A piece and its
cursor are committed together: after a `kill -9` at any moment, the next reader continues exactly
where the stored pieces end.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError, Unreachable
from condor_advice.gather.events import MAX_TYPE
from condor_advice.gather.files import UnsafeFile, check_trusted, open_lock, private_directory
from condor_advice.gather.fresh import STORE_START, FreshBlock, FreshBlocks, StorePosition
from condor_advice.gather.words import distinct

if TYPE_CHECKING:
    # Who only looks something up in a store need not wait for the reader of logs.
    from condor_advice.gather.reader import EventColumns, Oddity

APPLICATION_ID = 0xC0AD71CE - (1 << 32)  # marks the file as ours; SQLite wants it signed
# A small piece is merged with the next one until it has this many bytes, so that following
# a quiet log does not leave thousands of tiny pieces behind.
MERGE_BYTES = 256 * 1024
MAX_ODDITIES_PER_LOG = 1000
BUSY_SECONDS = 10.0

# Each entry brings a store from its index to the next schema version; they only ever grow.
MIGRATIONS = [
    """
    CREATE TABLE logs (
        id INTEGER PRIMARY KEY,
        path TEXT NOT NULL UNIQUE,
        access_point TEXT NOT NULL,
        device INTEGER NOT NULL,
        inode INTEGER NOT NULL,
        head BLOB NOT NULL,
        head_length INTEGER NOT NULL,
        offset INTEGER NOT NULL,
        tail BLOB NOT NULL,
        state TEXT NOT NULL,
        sequence INTEGER,
        read_at REAL NOT NULL
    );
    CREATE TABLE pieces (
        id INTEGER PRIMARY KEY,
        log INTEGER NOT NULL REFERENCES logs (id),
        base INTEGER NOT NULL,          -- where the piece begins in its file
        bytes INTEGER NOT NULL,
        events INTEGER NOT NULL,
        first_us INTEGER,               -- earliest and latest event, UTC microseconds
        last_us INTEGER,
        columns BLOB NOT NULL,
        text BLOB NOT NULL
    );
    CREATE INDEX pieces_by_log ON pieces (log, id);
    CREATE TABLE jobs (
        job INTEGER NOT NULL,           -- cluster * 2^32 + proc
        piece INTEGER NOT NULL,
        PRIMARY KEY (job, piece)
    ) WITHOUT ROWID;
    CREATE TABLE event_counts (
        log INTEGER NOT NULL,
        type INTEGER NOT NULL,
        events INTEGER NOT NULL,
        PRIMARY KEY (log, type)
    ) WITHOUT ROWID;
    CREATE TABLE oddity_counts (
        log INTEGER NOT NULL,
        kind TEXT NOT NULL,
        oddities INTEGER NOT NULL,
        PRIMARY KEY (log, kind)
    ) WITHOUT ROWID;
    CREATE TABLE oddities (
        id INTEGER PRIMARY KEY,
        log INTEGER NOT NULL,
        offset INTEGER NOT NULL,
        kind TEXT NOT NULL,
        excerpt TEXT NOT NULL
    );
    CREATE TABLE gaps (
        id INTEGER PRIMARY KEY,
        log TEXT NOT NULL,
        found_at REAL NOT NULL,
        reason TEXT NOT NULL,
        bytes_lost INTEGER,
        events_lost INTEGER,
        after_sequence INTEGER,
        before_sequence INTEGER
    );
    """,
]


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far one log has been read, and how to recognise its file."""

    log: str  # the path under which it is followed
    access_point: str
    device: int
    inode: int
    head: bytes  # digest of the file's first bytes
    head_length: int
    offset: int
    tail: bytes  # digest of the bytes just before the offset
    state: str  # the reader's own, as JSON
    sequence: int | None  # in the header of a global event log
    read_at: float


@dataclass(frozen=True, slots=True)
class Gap:
    """A part of a log that was lost before it could be read."""

    log: str
    found_at: float
    reason: str
    bytes_lost: int | None
    events_lost: int | None
    after_sequence: int | None
    before_sequence: int | None


@dataclass(frozen=True, slots=True)
class LogStatus:
    """What the store knows about one log."""

    cursor: Cursor
    events_by_type: dict[int, int]
    oddities: dict[str, int]
    last_event: float | None  # UTC seconds


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of a log's bytes with the events in it."""

    id: int
    log: str
    access_point: str
    columns: EventColumns


@dataclass(frozen=True, slots=True)
class LogNews:
    """A log with stored events that a reader of the store has not seen yet."""

    log: str
    access_point: str
    first_us: int | None  # no unseen event is earlier
    events: int  # in the first piece with unseen events


class StoreUnreachable(Unreachable):
    """The store cannot be opened, read or written."""


class NoStoreYet(StoreUnreachable):
    """The store does not exist yet."""


class StoreBusy(StoreUnreachable):
    """Another process is writing to the store."""


class StoreDamaged(StoreUnreachable):
    """The file is not a store, or is damaged."""


class DamagedValue(sqlite3.DatabaseError):
    """Damage inside a value, which SQLite does not detect."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


# What code raises that decodes a damaged value.
UNDECODABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,), "bytes": (bytes,), "int": (int,), "float": (int, float), "bool": (int,),
    "None": (type(None),),
}  # fmt: skip
FIRST_MOMENT, LAST_MOMENT = -62135596800.0, 253402300799.0  # the years 1 to 9999
_Record = TypeVar("_Record")


def checked(record: type[_Record], row: Sequence[Any]) -> _Record:
    """Return a row as a record whose values have the types of its fields.

    SQLite stores a type with each value, so that damage may turn a number into a text.
    """
    for column, value in zip(fields(record), row, strict=True):  # type: ignore[arg-type]
        kinds = tuple(kind for name in str(column.type).split(" | ") for kind in _KINDS[name])
        moment = value if column.name == "at" or column.name.endswith("_at") else 0
        if not isinstance(value, kinds) or (
            isinstance(moment, int | float) and not FIRST_MOMENT <= moment <= LAST_MOMENT
        ):
            raise DamagedValue(f"{value!r:.40} as {column.name}")
    return record(*row)


def checked_counts(rows: Iterable[tuple[Any, Any]], key: type) -> dict[Any, int]:
    """Return counts by their key, which has one type."""
    counts = dict(rows)
    for what, count in counts.items():
        if not isinstance(what, key) or not isinstance(count, int) or count < 0:
            raise DamagedValue(f"{count!r:.40} as a count of {what!r:.40}")
    return counts


def is_damage(error: Exception) -> bool:
    """Tell whether an error of SQLite means that its file is damaged, or is not of SQLite."""
    if isinstance(error, sqlite3.OperationalError | sqlite3.IntegrityError):
        # Our own tables and columns are gone, a text is no text, or an index disagrees.
        known = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        return code in (*known, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    damaged = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return damaged or isinstance(error, UnicodeDecodeError)


def damage_message(path: Path, error: Exception) -> str:
    """Say that a file is damaged, and what to do."""
    why = f"{type(error).__name__}: {error}" if isinstance(error, UNDECODABLE) else str(error)
    return (
        f"{path}: not a store, or damaged ({why:.160}); restore it from a backup, or move "
        "it away and gather the logs again"
    )


def open_readonly(path: Path, wait: float) -> sqlite3.Connection:
    """Open an SQLite file read-only, even in a directory that the caller cannot write to.

    In WAL mode a reader needs the -wal and -shm files. SQLite deletes them when the last writer
    closes the store, and a reader who cannot create them fails. The file is complete then, so it
    is opened as immutable.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=wait)
    try:
        db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.OperationalError as error:
        db.close()
        refused = getattr(error, "sqlite_errorcode", 0) & 0xFF
        alone = not path.with_name(f"{path.name}-wal").exists()
        if refused not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) or not alone:
            raise
        db = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
    except BaseException:
        db.close()
        raise
    db.execute("PRAGMA query_only = ON")
    return db


def default_store_path() -> Path:
    """Return the path of the default store: $CONDOR_ADVICE_STORE, or the XDG data directory."""
    if named := os.environ.get("CONDOR_ADVICE_STORE"):
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(base) / "condor-advice" / "store.sqlite"


class Store:
    """One access point's events. One process can write at a time, any number can read."""

    def __init__(
        self, path: str | os.PathLike[str], *, readonly: bool = False, wait: float = BUSY_SECONDS
    ) -> None:
        self.path = Path(path)
        self.readonly = readonly
        if os.path.isdir(self.path):
            raise StoreUnreachable(f"{self.path}: is a directory; name a file in it with --store")
        try:
            check_trusted(self.path, writing=not readonly)
        except UnsafeFile as error:
            raise StoreUnreachable(str(error)) from None
        self._lock = None if readonly else _WriterLock(self.path, wait)
        try:
            with self._translated():
                self._db = self._connect()
        except BaseException:
            if self._lock:
                self._lock.release()
            raise
        self._compress: Any = None
        self.events_added = 0  # by this process
        self.fresh: FreshBlocks | None = None  # set by a reader that wants blocks from memory
        self._file = _inode(self.path)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and let the next writer in."""
        self._db.close()
        if self._lock:
            self._lock.release()

    def _connect(self) -> sqlite3.Connection:
        if self.readonly:
            if not _is_there(self.path):
                raise NoStoreYet(
                    f"{self.path}: there is no store yet; "
                    "create it with `condor-advice gather LOG`, or name another with --store"
                )
            db = open_readonly(self.path, BUSY_SECONDS)
        else:
            _create_private(self.path)
            db = sqlite3.connect(self.path, isolation_level=None, timeout=BUSY_SECONDS)
            db.execute("PRAGMA page_size = 8192")
            db.execute("PRAGMA journal_mode = WAL")
            # A power cut may undo the last transactions but never half of one, and the
            # cursor goes back with its events: they are read again.
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA journal_size_limit = 67108864")
        try:
            db.execute("PRAGMA cache_size = -8192")  # KB; four times as much is no faster
            self._migrate(db)
        except BaseException:
            db.close()
            raise
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        [version] = db.execute("PRAGMA user_version").fetchone()
        [application] = db.execute("PRAGMA application_id").fetchone()
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and application != APPLICATION_ID:
            raise StoreDamaged(
                f"{self.path}: an SQLite file, but not a condor-advice store; name another"
            )
        if version > len(MIGRATIONS):
            raise StoreUnreachable(
                f"{self.path}: written by a newer condor-advice (schema {version}, "
                f"this one knows {len(MIGRATIONS)}); upgrade condor-advice"
            )
        if version == len(MIGRATIONS):
            return
        if self.readonly:
            raise StoreUnreachable(
                f"{self.path}: schema {version} is older than this condor-advice; "
                "run `condor-advice gather` once to bring it up to date"
            )
        db.execute("BEGIN IMMEDIATE")
        try:
            for script in MIGRATIONS[version:]:
                for statement in filter(str.strip, script.split(";\n")):
                    db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            db.execute("COMMIT")
        except BaseException:
            # SQLite has rolled back by itself after some errors, such as a full disk.
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn SQLite's errors into errors that say what to do."""
        try:
            yield
        # SQLite quotes what is damaged, and that need not be text.
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise _explain(self.path, error) from error

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Report values that cannot be decoded as damage; SQLite keeps no checksums.

        For code that only turns rows of the store into values: anywhere else it would hide a bug.
        """
        try:
            yield
        except (*UNDECODABLE, DamagedValue) as error:
            raise StoreDamaged(damage_message(self.path, error)) from error

    # Writing.

    def append(
        self, columns: EventColumns | None, cursor: Cursor, gaps: Sequence[Gap] = ()
    ) -> None:
        """Commit events, oddities, gaps and the cursor in one transaction."""
        block = None
        with self.transaction():
            log = self._save_cursor(cursor)
            if columns is not None:
                block = self._save_piece(log, columns)
                self._save_oddities(log, columns)
            self._db.executemany(
                "INSERT INTO gaps (log, found_at, reason, bytes_lost, events_lost, "
                "after_sequence, before_sequence) VALUES (?, ?, ?, ?, ?, ?, ?)",
                [_values(gap) for gap in gaps],
            )
        self.events_added += 0 if columns is None else len(columns)
        if block is not None and self.fresh is not None:
            self.fresh.add(cursor.log, block)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for one transaction; other modules keep tables here too."""
        if _inode(self.path) != self._file:
            # SQLite would go on writing to a file that nobody can find any more.
            raise StoreUnreachable(
                f"{self.path}: the store was deleted or replaced while it was being written to; "
                "start the command again to read the logs into a new one"
            )
        with self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                # SQLite has rolled back by itself after some errors, such as a full disk.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _save_cursor(self, cursor: Cursor) -> int:
        row = self._db.execute(
            "INSERT INTO logs (path, access_point, device, inode, head, head_length, offset,"
            " tail, state, sequence, read_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (path) DO UPDATE SET access_point = excluded.access_point,"
            " device = excluded.device, inode = excluded.inode, head = excluded.head,"
            " head_length = excluded.head_length, offset = excluded.offset,"
            " tail = excluded.tail, state = excluded.state, sequence = excluded.sequence,"
            " read_at = excluded.read_at RETURNING id",
            _values(cursor),
        ).fetchall()
        return int(row[0][0])

    def _save_piece(self, log: int, columns: EventColumns) -> FreshBlock | None:
        if not columns.size:
            return None
        fresh, before = columns, self._position(log)
        self._count("event_counts", ("type", "events"), log, columns.counts_by_type().items())
        keys = job_keys(columns)
        last = self._db.execute(
            "SELECT id, base, bytes FROM pieces WHERE log = ? ORDER BY id DESC LIMIT 1", (log,)
        ).fetchone()
        piece = None
        if last and last[2] < MERGE_BYTES and last[1] + last[2] == columns.base:
            piece = last[0]
            stored = self._db.execute(
                "SELECT base, columns, text FROM pieces WHERE id = ?", (piece,)
            ).fetchone()
            columns = _join(_decode(*stored), columns)
        row = (
            log,
            columns.base,
            columns.size,
            len(columns),
            int(columns.time_us.min()) if len(columns) else None,
            int(columns.time_us.max()) if len(columns) else None,
            self._squeeze(_pack(columns)),
            self._squeeze(memoryview(columns.source)[: columns.size]),
        )
        after = (before[0], len(columns)) if piece else (last[0] if last else 0, len(columns))
        if piece is None:
            piece = self._db.execute(
                "INSERT INTO pieces (log, base, bytes, events, first_us, last_us, columns, text)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            ).lastrowid
        else:
            self._db.execute(
                "UPDATE pieces SET log = ?, base = ?, bytes = ?, events = ?, first_us = ?,"
                " last_us = ?, columns = ?, text = ? WHERE id = ?",
                (*row, piece),
            )
        self._db.execute(
            "INSERT OR IGNORE INTO jobs SELECT value, ? FROM json_each(?)",
            (piece, json.dumps(distinct(keys).tolist())),
        )
        return FreshBlock(before, after, fresh)

    def _position(self, log: int) -> StorePosition:
        rows = self._db.execute(
            "SELECT id, events FROM pieces WHERE log = ? ORDER BY id DESC LIMIT 2", (log,)
        ).fetchall()
        if not rows:
            return STORE_START
        return rows[1][0] if len(rows) > 1 else 0, rows[0][1]

    def _save_oddities(self, log: int, columns: EventColumns) -> None:
        if not columns.oddity_counts:
            return
        self._count("oddity_counts", ("kind", "oddities"), log, columns.oddity_counts.items())
        [kept] = self._db.execute("SELECT count(*) FROM oddities WHERE log = ?", (log,)).fetchone()
        room = max(0, MAX_ODDITIES_PER_LOG - kept)
        self._db.executemany(
            "INSERT INTO oddities (log, offset, kind, excerpt) VALUES (?, ?, ?, ?)",
            [(log, o.offset, o.kind, o.excerpt) for o in columns.oddities[:room]],
        )

    def _count(
        self, table: str, names: tuple[str, str], log: int, counts: Iterable[tuple[Any, int]]
    ) -> None:
        """Add to a table of counts per log."""
        key, number = names
        self._db.executemany(
            f"INSERT INTO {table} VALUES (?, ?, ?) ON CONFLICT (log, {key}) "
            f"DO UPDATE SET {number} = {number} + excluded.{number}",
            [(log, what, count) for what, count in counts],
        )

    def _squeeze(self, data: bytes | memoryview) -> bytes:
        if self._compress is None:
            import zstandard

            # Level 1: event logs shrink tenfold at any level, and reading must stay fast.
            # With a checksum, since SQLite has none: damage must not pass for what a log said.
            self._compress = zstandard.ZstdCompressor(level=1, write_checksum=True).compress
        squeezed: bytes = self._compress(data)
        return squeezed

    # Reading.

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Return the rows of a query, for tables that other modules keep here."""
        with self._translated():
            return self._db.execute(statement, values).fetchall()

    def cursor(self, log: str) -> Cursor | None:
        """Return how far a log has been read; None if it is not in the store."""
        with self._translated():
            row = self._db.execute(f"SELECT {_CURSOR} FROM logs WHERE path = ?", (log,))
            return next(map(_cursor, row), None)

    def cursors(self) -> list[Cursor]:
        """Return how far each log has been read."""
        with self._translated():
            return [_cursor(row) for row in self._db.execute(f"SELECT {_CURSOR} FROM logs")]

    def counts_by_type(self) -> dict[int, int]:
        """Return the number of events of each type, over all logs."""
        with self._translated():
            rows = self._db.execute(
                "SELECT type, sum(events) FROM event_counts GROUP BY type ORDER BY type"
            )
            return _event_counts(rows.fetchall())

    def logs(self) -> list[LogStatus]:
        """Return the status of each log."""
        with self._translated():
            statuses = []
            for number, *row in self._db.execute(f"SELECT id, {_CURSOR} FROM logs ORDER BY path"):
                events = self._db.execute(
                    "SELECT type, events FROM event_counts WHERE log = ?", (number,)
                )
                oddities = self._db.execute(
                    "SELECT kind, oddities FROM oddity_counts WHERE log = ?", (number,)
                )
                [last] = self._db.execute(
                    "SELECT max(last_us) FROM pieces WHERE log = ?", (number,)
                ).fetchone()
                statuses.append(
                    LogStatus(
                        _cursor(row),
                        _event_counts(events.fetchall()),
                        checked_counts(oddities.fetchall(), str),
                        None if last is None else microseconds(last) / 1e6,
                    )
                )
            return statuses

    def oddities(self, log: str, limit: int = 20) -> list[Oddity]:
        """Return the first oddities of one log, with their offsets."""
        from condor_advice.gather.reader import Oddity

        with self._translated():
            rows = self._db.execute(
                "SELECT offset, kind, excerpt FROM oddities WHERE log ="
                " (SELECT id FROM logs WHERE path = ?) ORDER BY id LIMIT ?",
                (log, limit),
            )
            return [checked(Oddity, row) for row in rows]

    def gaps(self) -> list[Gap]:
        """Return all gaps."""
        with self._translated():
            rows = self._db.execute(
                "SELECT log, found_at, reason, bytes_lost, events_lost, after_sequence,"
                " before_sequence FROM gaps ORDER BY id"
            )
            return [checked(Gap, row) for row in rows]

    def end_of(self, log: str) -> StorePosition:
        """Return the position after the last stored event of a log."""
        with self._translated():
            row = self._db.execute("SELECT id FROM logs WHERE path = ?", (log,)).fetchone()
            return self._position(row[0]) if row else STORE_START

    def news(self, after: Mapping[str, StorePosition]) -> list[LogNews]:
        """Return the logs, by name, with events behind the positions that a reader has reached.

        Of each log only its last two pieces are looked up, however many there are.
        """
        with self._translated():
            ends = self._db.execute(
                "SELECT logs.id, path, access_point, pieces.id, pieces.events, (SELECT max(id)"
                " FROM pieces AS earlier WHERE earlier.log = logs.id AND earlier.id < pieces.id)"
                " FROM logs JOIN pieces ON pieces.id ="
                " (SELECT max(id) FROM pieces AS last WHERE last.log = logs.id) ORDER BY path"
            )
            news = []
            for number, log, access_point, _, events, previous in ends:
                position = after.get(log, STORE_START)
                if position == (previous or 0, events):
                    continue
                row = self._db.execute(
                    "SELECT first_us, events FROM pieces WHERE log = ? AND id > ?"
                    " ORDER BY id LIMIT 1",
                    (number, position[0]),
                ).fetchone()
                news.append(LogNews(log, access_point, *(row or (None, 0))))
            return news

    def has_other_logs(self, log: str) -> bool:
        """Tell whether the store has a log besides this one."""
        return bool(self.rows("SELECT 1 FROM logs WHERE path <> ? LIMIT 1", (log,)))

    def pieces(self, after: int = 0, log: str | None = None) -> Iterator[Piece]:
        """Yield the stored pieces in the order they were stored, one in memory at a time.

        The last piece of a log may still grow: to read it again, pass the id before its own.
        """
        # With its number a log's pieces are found by their index, without a look at the others.
        numbers = [] if log is None else self.rows("SELECT id FROM logs WHERE path = ?", (log,))
        if log is not None and not numbers:
            return
        chosen = "" if log is None else "pieces.log = ? AND "
        values = [number for (number,) in numbers]
        while True:
            pieces = self._piece_rows(
                f"{chosen}pieces.id > ? ORDER BY pieces.id LIMIT 1", (*values, after)
            )
            if not pieces:
                return
            yield pieces[0]
            after = pieces[0].id

    def job_pieces(
        self, cluster: int, proc: int | None = None, latest: int | None = None
    ) -> list[Piece]:
        """Return the pieces with the events of one job or a whole cluster, and only these events.

        `latest` limits the number of pieces searched, newest first.
        """
        # Events of a cluster as a whole (035, 036) have the proc -1.
        low = job_key(cluster, -1 if proc is None else proc)
        high = low if proc is not None else job_key(cluster, (1 << 31) - 1)
        pieces = self._piece_rows(
            "pieces.id IN (SELECT DISTINCT piece FROM jobs WHERE job BETWEEN ? AND ?"
            " ORDER BY piece DESC LIMIT ?) ORDER BY pieces.id",
            (low, high, -1 if latest is None else latest),
        )
        for piece in pieces:
            columns = piece.columns
            rows = columns.cluster == cluster
            if proc is not None:
                rows &= columns.proc == proc
            columns.keep(rows)
        return pieces

    def log_text(self, log: str) -> Iterator[bytes]:
        """Yield all bytes that were read from a log, in order."""
        return (piece.columns.data for piece in self.pieces(log=log))

    def _piece_rows(self, where: str, values: Sequence[object]) -> list[Piece]:
        with self._translated():
            rows = self._db.execute(
                "SELECT pieces.id, logs.path, logs.access_point, base, columns, text "
                f"FROM pieces JOIN logs ON logs.id = pieces.log WHERE {where}",
                values,
            )
            return [Piece(row[0], row[1], row[2], _decode(*row[3:])) for row in rows]


def job_key(cluster: int, proc: int) -> int:
    """Return the index key of a job."""
    return (cluster << 32) + proc


def job_keys(columns: EventColumns) -> npt.NDArray[np.int64]:
    """Return the keys of the events' jobs; events without a job have none."""
    keys = (columns.cluster.astype(np.int64) << 32) + columns.proc
    return keys[columns.cluster >= 0]


_CURSOR = (
    "path, access_point, device, inode, head, head_length, offset, tail, state, sequence, read_at"
)
_COLUMN_TYPES = (
    ("type", "<i2"),
    ("form", "u1"),
    ("cluster", "<i4"),
    ("proc", "<i4"),
    ("time_us", "<i8"),
    ("start", "<u4"),
    ("head", "<u2"),  # from start
    ("end", "<u4"),  # from start
)


def _cursor(row: Sequence[Any]) -> Cursor:
    return checked(Cursor, row)


def _event_counts(rows: Iterable[tuple[Any, Any]]) -> dict[int, int]:
    counts = checked_counts(rows, int)
    if any(not 0 <= kind <= MAX_TYPE for kind in counts):
        raise DamagedValue(f"{max(counts, key=abs)} as an event type")
    return counts


def microseconds(value: object) -> int:
    """Return a time in microseconds; no date can show what is outside of the years 1 to 9999."""
    if not isinstance(value, int) or not FIRST_MOMENT <= value / 1e6 <= LAST_MOMENT:
        raise DamagedValue(f"{value!r:.40} as a time")
    return value


def _values(record: Cursor | Gap) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in record.__slots__)


def _pack(columns: EventColumns) -> bytes:
    """Serialise the columns; increasing columns are stored as differences."""
    steps = {
        "time_us": np.diff(columns.time_us, prepend=0),
        "start": np.diff(columns.start, prepend=0),
        "head": columns.head - columns.start,
        "end": columns.end - columns.start,
    }
    return b"".join(
        steps.get(name, getattr(columns, name)).astype(kind).tobytes()
        for name, kind in _COLUMN_TYPES
    )


def _decode(base: int, packed: bytes, text: bytes) -> EventColumns:
    import zstandard

    from condor_advice.gather.reader import EventColumns

    expand = zstandard.ZstdDecompressor().decompress
    try:
        raw, data = expand(packed), expand(text)
    except zstandard.ZstdError as error:
        raise DamagedValue(str(error)) from error
    count = len(raw) // sum(np.dtype(kind).itemsize for _, kind in _COLUMN_TYPES)
    columns: dict[str, Any] = {}
    at = 0
    for name, kind in _COLUMN_TYPES:
        columns[name] = np.frombuffer(raw, kind, count, at)
        at += columns[name].nbytes
    start = np.cumsum(columns["start"], dtype=np.int64)
    columns |= {
        "time_us": np.cumsum(columns["time_us"], dtype=np.int64),
        "start": start,
        "head": start + columns["head"],
        "end": start + columns["end"],
    }
    return EventColumns(source=data, size=len(data), base=base, **columns)


def _join(first: EventColumns, second: EventColumns) -> EventColumns:
    """Return two consecutive pieces as one."""
    from condor_advice.gather.reader import EventColumns

    shift = first.size
    shifts = {"start": shift, "head": shift, "end": shift}
    joined: dict[str, Any] = {
        name: np.append(getattr(first, name), getattr(second, name) + shifts.get(name, 0))
        for name, _ in _COLUMN_TYPES
    }
    data = first.data + second.data
    return EventColumns(source=data, size=len(data), base=first.base, **joined)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise StoreUnreachable(
            f"{path}: cannot open the store ({error.strerror}); check the permissions of "
            "its directory, or name another with --store"
        ) from None


def _create_private(path: Path) -> None:
    """Create the file, readable by its owner only: it names other people's jobs."""
    try:
        private_directory(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreUnreachable(
            f"{path}: the store cannot be written ({error.strerror}); "
            "name another with --store or CONDOR_ADVICE_STORE"
        ) from None


def _explain(path: Path, error: sqlite3.DatabaseError | UnicodeDecodeError) -> AdviceError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if is_damage(error):
        return StoreDamaged(damage_message(path, error))
    if code == sqlite3.SQLITE_FULL:
        return StoreUnreachable(
            f"{path}: the disk is full; nothing was lost or partly written: free some space, "
            "then run the same command again"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreUnreachable(
            f"{path}: cannot open or write the store ({error}); check its permissions and those "
            "of its directory, or name another with --store"
        )
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnreachable(
            f"{path}: cannot read or write the store ({error}); nothing was partly written: check "
            "for a quota, a file size limit or a failing disk, then run the same command again"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(f"{path}: the store is busy ({error}); try again in a moment")
    return StoreUnreachable(f"{path}: {error}")


class _WriterLock:
    """Allows one writer at a time. The kernel releases the lock when its holder dies."""

    def __init__(self, path: Path, wait: float) -> None:
        self._fd = -1
        lock = path.with_name(path.name + ".lock")
        try:
            private_directory(path.parent)
            self._fd = open_lock(lock, path)
        except UnsafeFile as error:
            raise StoreUnreachable(str(error)) from None
        except OSError as error:
            raise StoreUnreachable(
                f"{path}: the store cannot be written ({error.strerror}); "
                "name another with --store or CONDOR_ADVICE_STORE"
            ) from None
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = os.pread(self._fd, 4096, 0).decode("utf-8", "replace")
                    os.close(self._fd)
                    raise StoreBusy(
                        f"{path}: {_describe(holder)} is writing to this store; "
                        "stop it, or name another store with --store"
                    ) from None
                time.sleep(0.05)
        us = {"pid": os.getpid(), "host": os.uname().nodename, "command": sys.argv[:4]}
        with suppress(OSError):  # on a full disk: who holds it is a courtesy, the lock holds
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(us).encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _describe(holder: str) -> str:
    try:
        us = json.loads(holder)
        command = " ".join([os.path.basename(us["command"][0]), *us["command"][1:]])
        return f"process {us['pid']} on {us['host']} ({command})"
    except (ValueError, KeyError, IndexError, TypeError):
        return "another process"
