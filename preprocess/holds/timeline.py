"""All events of a store, or of log files, in one order: the order in which they became known.

Within one log that is the order of the log: an event that stands behind a hold was not known
at the hold, whatever its time says. Between logs it is the order of their clocks. A log's
clock is its time stamps made to never run backwards; a large step back is a clock that was
set, and from there on the clock goes on from where it was.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from condor_advice.gather.clock import Clock
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.fresh import STORE_START, StorePosition
from condor_advice.gather.reader import (
    BLOCK_BYTES,
    EventColumns,
    ReaderState,
    first_year,
    read_block,
)
from condor_advice.gather.regular import open_regular
from condor_advice.gather.store import Store
from condor_advice.preprocess.holds.steps import (
    Names,
    Steps,
    empty_steps,
    join_steps,
    read_steps,
    take_steps,
)

Ints = npt.NDArray[np.int64]

_YEARLESS = re.compile(rb"^\d{3} \([-\d.]+\) \d\d/\d\d ", re.MULTILINE)
BATCH_STEPS = 1 << 15  # of one log; small batches cost more than they save
# Events of one log are out of order by a little, since each daemon stamps its own; more than
# this is a clock that was set back.
CLOCK_STEP_US = 3600 * 1_000_000
MAX_CLOCK_STEPS = 64  # per block; a block with more has no order worth following


_EVER = -(1 << 62)


@dataclass(slots=True)
class LogClock:
    """A clock that follows a log's time stamps and never runs backwards."""

    now: int = -(1 << 62)
    offset: int = 0
    steps: int = 0

    def follow(self, times: Ints) -> Ints:
        """Return the clock at each of the log's next time stamps."""
        clock = np.empty_like(times)
        at = 0
        for _ in range(MAX_CLOCK_STEPS + 1):
            shown = times[at:] + self.offset
            run = np.maximum.accumulate(np.maximum(shown, self.now))
            clock[at:] = run
            back = np.flatnonzero(run - shown > CLOCK_STEP_US)
            if not len(back) or _ == MAX_CLOCK_STEPS:
                break
            step = int(back[0])
            self.offset += int(run[step] - shown[step])
            self.now = int(run[step])
            self.steps += 1
            at += step
        if len(times):
            self.now = int(clock[-1])
        return clock


@dataclass(slots=True)
class LogSource:
    """One log: its blocks still to come, and the steps already read from it."""

    log: str
    access_point: str
    blocks: Iterator[EventColumns]
    clock: LogClock = field(default_factory=LogClock)
    buffer: Steps = field(default_factory=empty_steps)
    ended: bool = False
    since: int = _EVER  # the clock shows no less at the log's next event
    events: int = 0  # that are expected next

    def load(self, names: Names) -> bool:
        """Read more blocks into the buffer, some at a time; tell whether there were any."""
        blocks, events = [], 0
        for columns in self.blocks:
            blocks.append(columns)
            events += len(columns)
            if events >= BATCH_STEPS:
                break
        else:
            self.ended = True
        waiting = len(self.buffer)
        # One array for all of them: to join arrays of so many bytes takes time and memory.
        buffer = empty_steps(waiting + events)
        buffer[:waiting] = self.buffer
        count = waiting
        while blocks:  # each is freed once it is read
            columns = blocks.pop(0)
            count += read_steps(columns, self.access_point, self.log, names, buffer[count:])
        self.buffer = buffer[:count]
        new = self.buffer[waiting:]
        new["clock"] = self.clock.follow(np.ascontiguousarray(new["time"]))
        return count > waiting


