"""The facts of hold episodes: what evidence about other holds is made of.

A fact is one episode as its events tell: which job, which reason, where, and when it was released
and decided. The sequence numbers say at which place in the order of events each became known. So
the facts of a store or of logs answer for any moment: what was not known then is left out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Facts = npt.NDArray[np.void]  # of dtype FACT, in the order of the holds
Ends = npt.NDArray[np.void]  # of dtype END, in the order of the ends

# What evidence needs of an episode. Times are microseconds, -1 where it has not happened.
FACT = np.dtype(
    [
        ("episode", "i8"),
        ("job", "i8"),
        ("number", "i4"),
        ("time", "i8"),
        ("sequence", "i8"),
        ("code", "i4"),
        ("template", "i4"),
        ("family", "i2"),
        ("point", "i4"),
        ("owner", "i4"),
        ("program", "i8"),  # owner and name of the executable; 0 unknown
        ("stem", "i8"),  # owner and batch name without its number; 0 unknown
        ("run", "f4"),  # seconds of the run that ended in the hold; -1 without a start
        ("submitted", "i8"),
        ("starts", "i4"),
        ("released", "i8"),
        ("released_sequence", "i8"),
        ("decided", "i8"),
        ("decided_sequence", "i8"),
        ("outcome", "i1"),
        ("changed", "i1"),  # released after a change: says nothing about a release as is
    ]
)
# How a job ended that was never held. The first proc of each cluster is left out: a cluster of one
# job has no mates, and the others lose little.
END = np.dtype(
    [
        ("cluster", "i8"),  # see cluster_of
        ("sequence", "i8"),
        ("time", "i8"),
        ("point", "i4"),
        ("good", "i1"),  # 1: it exited with 0
    ]
)
NEVER = 1 << 61  # a sequence that no event reaches


@dataclass(frozen=True, slots=True)
class Moment:
    """When the question is asked; facts count that are earlier in the order of events, too."""

    time: int  # microseconds
    sequence: int = NEVER  # facts from this place on are not known yet


def facts_of(*tables: npt.NDArray[np.void]) -> Facts:
    """Return the facts of episodes from tables with one row for each, such as EPISODE and OUTCOME.

    What none of them has stays unknown.
    """
    facts = np.zeros(len(tables[0]), FACT)
    for name in ("released", "released_sequence", "decided", "decided_sequence", "submitted"):
        facts[name] = -1
    for table in tables:
        for name in set(FACT.names or ()) & set(table.dtype.names or ()):
            facts[name] = table[name]
    return facts


def decision_moment(fact: np.void) -> Moment:
    """Return the moment right before a hold's release, or its beginning if there was none."""
    if fact["released_sequence"] >= 0:
        return Moment(int(fact["released"]), int(fact["released_sequence"]))
    return Moment(int(fact["time"]), int(fact["sequence"]) + 1)


def moment_at(facts: Facts, ends: Ends, time: int) -> Moment:
    """Return the moment right before a time: what happened at that time is not known yet.

    Logs have whole seconds, so a question at 12:00:05 knows what happened until 12:00:04.
    """
    known = -1
    for when, place in (
        (facts["time"], facts["sequence"]),
        (facts["released"], facts["released_sequence"]),
        (facts["decided"], facts["decided_sequence"]),
        (ends["time"], ends["sequence"]),
    ):
        known = max(known, int(place[(place >= 0) & (when < time)].max(initial=-1)))
    return Moment(time - 1, known + 1)


# ---- in a store ------------------------------------------------------------------------------

# Facts are kept as arrays of so many episodes. Reading ten thousand of them takes a millisecond,
# and an outcome that comes later rewrites one small array.
CHUNK = 64
FACTS_TABLE = """CREATE TABLE kept_facts (
        chunk INTEGER PRIMARY KEY,      -- number of the first episode over CHUNK
        facts BLOB NOT NULL             -- of dtype FACT
    )"""
_OUTCOME = ("outcome", "released", "released_sequence", "decided", "decided_sequence", "changed")


def write_facts(db: sqlite3.Connection, new: Facts, outcomes: npt.NDArray[np.void]) -> None:
    """Add the facts of new episodes, and renew the outcomes of earlier ones."""
    chunks = np.unique(np.concatenate((new["episode"], outcomes["episode"])) // CHUNK)
    rows = []
    for chunk in chunks.tolist():
        kept = db.execute("SELECT facts FROM kept_facts WHERE chunk = ?", (chunk,)).fetchone()
        facts = np.frombuffer(kept[0] if kept else b"", FACT)
        facts = np.concatenate((facts, new[new["episode"] // CHUNK == chunk]))
        later = outcomes[outcomes["episode"] // CHUNK == chunk]
        places = later["episode"] - chunk * CHUNK
        for name in _OUTCOME:
            facts[name][places] = later[name]
        rows.append((chunk, facts.tobytes()))
    db.executemany("INSERT OR REPLACE INTO kept_facts VALUES (?, ?)", rows)


def cut_facts(db: sqlite3.Connection, episodes: int) -> None:
    """Keep the facts of so many episodes, and drop what follows."""
    chunk, rest = divmod(episodes, CHUNK)
    db.execute("DELETE FROM kept_facts WHERE chunk > ?", (chunk,))
    db.execute(
        "UPDATE kept_facts SET facts = substr(facts, 1, ?) WHERE chunk = ?",
        (rest * FACT.itemsize, chunk),
    )


def join_chunks(chunks: Iterable[bytes]) -> Facts:
    """Return the facts of chunks, in their order."""
    return np.frombuffer(b"".join(chunks), FACT)
