"""The ledger: which advice was given, what was done about it, and what came of that.

It lies in the store where the caller may write there, so that one access point's advice can
be held against its outcomes; otherwise in a file of the caller's own. Advice must not fail or
wait because of it (`record_advice` gives up quietly); an action must not happen without it
(`Ledger.begin` raises), because a release that nobody wrote down cannot be explained later.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path

from condor_advice.gather.errors import Unreachable
from condor_advice.gather.events import JobId
from condor_advice.gather.store import default_store_path, open_readonly

SCHEMA = 1
QUIET_SECONDS = 0.1  # what advice is ready to wait for a busy ledger
ACTION_SECONDS = 10.0

_TABLES = """
CREATE TABLE IF NOT EXISTS ledger_schema (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS advice (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,                   -- when it was first given, UTC seconds
    access_point TEXT NOT NULL,
    cluster INTEGER NOT NULL,
    proc INTEGER NOT NULL,
    hold_number INTEGER NOT NULL,
    held_at REAL NOT NULL,
    verdict TEXT NOT NULL,
    p_success REAL NOT NULL,
    source TEXT NOT NULL,
    model TEXT,
    template TEXT NOT NULL,
    owner TEXT NOT NULL,
    code INTEGER,
    subcode INTEGER,
    given INTEGER NOT NULL DEFAULT 1,   -- how often
    last_at REAL NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS advice_once ON advice
    (cluster, proc, access_point, held_at, verdict, source, ifnull(model, ''));
CREATE TABLE IF NOT EXISTS actions (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    advice INTEGER NOT NULL REFERENCES advice (id),
    action TEXT NOT NULL,
    command TEXT NOT NULL,              -- what would have to be typed for it
    batch TEXT NOT NULL,                -- jobs of one reason share it
    canary INTEGER NOT NULL,
    run_seconds REAL,                   -- how far the job had run when it was held
    user_log TEXT,
    result TEXT NOT NULL,
    message TEXT NOT NULL,
    effect TEXT NOT NULL,
    effect_at REAL
);
CREATE INDEX IF NOT EXISTS actions_by_time ON actions (at);
CREATE INDEX IF NOT EXISTS actions_by_advice ON actions (advice);
"""


class Result(Enum):
    """What HTCondor made of an action."""

    INTENDED = "intended"  # written down, not yet answered: the process may have died here
    DONE = "done"
    TOO_LATE = "too late"  # somebody else released, removed or held it anew in between
    REFUSED = "refused"  # by HTCondor: not allowed, or not possible
    FAILED = "failed"  # no answer, or one that makes no sense


class Effect(Enum):
    """What came of a release, as far as it is known."""

    WAITING = "waiting"  # idle, or running and not yet as far as when it was held
    PAST = "past its hold"  # further than when it was held, and still running
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # ended with another exit code than 0, or by a signal
    HELD_AGAIN = "held again"
    REMOVED = "removed"
    UNKNOWN = "unknown"  # it left the queue, and nothing tells how


# These may still change.
OPEN_EFFECTS = (Effect.WAITING, Effect.PAST)


@dataclass(frozen=True, slots=True)
class GivenAdvice:
    """One answer about one hold.

    `held_at` is what the source of the advice had: a log's event time or the schedd's
    EnteredCurrentStatus, which may differ by a second.
    """

    at: float  # UTC seconds, as all times here
    access_point: str
    cluster: int
    proc: int
    hold_number: int
    held_at: float
    verdict: str
    p_success: float
    source: str  # "model" or "rules"
    model: str | None
    template: str
    owner: str
    code: int | None = None
    subcode: int | None = None
    id: int | None = None  # once it is in a ledger

    @property
    def job(self) -> JobId:
        """The job it is about."""
        return JobId(self.access_point, self.cluster, self.proc)


@dataclass(frozen=True, slots=True)
class Action:
    """One thing done to one job, because of one advice."""

    advice: GivenAdvice
    at: float
    action: str  # "release", "edit", "remove"
    command: str
    batch: str
    canary: bool = False
    run_seconds: float | None = None  # None: it was held before it ran
    user_log: str | None = None
    result: Result = Result.INTENDED
    message: str = ""
    effect: Effect = Effect.WAITING
    effect_at: float | None = None
    id: int | None = None


class LedgerUnusable(Unreachable):
    """Actions cannot be written down, so none is taken."""


def own_ledger_path() -> Path:
    """Return the caller's own ledger, used when the store is not theirs to write."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "condor-advice" / "ledger.sqlite"


def ledger_path(store: str | os.PathLike[str] | None = None) -> Path:
    """Return where this caller's advice and actions are written."""
    path = Path(store or default_store_path())
    # SQLite also writes beside the file.
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return path
    return own_ledger_path()


def ledger_paths(store: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the ledgers with this caller's actions: their own, and that of a store of theirs.

    A store that others keep has their actions in it. They count neither as the caller's nor are
    they shown to everybody who may read the store; who names it sees them.
    """
    found = [] if store is None and ledger_path() == own_ledger_path() else [
        Path(store or default_store_path())
    ]  # fmt: skip
    return [path for path in (*found, own_ledger_path()) if os.access(path, os.R_OK)]


def record_advice(
    given: Sequence[GivenAdvice], store: str | os.PathLike[str] | None = None
) -> None:
    """Write down what was answered if that is possible at once; never raise, never wait long."""
    if not given:
        return
    with (
        contextlib.suppress(LedgerUnusable),
        Ledger(ledger_path(store), wait=QUIET_SECONDS) as ledger,
    ):
        ledger.advise(given)


def past_actions(
    store: str | os.PathLike[str] | None = None, *, since: float = 0.0
) -> list[tuple[Path, Action]]:
    """Return the actions in all ledgers this caller can read, oldest first, each with its place."""
    found = []
    for path in ledger_paths(store):
        with Ledger(path, readonly=True) as ledger:
            found += [(path, action) for action in ledger.actions(since=since)]
    return sorted(found, key=lambda pair: pair[1].at)


class Ledger:
    """One file with advice and actions: a store, or a file of the caller's own."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        readonly: bool = False,
        wait: float = ACTION_SECONDS,
    ) -> None:
        self.path = Path(path)
        with self._translated():
            self._db = self._connect(readonly, wait)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _connect(self, readonly: bool, wait: float) -> sqlite3.Connection:
        if readonly:
            db = open_readonly(self.path, wait)
        else:
            if not self.path.exists():
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            db = sqlite3.connect(self.path, isolation_level=None, timeout=wait)
        try:
            self.has_tables = self._prepare(db, readonly)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection, readonly: bool) -> bool:
        """Make the tables if they are missing; tell whether they are there."""
        [known] = db.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'ledger_schema'"
        ).fetchone()
        if known:
            [version] = db.execute("SELECT max(version) FROM ledger_schema").fetchone()
            if version is not None and version > SCHEMA:
                raise LedgerUnusable(
                    f"{self.path}: its ledger was written by a newer condor-advice "
                    f"(schema {version}, this one knows {SCHEMA}); upgrade condor-advice"
                )
            if version is not None:
                return True
        if readonly:
            return False
        db.execute("BEGIN IMMEDIATE")
        try:
            for statement in filter(str.strip, _TABLES.split(";\n")):
                db.execute(statement)
            [rows] = db.execute("SELECT count(*) FROM ledger_schema").fetchone()
            if not rows:  # another process may have been faster
                db.execute("INSERT INTO ledger_schema VALUES (?)", (SCHEMA,))
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return True

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise LedgerUnusable(
                f"{self.path}: actions cannot be written down or looked up ({error}); check the "
                "file, its permissions and the room on its disk, or set XDG_STATE_HOME to a "
                "directory of yours"
            ) from error

    @contextlib.contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """One transaction; only what must survive a power cut pays for it."""
        with self._translated():
            # Never OFF: this connection may be the one that moves what the collector wrote from
            # the WAL into the store, and a power cut would then leave a damaged store.
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    # Writing.

    def advise(self, given: Sequence[GivenAdvice]) -> None:
        """Write down answers. The same answer about the same hold is one row, counted."""
        with self._transaction(durable=False) as db:
            db.executemany(_INSERT_ADVICE, [_advice_values(one) for one in given])

    def begin(self, actions: Sequence[Action]) -> list[Action]:
        """Write down what is about to be done, with its advice; return it with its ids."""
        written = []
        with self._transaction(durable=True) as db:
            for action in actions:
                [[advice]] = db.execute(
                    f"{_INSERT_ADVICE} RETURNING id", _advice_values(action.advice)
                ).fetchall()
                row = db.execute(
                    "INSERT INTO actions (at, advice, action, command, batch, canary, run_seconds,"
                    " user_log, result, message, effect, effect_at)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        action.at, advice, action.action, action.command, action.batch,
                        action.canary, action.run_seconds, action.user_log, action.result.value,
                        action.message, action.effect.value, action.effect_at,
                    ),
                ).lastrowid  # fmt: skip
                written.append(replace(action, id=row, advice=replace(action.advice, id=advice)))
        return written

    def finish(self, actions: Sequence[Action]) -> None:
        """Write down what HTCondor answered, and what came of it as far as it is known."""
        with self._transaction(durable=True) as db:
            db.executemany(
                "UPDATE actions SET result = ?, message = ?, effect = ?, effect_at = ?"
                " WHERE id = ?",
                [
                    (a.result.value, a.message, a.effect.value, a.effect_at, a.id)
                    for a in actions
                ],
            )  # fmt: skip

    # Reading.

    def given(self, *, since: float = 0.0, until: float = float("inf")) -> list[GivenAdvice]:
        """Return the advice first given in a span of time, oldest first."""
        if not self.has_tables:
            return []
        with self._translated():
            rows = self._db.execute(
                f"SELECT {_ADVICE}, id FROM advice WHERE at >= ? AND at < ? ORDER BY at, id",
                (since, until),
            )
            return [GivenAdvice(*row) for row in rows]

    def actions(self, *, since: float = 0.0) -> list[Action]:
        """Return the actions since then with their advice, oldest first."""
        if not self.has_tables:
            return []
        columns = ", ".join(f"advice.{name}" for name in _ADVICE.split(", "))
        with self._translated():
            rows = self._db.execute(
                f"SELECT {columns}, advice.id, actions.at, action, command, batch, canary,"
                " run_seconds, user_log, result, message, effect, effect_at, actions.id"
                " FROM actions JOIN advice ON advice.id = actions.advice"
                " WHERE actions.at >= ? ORDER BY actions.at, actions.id",
                (since,),
            ).fetchall()
        width = len(_ADVICE.split(", ")) + 1
        return [_action(row[:width], row[width:]) for row in rows]


