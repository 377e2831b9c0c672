"""`condor-advice gather`: read event logs into the store, once or continuously."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType
from typing import TextIO, cast

import click

from condor_advice.advise.commands.options import zone_option
from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.collect import Collector, Gathered
from condor_advice.gather.foreign_text import OwnText, one_line
from condor_advice.gather.memory import keep_freed_memory
from condor_advice.gather.store import Store, default_store_path
from condor_advice.preprocess.holds.keeper import EpisodeKeeper

# Below this a progress bar would only flicker.
LONG_READ_BYTES = 20 << 20

_ROTATION = re.compile(r"(?P<log>.+)\.(?:old|\d+)")


@click.command()
@click.argument("logs", metavar="[LOG]...", nargs=-1, type=click.Path(readable=False))
@click.option("--follow", "-f", is_flag=True, help="Follow the logs until Ctrl-C.")
@click.option(
    "--store",
    "store_path",
    metavar="FILE",
    type=click.Path(readable=False),
    help="The store to write to. [default: CONDOR_ADVICE_STORE, or in the XDG data directory]",
)
@click.option(
    "--access-point",
    metavar="NAME",
    help="Access point of the logs: the name of its schedd. [default: this machine's]",
)
@zone_option
@click.option(
    "--no-rotations",
    is_flag=True,
    help="Treat LOG.old, LOG.1, ... as separate logs, not as older parts of LOG.",
)
@click.option(
    "--poll", is_flag=True, help="Check for changes every second instead of using inotify."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per log.")
def gather(
    logs: tuple[str, ...],
    follow: bool,
    store_path: str | None,
    access_point: str | None,
    zone: str | None,
    no_rotations: bool,
    poll: bool,
    as_json: bool,
) -> None:
    """Read new events from job event logs into the store.

    Rotated parts of a log (LOG.old, LOG.1, ...) are read first. Without LOG, the pool's EVENT_LOG
    is read. Nothing is read twice. Events lost because a rotation was missed are recorded: see
    `condor-advice status`.
    """
    from condor_advice.gather.live import find_event_log, guess_access_point

    clock = Clock(find_zone(zone))
    if not logs:
        setting = find_event_log()
        logs, access_point = (setting.path,), access_point or setting.access_point
    if not no_rotations:
        logs = _without_rotations(logs)
    path = store_path or default_store_path()
    keep_freed_memory()
    with Store(path) as store:
        keeper = EpisodeKeeper(store)
        collector = Collector(
            store,
            logs,
            access_point=access_point or guess_access_point(),
            clock=clock,
            rotations=not no_rotations,
            polling=poll,
            notice=_warn,
            settle=keeper.settle,
            stored=keeper.stored,
        )
        with _ending_on_signals(collector.stop) as received, _progress(collector) as progress:
            keeper.stop_signals = received
            if follow:
                _print_on_terminal(f"following {len(collector.gathered)} log(s) into {path}")
                collector.follow(progress)
            else:
                collector.read(progress)
    results = list(collector.gathered.values())
    for result in results:
        if as_json:
            click.echo(_as_json(result))
        elif result.events or result.error is None:
            click.echo(_as_text(result))
    if received and not follow:
        raise SystemExit(128 + received[0])
    if any(result.error for result in results):
        raise SystemExit(1)


def _without_rotations(logs: Sequence[str]) -> tuple[str, ...]:
    """Drop `EventLog.1` if `EventLog` is named too, as in `EventLog*`.

    It is a part of that log and would be read twice.
    """
    named = {os.path.abspath(log) for log in logs}
    kept = []
    for log in logs:
        rotated = _ROTATION.fullmatch(os.path.abspath(log))
        if rotated is None or rotated["log"] not in named:
            kept.append(log)
    return tuple(kept)


@contextmanager
def _ending_on_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Stop cleanly on SIGTERM and Ctrl-C; a second signal stops at once, which is also safe."""
    received: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(number, signal.SIG_DFL)
        stop()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress(collector: Collector) -> Iterator[Callable[[int], None]]:
    """Show a progress bar for a long read, on a terminal only."""
    total = collector.unread_bytes() if sys.stderr.isatty() else 0
    if total < LONG_READ_BYTES:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("reading"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(file=cast(TextIO, OwnText(sys.stderr)))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=total)

        def advance(size: int) -> None:
            bar.advance(task, size)
            if bar.finished:
                bar.stop()  # following has no end

        yield advance


def _warn(result: Gathered) -> None:
    """Report a log's errors and gaps as soon as they are known."""
    if result.error is not None:
        click.echo(f"condor-advice: {one_line(result.error)}", err=True)
    for gap in result.gaps[result.reported :]:
        problem = f"{result.log}: events are missing: {gap.reason}"
        click.echo(f"condor-advice: {one_line(problem)}", err=True)
    result.reported = len(result.gaps)


def _print_on_terminal(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(one_line(text), err=True)


def _as_text(result: Gathered) -> str:
    gaps = f", {len(result.gaps)} gap(s)" if result.gaps else ""
    return one_line(f"{result.log}: {result.events:,} new events{gaps}")


def _as_json(result: Gathered) -> str:
    return json.dumps(
        {
            "log": result.log,
            "events": result.events,
            "gaps": [asdict(gap) for gap in result.gaps],
            "error": str(result.error) if result.error else None,
        }
    )
