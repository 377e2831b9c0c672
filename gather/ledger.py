"""The ledger: which advice was given, which actions were taken, and their effect.

It is part of the store if the caller can write there, so that an access point's advice can be
compared with its outcomes; otherwise it is a file of the caller's own. Advice must neither fail
nor wait because of the ledger (`record_advice` gives up quietly). No action is taken without it
(`Ledger.begin` raises), because an unrecorded release cannot be explained later.
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
from condor_advice.gather.files import UnsafeFile, check_trusted, private_directory
from condor_advice.gather.store import (
    DamagedValue,
    checked,
    default_store_path,
    is_damage,
    open_readonly,
)

SCHEMA = 1
QUIET_SECONDS = 0.1  # how long advice waits for a busy ledger
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
    command TEXT NOT NULL,              -- the equivalent shell command
    batch TEXT NOT NULL,                -- shared by jobs with the same reason
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
    """What HTCondor answered to an action."""

    INTENDED = "intended"  # recorded, no answer yet: the process may have died here
    DONE = "done"
    TOO_LATE = "too late"  # somebody else released, removed or re-held the job meanwhile
    REFUSED = "refused"  # by HTCondor: not allowed, or not possible
    FAILED = "failed"  # no answer, or one that makes no sense


class Effect(Enum):
    """What followed a release, as far as known."""

    WAITING = "waiting"  # idle, or running but not yet past the point of its hold
    PAST = "past its hold"  # still running, and past the point of its hold
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # nonzero exit code, or a signal
    HELD_AGAIN = "held again"
    REMOVED = "removed"
    UNKNOWN = "unknown"  # it left the queue, and nothing says how


# These may still change.
OPEN_EFFECTS = (Effect.WAITING, Effect.PAST)


@dataclass(frozen=True, slots=True)
class GivenAdvice:
    """One answer about one hold.

    `held_at` comes from the source of the advice: the time of the log's event or the schedd's
    EnteredCurrentStatus, which may differ by a few seconds.
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
    """One action on one job, following one piece of advice."""

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


@dataclass(frozen=True, slots=True)
class _ActionRow:
    """An action as it is in the ledger's table."""

    at: float
    action: str
    command: str
    batch: str
    canary: bool
    run_seconds: float | None
    user_log: str | None
    result: str
    message: str
    effect: str
    effect_at: float | None
    id: int


class LedgerUnusable(Unreachable):
    """Actions cannot be recorded, so none is taken."""


def own_ledger_path() -> Path:
    """Return the path of the caller's own ledger, for callers who cannot write to the store."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "condor-advice" / "ledger.sqlite"


def ledger_path(store: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the ledger that records this caller's advice and actions."""
    path = Path(store or default_store_path())
    # SQLite also writes beside the file.
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return path
    return own_ledger_path()


def ledger_paths(store: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the ledgers with this caller's actions: their own file, and a store they can write.

    Other people's stores contain their own actions. Those do not count as the caller's, so such
    a store is used only if the caller names it.
    """
    shared = [] if store is None and ledger_path() == own_ledger_path() else [
        Path(store or default_store_path())
    ]  # fmt: skip
    return [path for path in (*shared, own_ledger_path()) if os.access(path, os.R_OK)]


def record_advice(
    given: Sequence[GivenAdvice], store: str | os.PathLike[str] | None = None
) -> None:
    """Record advice if that is possible at once; never raise, never wait long."""
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
    """Return the actions in all of this caller's ledgers, oldest first, with each ledger's path."""
    actions = []
    for path in ledger_paths(store):
        with Ledger(path, readonly=True) as ledger:
            actions += [(path, action) for action in ledger.actions(since=since)]
    return sorted(actions, key=lambda pair: pair[1].at)


class Ledger:
    """One file with advice and actions: a store, or the caller's own file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        readonly: bool = False,
        wait: float = ACTION_SECONDS,
    ) -> None:
        self.path = Path(path)
        with self._translated():
            check_trusted(self.path, writing=not readonly)
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
                private_directory(self.path.parent)
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
                os.close(os.open(self.path, flags, 0o600))
            db = sqlite3.connect(self.path, isolation_level=None, timeout=wait)
        try:
            self.has_tables = self._prepare(db, readonly)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection, readonly: bool) -> bool:
        """Create the tables if they are missing; return whether they exist."""
        [exists] = db.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'ledger_schema'"
        ).fetchone()
        if exists:
            [version] = db.execute("SELECT max(version) FROM ledger_schema").fetchone()
            if version is not None and version > SCHEMA:
                raise LedgerUnusable(
                    f"{self.path}: ledger written by a newer condor-advice "
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
        except UnsafeFile as error:
            raise LedgerUnusable(str(error)) from error
        # SQLite quotes what is damaged, and that need not be text.
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            if is_damage(error):
                raise LedgerUnusable(
                    f"{self.path}: the ledger of actions is damaged ({error!s:.160}); restore it "
                    "from a backup, or move it away: a new one is made"
                ) from error
            raise LedgerUnusable(
                f"{self.path}: cannot read or write the ledger of actions ({error}); check the "
                "file's permissions and the free disk space, or set XDG_STATE_HOME to a directory "
                "that you can write to"
            ) from error

    @contextlib.contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """Run one transaction; with `durable` it survives a power cut."""
        with self._translated():
            # Never OFF: this connection may be the one that checkpoints the collector's WAL into
            # the store, and a power cut would then corrupt the store.
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
        """Record advice. The same advice about the same hold is one row with a count."""
        with self._transaction(durable=False) as db:
            db.executemany(_INSERT_ADVICE, [_advice_values(advice) for advice in given])

    def begin(self, actions: Sequence[Action]) -> list[Action]:
        """Record actions about to be taken, with their advice; return them with their ids."""
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
        """Record HTCondor's answers, and the effects as far as known."""
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
        """Return the advice first given from `since` until `until`, oldest first."""
        if not self.has_tables:
            return []
        with self._translated():
            rows = self._db.execute(
                f"SELECT {_ADVICE}, id FROM advice WHERE at >= ? AND at < ? ORDER BY at, id",
                (since, until),
            )
            return [checked(GivenAdvice, row) for row in rows]

    def actions(self, *, since: float = 0.0) -> list[Action]:
        """Return the actions from `since` on with their advice, oldest first."""
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
# A row keeps the time of the first answer and the probability of the latest.
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
    try:
        action = checked(_ActionRow, row)
        result, effect = Result(action.result), Effect(action.effect)
    except ValueError as error:
        raise DamagedValue(str(error)) from error
    return Action(
        checked(GivenAdvice, advice), action.at, action.action, action.command, action.batch,
        bool(action.canary), action.run_seconds, action.user_log, result, action.message, effect,
        action.effect_at, action.id,
    )  # fmt: skip


def now() -> float:
    """Return the current time for the ledger: UTC seconds, rounded to milliseconds."""
    return round(time.time(), 3)
