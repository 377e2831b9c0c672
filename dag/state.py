"""The state of a sweep: one SQLite file on the access point, written by many short scripts.

Every change is one transaction that waits for others: concurrent scripts take turns, and a
killed script leaves all of its change or none. Every call can be repeated, because DAGMan runs a
script again when it cannot know whether the script finished. The file uses the rollback journal,
because a write-ahead log does not work on network file systems.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from condor_advice.dag.search import KnownTrial
from condor_advice.dag.sweepfile import Metric
from condor_advice.gather.errors import Unreachable

STATE_FILE = "state.sqlite"
_WAIT_SECONDS = 120

_SCHEMA = """
CREATE TABLE trials (
  number INTEGER PRIMARY KEY,
  state TEXT NOT NULL,
  parameters TEXT,
  runs INTEGER NOT NULL DEFAULT 0,
  asked REAL,
  told REAL,
  reason TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE epochs (
  trial INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  metrics TEXT NOT NULL,
  PRIMARY KEY (trial, epoch)
) STRICT, WITHOUT ROWID;
CREATE TABLE failures (
  trial INTEGER NOT NULL,
  job TEXT NOT NULL,
  reason TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (trial, job)
) STRICT, WITHOUT ROWID;
CREATE TABLE notes (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""


class TrialState(StrEnum):
    """How far a trial has come."""

    WAITING = "waiting"  # it has no parameters yet, or is to run again
    RUNNING = "running"  # a job has its parameters
    PAUSED = "paused"  # at a band of hyperband; it will continue
    FINISHED = "finished"
    STOPPED = "stopped"  # early, by hyperband
    FAILED = "failed"
    SKIPPED = "skipped"  # no parameters were left to try

    @property
    def is_over(self) -> bool:
        """Return whether none of its jobs will run again."""
        return self in (self.FINISHED, self.STOPPED, self.FAILED, self.SKIPPED)


@dataclass(frozen=True)
class Trial:
    """One trial and its results so far."""

    number: int
    state: TrialState
    parameters: Mapping[str, Any]
    runs: int = 0
    asked: float | None = None
    told: float | None = None
    reason: str = ""
    epochs: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    failures: int = 0

    @property
    def epoch(self) -> int:
        """The number of epochs done."""
        return max(self.epochs, default=0)

    def losses(self, metric: Metric) -> dict[int, float]:
        """Return the loss by epoch; lower is better."""
        return {
            epoch: metric.loss(values[metric.name])
            for epoch, values in self.epochs.items()
            if metric.name in values
        }

    def best(self, metric: Metric) -> float | None:
        """Return the best value of the metric."""
        lowest = self.known(metric).best
        return None if lowest is None else metric.loss(lowest)

    def known(self, metric: Metric) -> KnownTrial:
        """Return what the search may know about the trial."""
        return KnownTrial(
            self.number,
            self.parameters,
            self.losses(metric),
            running=not self.state.is_over,
            failed=self.state is TrialState.FAILED,
        )


class SweepState:
    """The trials of one sweep."""

    def __init__(self, directory: Path) -> None:
        """Open the state; `create` makes it."""
        self.path = directory / STATE_FILE
        if not self.path.exists():
            raise Unreachable(
                f"{directory}: no sweep here ({STATE_FILE} is missing); `condor-advice sweep init` "
                "makes one"
            )
        try:
            self._connection = sqlite3.connect(self.path, timeout=_WAIT_SECONDS)
            self._connection.isolation_level = None
            self._connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise Unreachable(f"{self.path}: {error}") from error

    @classmethod
    def create(cls, directory: Path, trials: int) -> SweepState:
        """Create the state of a sweep with this many trials."""
        part = directory / f".{STATE_FILE}.part"
        part.unlink(missing_ok=True)
        connection = sqlite3.connect(part)
        connection.executescript(_SCHEMA)
        with connection:
            connection.executemany(
                "INSERT INTO trials (number, state) VALUES (?, 'waiting')",
                ((number,) for number in range(trials)),
            )
        connection.close()
        part.rename(directory / STATE_FILE)
        return cls(directory)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> SweepState:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction; take the write lock first, so that nothing read goes stale."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise Unreachable(f"{self.path}: {error}; try again") from error
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    # ---- reading ----------------------------------------------------------------------

    def trials(self) -> list[Trial]:
        """Return all trials, by number."""
        return self._read("", ())

    def trial(self, number: int) -> Trial:
        """Return one trial."""
        trials = self._read("WHERE {} = ?", (number,))
        if not trials:
            raise Unreachable(f"{self.path}: no trial {number}")
        return trials[0]

    def _read(self, where: str, values: tuple[int, ...]) -> list[Trial]:
        """Read trials; `where` has a placeholder for the column with the trial number."""
        query = self._connection.execute
        epochs: dict[int, dict[int, dict[str, float]]] = {}
        of = where.format("trial")
        for trial, epoch, metrics in query(
            f"SELECT trial, epoch, metrics FROM epochs {of} ORDER BY trial, epoch", values
        ):
            epochs.setdefault(trial, {})[epoch] = json.loads(metrics)
        failures = dict(
            query(f"SELECT trial, count(*) FROM failures {of} GROUP BY trial", values).fetchall()
        )
        return [
            Trial(
                number,
                TrialState(state),
                json.loads(parameters) if parameters else {},
                runs,
                asked,
                told,
                reason,
                epochs.get(number, {}),
                failures.get(number, 0),
            )
            for number, state, parameters, runs, asked, told, reason in query(
                "SELECT number, state, parameters, runs, asked, told, reason FROM trials "
                f"{where.format('number')} ORDER BY number",
                values,
            )
        ]

    # ---- ask --------------------------------------------------------------------------

    def ask(self, number: int, propose: Callable[[list[Trial]], Mapping[str, Any] | None]) -> Trial:
        """Give a trial its parameters, once: asking again returns the same ones.

        `propose` sees the trials that have parameters. If it returns None, the trial is
        skipped. A trial that is over does not change.
        """
        with self._change() as connection:
            trial = self.trial(number)
            if trial.state.is_over:
                return trial
            if trial.state is TrialState.WAITING and not trial.parameters:
                parameters = propose([t for t in self.trials() if t.parameters])
                if parameters is None:
                    connection.execute(
                        "UPDATE trials SET state = 'skipped', told = ?, reason = ? "
                        "WHERE number = ?",
                        (time.time(), "nothing left to try", number),
                    )
                    return self.trial(number)
                connection.execute(
                    "UPDATE trials SET parameters = ?, asked = ? WHERE number = ?",
                    (json.dumps(parameters, sort_keys=True), time.time(), number),
                )
            connection.execute(
                "UPDATE trials SET state = 'running', runs = runs + 1 WHERE number = ?", (number,)
            )
            return self.trial(number)

    # ---- tell -------------------------------------------------------------------------

    def tell(
        self,
        number: int,
        epochs: Mapping[int, Mapping[str, float]],
        decide: Callable[[list[Trial], Trial], tuple[TrialState, str]],
    ) -> Trial:
        """Record what a trial reports and decide how it continues, in one transaction.

        `decide` sees all trials, this report included. Once the trial is over, another report
        changes nothing.
        """
        with self._change() as connection:
            trial = self.trial(number)
            if trial.state.is_over:
                return trial
            connection.executemany(
                "INSERT OR REPLACE INTO epochs VALUES (?, ?, ?)",
                (
                    (number, epoch, json.dumps(dict(metrics), sort_keys=True))
                    for epoch, metrics in epochs.items()
                ),
            )
            trials = self.trials()
            [trial] = [t for t in trials if t.number == number]
            state, reason = decide(trials, trial)
            connection.execute(
                "UPDATE trials SET state = ?, reason = ?, told = ? WHERE number = ?",
                (state.value, reason, time.time(), number),
            )
            return self.trial(number)

    def tell_failure(self, number: int, job: str, reason: str, allowed: int | None) -> Trial:
        """Record that a job of a trial failed; count each job once.

        After more than `allowed` failures the trial has failed for good; with None, at once.
        """
        with self._change() as connection:
            trial = self.trial(number)
            if trial.state.is_over:
                return trial
            connection.execute(
                "INSERT OR IGNORE INTO failures VALUES (?, ?, ?, ?)",
                (number, job, reason, time.time()),
            )
            [count] = connection.execute(
                "SELECT count(*) FROM failures WHERE trial = ?", (number,)
            ).fetchone()
            over = allowed is None or count > allowed
            connection.execute(
                "UPDATE trials SET state = ?, reason = ?, told = ? WHERE number = ?",
                ("failed" if over else "running", reason, time.time(), number),
            )
            return self.trial(number)

    def reopen(self, states: Iterable[TrialState] = (TrialState.FAILED,)) -> int:
        """Let trials in these states run again with their parameters; return how many."""
        with self._change() as connection:
            wanted = [state.value for state in states]
            marks = ",".join("?" * len(wanted))
            where = f"state IN ({marks})"
            connection.execute(
                f"DELETE FROM failures WHERE trial IN (SELECT number FROM trials WHERE {where})",
                wanted,
            )
            return connection.execute(
                f"UPDATE trials SET state = 'waiting', reason = '', told = NULL WHERE {where}",
                wanted,
            ).rowcount

    # ---- notes ------------------------------------------------------------------------

    def note(self, key: str, value: Any) -> None:
        """Save a value about the whole sweep."""
        with self._change() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO notes VALUES (?, ?)", (key, json.dumps(value))
            )

    def noted(self, key: str, default: Any = None) -> Any:
        """Return a saved value."""
        row = self._connection.execute("SELECT value FROM notes WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else default
