"""What was really wrong with each job, and what came of each hold.

The truth file is for benchmarks and checks, never for a feature: it holds what nobody on an
access point can know. A small parser of its own reads outcomes from the event log, so that
they can check those that `preprocess/` finds.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from condor_advice.lab.world import Trouble

HOLD_OUTCOMES = (
    "SUCCEEDED",
    "HELD_SAME",
    "HELD_OTHER",
    "FAILED",
    "REMOVED",
    "NEVER_RELEASED",
    "UNKNOWN",
)
JobKey = tuple[int, int]

_HEADER = re.compile(r"^(\d{3}) \((\d+)\.(\d+)\.\d+\) (\S+ \S+?)(?:\.\d+)? (.*)$")
_CODE = re.compile(r"^\tCode (\d+) Subcode (-?\d+)$", re.MULTILINE)
_SLOT = re.compile(r"slot[0-9_]+@([^@\s]+)@")
# Hold code and subcode of each trouble of an execution point or the site.
_MARKS = {
    "hook": (19, None),
    "scratch": (13, 28),
    "share": (26, None),
    "exit": (3, None),
    "wrapper": (3, None),
}


@dataclass(slots=True)
class Truth:
    """One job: which scenario it belongs to and what was wrong."""

    cluster: int
    proc: int
    owner: str
    scenario: str
    family: str
    cause: str
    transient: bool
    ended: str | None = None  # UTC; when the cause went away by itself
    fixed: str | None = None  # UTC; when somebody fixed it
    replaces: int | None = None  # the removed cluster of the same program that it stands in for
    struck: list[dict[str, object]] = field(default_factory=list)  # holds with another cause


@dataclass(slots=True)
class LoggedHold:
    """One hold in an event log, and its outcome."""

    job: JobKey
    number: int  # of this job, from 1
    at: datetime
    code: int
    subcode: int
    reason: str
    point: str
    outcome: str = "UNKNOWN"


def write_truth(path: Path, rows: Iterable[Truth]) -> None:
    """Write one JSON object per job, one per line."""
    with path.open("w") as file:
        for row in rows:
            file.write(json.dumps(asdict(row)) + "\n")


def read_truth(path: Path) -> dict[JobKey, Truth]:
    """Read the truth about each job."""
    rows = (Truth(**json.loads(line)) for line in path.read_text().splitlines())
    return {(row.cluster, row.proc): row for row in rows}


def utc(when: float | None) -> str | None:
    """Format a Unix time as in the truth file."""
    return (
        None
        if when is None
        else datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    )


def in_order(log: Path) -> list[Path]:
    """Return the files of a rotated event log, oldest first."""
    numbered = sorted(
        (path for path in log.parent.glob(f"{log.name}.*") if path.suffix[1:].isdigit()),
        key=lambda path: -int(path.suffix[1:]),
    )
    old = log.with_name(f"{log.name}.old")
    return [*numbered, *([old] if old.exists() else []), *([log] if log.exists() else [])]


def _events(paths: Sequence[Path]) -> Iterator[tuple[int, JobKey, datetime, str]]:
    year = datetime.now(UTC).year  # for logs whose dates have no year
    text = "".join(path.read_text(errors="replace") for path in paths)
    for block in text.split("\n...\n"):
        head, _, body = block.partition("\n")
        if match := _HEADER.match(head):
            stamp = match[4] if "-" in match[4] else f"{year}/{match[4]}".replace("/", "-")
            when = datetime.fromisoformat(stamp.replace("T", " ")).replace(tzinfo=UTC)
            yield int(match[1]), (int(match[2]), int(match[3])), when, f"{match[5]}\n{body}"


def read_holds(paths: Sequence[Path]) -> list[LoggedHold]:
    """Return every hold in a log with its outcome, in log order."""
    holds: list[LoggedHold] = []
    open_hold: dict[JobKey, LoggedHold] = {}
    released: set[JobKey] = set()
    count: Counter[JobKey] = Counter()
    point: dict[JobKey, str] = defaultdict(str)

    def close(job: JobKey, outcome: str) -> None:
        if hold := open_hold.pop(job, None):
            hold.outcome = outcome if job in released else "NEVER_RELEASED"

    for kind, job, when, text in _events(paths):
        if kind != 28 and (slot := _SLOT.search(text)):
            point[job] = slot[1]
        if kind == 12:
            match = _CODE.search(text)
            code, subcode = (int(match[1]), int(match[2])) if match else (0, 0)
            reason = text.split("\n")[1].strip() if "\n" in text else ""
            if before := open_hold.get(job):
                close(job, "HELD_SAME" if before.code == code else "HELD_OTHER")
            count[job] += 1
            released.discard(job)
            open_hold[job] = LoggedHold(job, count[job], when, code, subcode, reason, point[job])
            holds.append(open_hold[job])
        elif kind == 13:
            released.add(job)
        elif kind == 5:
            close(job, "SUCCEEDED" if "(return value 0)" in text else "FAILED")
        elif kind == 9:
            close(job, "REMOVED")
    for job, hold in open_hold.items():
        hold.outcome = "UNKNOWN" if job in released else "NEVER_RELEASED"
    return holds


def mark_struck(
    rows: dict[JobKey, Truth],
    holds: Iterable[LoggedHold],
    troubles: Sequence[Trouble],
    projects: dict[JobKey, str],
) -> None:
    """Note the holds that came from a trouble of an execution point or of the site."""
    for hold in holds:
        row = rows.get(hold.job)
        if row is None:
            continue
        at = hold.at.timestamp()
        for trouble in troubles:
            code, subcode = _MARKS[trouble.kind]
            where = projects.get(hold.job) if trouble.kind == "share" else hold.point
            if (
                trouble.point == where
                and trouble.since - 1 <= at <= trouble.until + 15
                and hold.code == code
                and subcode in (None, hold.subcode)
            ):
                row.struck.append(
                    {
                        "hold": hold.number,
                        "cause": trouble.kind,
                        "where": trouble.point,
                        "ended": utc(trouble.until),
                    }
                )
                break


def tabulate(holds: Iterable[LoggedHold], rows: dict[JobKey, Truth]) -> dict[str, Counter[str]]:
    """Count outcomes by scenario; holds that a trouble caused are counted under the trouble."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for hold in holds:
        row = rows.get(hold.job)
        name = row.scenario if row else "(unknown)"
        if row:
            for strike in row.struck:
                if strike["hold"] == hold.number and not name.startswith(("host_", "site_")):
                    name = f"(struck: {strike['cause']})"
        table[name][hold.outcome] += 1
    return dict(sorted(table.items()))
