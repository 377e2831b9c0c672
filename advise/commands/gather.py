"""`condor-advice gather`: read event logs into the store, once or for ever."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType

import click

from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.collect import Collector, Gathered
from condor_advice.gather.memory import give_back_memory, keep_freed_memory
from condor_advice.gather.store import Store, default_store_path

# Below this a progress bar would only flicker.
LONG_READ_BYTES = 20 << 20
# While logs are followed, hold episodes are kept up to date this often, and at most in this
# share of the time.
KEEP_SECONDS = 2.0
KEEP_SHARE = 0.05
PATIENCE_SECONDS = 3.0  # of who stops us in the midst of that, and of logs that grow
MANY_EVENTS = 50_000

_ROTATION = re.compile(r"(?P<log>.+)\.(?:old|\d+)")


@click.command()
@click.argument("logs", metavar="[LOG]...", nargs=-1, type=click.Path(readable=False))
@click.option("--follow", "-f", is_flag=True, help="Keep following the logs; end with Ctrl-C.")
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
    help="Whose jobs these are, as its schedd is called. [default: this machine's]",
)
@click.option(
    "--zone",
    metavar="ZONE",
    help="Time zone of logs that are not in UTC, such as America/Chicago. "
    "[default: this machine's]",
)
@click.option(
    "--no-rotations",
    is_flag=True,
    help="LOG.old, LOG.1, ... are logs of their own, not older parts of LOG.",
)
@click.option("--poll", is_flag=True, help="Look for changes every second; do not use inotify.")
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
    """Read what is new in job event logs into the store.

    Rotated parts of a log (LOG.old, LOG.1, ...) are read first. With no LOG, the pool's
    own EVENT_LOG is read. What was read before is not read again, and what cannot be read
    any more, because a rotation was missed, is recorded: see `condor-advice status`.
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
        keeper = _Keeper(store)
        collector = Collector(
            store,
            logs,
            access_point=access_point or guess_access_point(),
            clock=clock,
            rotations=not no_rotations,
            polling=poll,
            notice=_warn,
            settle=keeper.settle,
        )
        with _ending_on_signals(collector.stop) as received, _progress(collector) as progress:
            keeper.stopping = received
            if follow:
                _say(f"following {len(collector.gathered)} log(s) into {path}")
                collector.follow(progress)
            else:
                collector.read(progress)
    found = list(collector.gathered.values())
    for one in found:
        if as_json:
            click.echo(_as_json(one))
        elif one.events or one.error is None:
            click.echo(_as_text(one))
    if received and not follow:
        raise SystemExit(128 + received[0])
    if any(one.error for one in found):
        raise SystemExit(1)


class _Keeper:
    """Keeps hold episodes ready as events come, in a small share of the time."""

    def __init__(self, store: Store) -> None:
        from condor_advice.preprocess.holds.episode_store import KeptEpisodes

        self._kept = KeptEpisodes(store)
        self.stopping: Sequence[int] = ()  # signals that came
        self._events = -1
        self._store = store
        self._next = 0.0

    def settle(self, final: bool) -> float | None:
        """Take up what is new, unless that was done a moment ago."""
        began = time.monotonic()
        events = sum(self._store.counts_by_type().values())
        if not final and (events == self._events or began < self._next):
            return None if events == self._events else self._next - began
        if events - self._events > MANY_EVENTS:
            give_back_memory()  # of the blocks that were read: this needs other arrays
        self._kept.take_up(
            final=final,
            # Who stops us need not wait for a long pass: the next one goes on with it.
            stop=lambda: bool(self.stopping) and time.monotonic() > began + PATIENCE_SECONDS,
            # Nor need the logs: they are looked at in between, and must not rotate away.
            seconds=math.inf if final else PATIENCE_SECONDS,
        )
        if self._kept.behind:
            return 0.0
        self._events = events
        ended = time.monotonic()
        self._next = ended + max(KEEP_SECONDS, (ended - began) / KEEP_SHARE)
        return None


def _without_rotations(logs: Sequence[str]) -> tuple[str, ...]:
    """Drop `EventLog.1` when `EventLog` is named too, as `EventLog*` does.

    It is a part of that log, and would be read twice.
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
    """End cleanly at SIGTERM and Ctrl-C; a second one ends at once, which is safe too."""
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
    """Show how far a long read is, to people only."""
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=total)

        def advance(size: int) -> None:
            bar.advance(task, size)
            if bar.finished:
                bar.stop()  # from here on it is following, which has no end

        yield advance


def _warn(found: Gathered) -> None:
    """Report what is wrong with a log as soon as it is found."""
    if found.error is not None:
        click.echo(f"condor-advice: {found.error}", err=True)
    for gap in found.gaps[found.reported :]:
        click.echo(f"condor-advice: {found.log}: events are missing: {gap.reason}", err=True)
    found.reported = len(found.gaps)


def _say(words: str) -> None:
    if sys.stderr.isatty():
        click.echo(words, err=True)


def _as_text(found: Gathered) -> str:
    gaps = f", {len(found.gaps)} gap(s)" if found.gaps else ""
    return f"{found.log}: {found.events:,} new events{gaps}"


def _as_json(found: Gathered) -> str:
    return json.dumps(
        {
            "log": found.log,
            "events": found.events,
            "gaps": [asdict(gap) for gap in found.gaps],
            "error": str(found.error) if found.error else None,
        }
    )