class Timeline:
    """Merges logs; yields batches of steps in the order in which the events became known."""

    def __init__(self, sources: Iterable[LogSource], names: Names | None = None) -> None:
        self.sources = list(sources)
        self.names = names or Names()
        self.in_portions = False  # whether the last batch has been worked off in part only
        # Asked while logs are opened; ends the batches.
        self.stop: Callable[[], bool] = lambda: False

    def counts(self) -> Counter[str]:
        """Return what was odd about the logs' clocks."""
        return Counter({"clock_steps": sum(source.clock.steps for source in self.sources)})

    @property
    def settled(self) -> bool:
        """Whether all that was read has been worked off, so that another timeline can go on."""
        return not self.in_portions and not any(len(source.buffer) for source in self.sources)

    def batches(self) -> Iterator[Steps]:
        """Yield steps; batches differ in size and their borders have no meaning.

        A log is opened when its first event may be next: of thousands few are open at a time.
        """
        place = {id(source): number for number, source in enumerate(self.sources)}
        unopened = sorted(self.sources, key=lambda source: source.since, reverse=True)
        opened: list[LogSource] = []
        while True:
            for source in opened:
                if not len(source.buffer) and not source.ended:
                    source.load(self.names)
            opened = [source for source in opened if len(source.buffer)]
            if not opened and not unopened:
                return
            if len(opened) == 1 and not unopened:
                [only] = opened
                batch, only.buffer = only.buffer, empty_steps()
                yield batch
                continue
            # What the next block of any log may still precede has to wait.
            open_ = [source for source in opened if not source.ended]
            ends = [int(source.buffer["clock"][-1]) for source in open_]
            horizon = min([*ends, *(source.since for source in unopened[-1:])], default=None)
            parts = []
            for source in opened:
                upto = (
                    len(source.buffer)
                    if horizon is None
                    else int(np.searchsorted(source.buffer["clock"], horizon))
                )
                if upto:
                    parts.append(source.buffer[:upto])
                    source.buffer = source.buffer[upto:]
            if parts:
                batch = join_steps(*parts)
                yield take_steps(batch, np.argsort(batch["clock"], kind="stable"))
            elif unopened and unopened[-1].since == horizon:
                opened += self._open_some(unopened)
                if unopened and self.stop():
                    return
                # Events of the same moment come in the order of the logs.
                opened.sort(key=lambda source: place[id(source)])
            else:
                for source in open_:
                    if int(source.buffer["clock"][-1]) == horizon:
                        source.load(self.names)

    def _open_some(self, unopened: list[LogSource]) -> list[LogSource]:
        """Take the logs that begin first, with about a batch of events; read their beginnings."""
        some: list[LogSource] = []
        events = 0
        while unopened and events < BATCH_STEPS and not (some and self.stop()):
            source = unopened.pop()
            events += max(1, source.events)
            while not len(source.buffer) and not source.ended:
                source.load(self.names)
            some.append(source)
        return some


def store_timeline(
    store: Store,
    after: dict[str, StorePosition] | None = None,
    names: Names | None = None,
    clocks: dict[str, LogClock] | None = None,
) -> Timeline:
    """Return the timeline of a store's logs, from where `after` says each log was read to.

    `clocks` are the logs' clocks as they were there; both go on with the timeline.
    """
    clocks = {} if clocks is None else clocks
    sources = []
    for news in store.news({} if after is None else after):
        clock = clocks.setdefault(news.log, LogClock())
        since = _EVER if news.first_us is None else max(clock.now, news.first_us + clock.offset)
        blocks = _store_blocks(store, news.log, after)
        sources.append(
            LogSource(news.log, news.access_point, blocks, clock, since=since, events=news.events)
        )
    return Timeline(sources, names)


def _store_blocks(
    store: Store, log: str, after: dict[str, StorePosition] | None
) -> Iterator[EventColumns]:
    """Yield a log's events from where `after` says it was read to, and move that on.

    Blocks that are still in memory come from there, all others from the store.
    """
    after = {} if after is None else after
    while store.fresh is not None:
        block = store.fresh.take(log, after.get(log, STORE_START))
        if block is None:
            break
        after[log] = block.after
        yield block.columns
    before, done = after.get(log, STORE_START)
    if (before, done) == store.end_of(log):
        return
    previous = before
    for piece in store.pieces(before, log):
        after[log] = (previous, len(piece.columns))
        previous = piece.id
        columns = piece.columns
        if done:  # the last piece known then has grown
            rows = np.ones(len(columns), np.bool_)
            rows[:done] = False
            done = 0
            columns.keep(rows)
        yield columns


def log_timeline(
    paths: Iterable[str | os.PathLike[str]],
    clock: Clock,
    access_point: str = "",
    names: Names | None = None,
) -> Timeline:
    """Return the timeline of log files that no store has."""
    return Timeline(
        [LogSource(os.fspath(path), access_point, log_blocks(Path(path), clock)) for path in paths],
        names,
    )


def log_blocks(path: Path, clock: Clock) -> Iterator[EventColumns]:
    """Yield a file's events block by block."""
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            left = status.st_size  # a log that grows as fast as it is read has an end, too
            state = ReaderState()
            if _has_no_years(file.fileno(), status.st_size):
                modified = datetime.fromtimestamp(status.st_mtime, UTC)
                state.year = first_year(file.fileno(), status.st_size, modified)
            base, rest = 0, b""
            while True:
                read = file.read(min(left, BLOCK_BYTES))
                left -= len(read)
                data = rest + read
                if not data:
                    return
                columns, used = read_block(data, state, base=base, clock=clock, final=not read)
                base, rest = base + used, data[used:]
                yield columns
                if not read:
                    return
    except OSError as error:
        raise AdviceError(
            f"{path}: cannot read the log ({error.strerror}); name an HTCondor job event log"
        ) from None


def _has_no_years(fd: int, size: int) -> bool:
    """Tell whether a file's dates have no year: to find it takes a look at all of the file."""
    ends = (os.pread(fd, 1 << 16, 0), os.pread(fd, 1 << 16, max(0, size - (1 << 16))))
    return any(_YEARLESS.search(end) for end in ends)
