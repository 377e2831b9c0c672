"""`condor-advice status`: show the store's content, each log's state, and how good advice was."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from condor_advice.advise.commands.options import json_option
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.events import JobEventType
from condor_advice.gather.foreign_text import one_line
from condor_advice.gather.store import LogStatus, Store, default_store_path
from condor_advice.gather.tail import unread_behind

if TYPE_CHECKING:
    from rich.console import Console

# All oddities are counted; this many per log are shown with their place.
ODDITIES_SHOWN = 20


@click.command()
@click.option(
    "--store",
    "store_path",
    metavar="FILE",
    type=click.Path(readable=False),
    help="The store to read. [default: CONDOR_ADVICE_STORE, or in the XDG data directory]",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write an HTML page on drift over time and the quality of the advice.",
)
@json_option
def status(store_path: str | None, report: Path | None, as_json: bool) -> None:
    """Show the state of the store, the logs and the model in use.

    Includes how good past advice was. Warns if holds or their outcomes have drifted from the
    model's training data.
    """
    from condor_advice.advise.model_health import health, warnings

    path = store_path or default_store_path()
    with Store(path, readonly=True) as store:
        advice = health(store, time.time())
        figures = _status(store) | {"advice": advice | {"warnings": warnings(advice)}}
    if report:
        from condor_advice.advise.health_page import health_page

        report.write_text(health_page(figures))
    if as_json:
        click.echo(json.dumps(figures))
    else:
        _print(figures)


def _status(store: Store) -> dict[str, Any]:
    counts = store.counts_by_type()
    logs = store.logs()
    return {
        "store": str(store.path),
        "store_bytes": _bytes_of(store.path) + _bytes_of(f"{store.path}-wal"),
        "events": sum(counts.values()),
        "events_by_type": {f"{kind:03d}": count for kind, count in counts.items()},
        "logs": [_log(log) for log in logs],
        "gaps": [asdict(gap) for gap in store.gaps()],
        "oddities": [
            {"log": log.cursor.log, **asdict(oddity)}
            for log in logs
            for oddity in store.oddities(log.cursor.log, ODDITIES_SHOWN)
        ],
    }


def _log(log: LogStatus) -> dict[str, Any]:
    """Describe one log: how far it has been read, and how far behind that is."""
    cursor = log.cursor
    size = unread = None
    problem = None
    try:
        size = os.stat(cursor.log).st_size
        unread = unread_behind(cursor)
    except OSError as error:
        problem = f"{cursor.log}: {os.strerror(error.errno) if error.errno else error}"
    except AdviceError as error:
        problem = str(error)
    return {
        "log": cursor.log,
        "access_point": cursor.access_point,
        "events": sum(log.events_by_type.values()),
        "events_by_type": {f"{kind:03d}": n for kind, n in sorted(log.events_by_type.items())},
        "read_to": cursor.offset,
        "size": size,
        "unread_bytes": unread,
        "sequence": cursor.sequence,
        "read_at": cursor.read_at,
        "last_event_at": log.last_event,
        "lag_seconds": _lag(log, unread),
        "oddities": log.oddities,
        "problem": problem,
    }


def _lag(log: LogStatus, unread: int | None) -> float | None:
    """Return the seconds since the log was read to its end; 0 if nothing is unread."""
    if unread is None:
        return None
    return 0.0 if unread == 0 else max(0.0, time.time() - log.cursor.read_at)


def _bytes_of(path: str | Path) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _print(figures: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    _print_line(
        console,
        f"{figures['store']}: {figures['events']:,} events from {len(figures['logs'])} log(s), "
        f"{figures['store_bytes'] / 1e6:,.1f} MB",
    )
    for log in figures["logs"]:
        console.print()
        _print_line(console, f"{log['log']} (access point {log['access_point']})")
        console.print(f"  {log['events']:,} events, the last at {_when(log['last_event_at'])}")
        read = f"read to byte {log['read_to']:,} at {_when(log['read_at'])}"
        if log["unread_bytes"]:
            read += f"; {log['unread_bytes']:,} bytes unread, {log['lag_seconds']:,.0f} s behind"
        elif log["unread_bytes"] == 0:
            read += "; nothing unread"
        console.print(f"  {read}")
    if figures["events_by_type"]:
        table = Table(box=None, pad_edge=False)
        table.add_column("event")
        table.add_column("name")
        table.add_column("events", justify="right")
        for kind, count in figures["events_by_type"].items():
            name = JobEventType(int(kind)).name.replace("_", " ").lower()
            table.add_row(kind, name, f"{count:,}")
        console.print()
        console.print(table)
    for log in figures["logs"]:
        if log["problem"]:
            console.print()
            _print_line(console, log["problem"])
        counted = ", ".join(f"{kind} {count:,}" for kind, count in log["oddities"].items())
        if counted:
            console.print()
            _print_line(console, f"{log['log']}: oddities: {counted}")
            for oddity in figures["oddities"]:
                if oddity["log"] == log["log"]:
                    where = f"  byte {oddity['offset']:,}: {oddity['kind']}"
                    _print_line(console, f"{where}: {oddity['excerpt']!r}")
    for gap in figures["gaps"]:
        console.print()
        _print_line(console, f"{gap['log']}: events are missing: {_gap(gap)}")
    _print_advice(console, figures["advice"])


def _print_advice(console: Console, advice: dict[str, Any]) -> None:
    from condor_advice.advise.model_health import feedback_words

    console.print()
    _print_line(console, f"model: {advice['model'] or 'none, so advice comes from rules alone'}")
    for line in (*advice["warnings"], *feedback_words(advice)):
        _print_line(console, line)
    for note in (advice["drift_note"], advice.get("feedback_note")):
        if note:
            _print_line(console, note)


def _print_line(console: Console, text: str) -> None:
    """Print one line; file names and lines of logs in it may be a stranger's."""
    console.print(one_line(text), markup=False)


def _gap(gap: dict[str, Any]) -> str:
    """Describe a gap, as far as known."""
    known = []
    if gap["bytes_lost"] is not None:
        known.append(f"at least {gap['bytes_lost']:,} bytes")
    if gap["events_lost"] is not None:
        known.append(f"{gap['events_lost']:,} events")
    if gap["after_sequence"] is not None:
        known.append(f"between files {gap['after_sequence']} and {gap['before_sequence']}")
    extent = f" ({', '.join(known)})" if known else ""
    return f"{gap['reason']}{extent}; found {_when(gap['found_at'])}"


def _when(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