_ADVICE = ", ".join(field.name for field in fields(GivenAdvice) if field.name != "id")
# The first answer keeps its time; the chance is that of the latest.
_INSERT_ADVICE = (
    f"INSERT INTO advice ({_ADVICE}, last_at)"
    f" VALUES ({', '.join('?' * (len(_ADVICE.split(', ')) + 1))})"
    " ON CONFLICT (cluster, proc, access_point, held_at, verdict, source, ifnull(model, ''))"
    " DO UPDATE SET given = given + 1, last_at = excluded.last_at, p_success = excluded.p_success"
)


def _advice_values(given: GivenAdvice) -> tuple[object, ...]:
    values = [getattr(given, name) for name in _ADVICE.split(", ")]
    return (*values, given.at)


def _action(advice: tuple[object, ...], row: tuple[object, ...]) -> Action:
    at, action, command, batch, canary, run_seconds, user_log, result, message, effect = row[:10]
    return Action(
        GivenAdvice(*advice),  # type: ignore[arg-type]
        at, action, command, batch, bool(canary), run_seconds, user_log,  # type: ignore[arg-type]
        Result(result), message, Effect(effect), row[10], row[11],  # type: ignore[arg-type]
    )  # fmt: skip


def now() -> float:
    """UTC seconds, whole milliseconds: what the ledger's times are made of."""
    return round(time.time(), 3)
