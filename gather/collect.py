"""Read several logs into one store, once or continuously."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from condor_advice.gather.clock import Clock
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.look import NoSuchLog, UnreadableLog
from condor_advice.gather.store import Gap, Store
from condor_advice.gather.tail import LogTail, is_unchanged
from condor_advice.gather.watch import Watcher

MANY_FILES = 10_000  # rotations of one log, all of which are looked at at once


@dataclass
class Gathered:
    """What was read from one log."""

    log: str
    events: int = 0
    gaps: list[Gap] = field(default_factory=list)
    reported: int = 0  # how many of the gaps the user has been told of
    error: AdviceError | None = None  # why nothing (more) could be read
    seen: tuple[int, ...] | None = None  # the state of the file that was refused, or let go


class Collector:
    """Several logs of one access point, read by one process."""

    def __init__(
        self,
        store: Store,
        logs: Sequence[str],
        *,
        access_point: str,
        clock: Clock,
        rotations: bool = True,
        polling: bool = False,
        notice: Callable[[Gathered], None] = lambda _: None,
        settle: Callable[[bool], float | None] = lambda _: None,
        stored: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._access_point = access_point
        self._clock = clock
        self._rotations = rotations
        self._polling = polling
        self._notice = notice  # told when a log's error or gaps change
        # Told when all logs are read, and whether that is the end; says after how many
        # seconds it wants to be told again even if nothing comes.
        self._settle = settle
        self._stored = stored  # told after each block of a log that is read by itself
        self._tails: dict[str, LogTail] = {}
        self._watcher: Watcher | None = None
        self._stopping = False
        self._crowded = False  # there are more logs than files that may be open
        self.gathered = {log: Gathered(log) for log in dict.fromkeys(map(os.path.abspath, logs))}

    def stop(self) -> None:
        """End after the current transaction. Safe in a signal handler."""
        self._stopping = True
        if self._watcher is not None:
            self._watcher.wake()

    def unread_bytes(self) -> int:
        """Return how many bytes there are to read now, over all readable logs."""
        total = 0
        for log in self.gathered:
            if self._stopping:
                break
            with contextlib.suppress(AdviceError, OSError):
                total += self._tail(log).unread_bytes()
            self._release(log)
        return total

    def read(self, progress: Callable[[int], None] = lambda _: None) -> None:
        """Read everything new in each log."""
        _allow_open_files(MANY_FILES)
        if len(self.gathered) == 1 and not self._store.has_other_logs(*self.gathered):
            # Nothing in another log can come before its events, so they may be used at once.
            progress = self._then_stored(progress)
        for log in self.gathered:
            if self._stopping:
                break
            if self._is_unchanged(log):
                continue
            while not self._stopping:
                wait = self._advance(log, progress)
                if wait is None:
                    break
                # A file was rotated this very moment: its last writer may not be done.
                time.sleep(wait)
            self._release(log)
        self._settle(True)

    def _then_stored(self, progress: Callable[[int], None]) -> Callable[[int], None]:
        def advance(size: int) -> None:
            progress(size)
            self._stored()

        return advance

    def follow(self, progress: Callable[[int], None] = lambda _: None) -> None:
        """Read everything new, and continue until `stop`."""
        self._crowded = not _allow_open_files(2 * len(self.gathered) + 64)
        with self._watching() as watcher:
            while not self._stopping:
                waits = [
                    self._advance(log, progress) for log in self.gathered if not self._stopping
                ]
                progress = _no_progress  # only the first pass has an end to progress to
                if not self._stopping:
                    waits.append(self._settle(False))
                if not self._stopping:
                    watcher.wait(min((wait for wait in waits if wait is not None), default=None))
            for log in list(self._tails):
                self._release(log)
        self._settle(True)

    def _is_unchanged(self, log: str) -> bool:
        """Tell whether a log was read to its end and has not changed since.

        Of many logs most are over. To open each costs several times as much as this.
        """
        if log in self._tails:
            return False
        try:
            cursor = self._store.cursor(log)
        except UnicodeEncodeError:
            return False  # a name that the store cannot keep; reading the log says so
        return cursor is not None and is_unchanged(cursor)

    @contextlib.contextmanager
    def _watching(self) -> Iterator[Watcher]:
        with Watcher(list(self.gathered), polling=self._polling) as self._watcher:
            try:
                yield self._watcher
            finally:
                self._watcher = None

    def _tail(self, log: str) -> LogTail:
        if log not in self._tails:
            self._tails[log] = LogTail(
                log,
                self._store,
                access_point=self._access_point,
                clock=self._clock,
                rotations=self._rotations,
            )
        return self._tails[log]

    def _advance(self, log: str, progress: Callable[[int], None]) -> float | None:
        """Read one log; an error in it must not stop the others from being read."""
        gathered = self.gathered[log]
        state = _state_of(log)  # before it is read: what comes while it is must not be missed
        if state == gathered.seen:
            return None  # no better than it was
        before, gaps = str(gathered.error), len(gathered.gaps)
        wait = gathered.seen = None
        try:
            advance = self._tail(log).advance(progress, lambda: self._stopping)
            gathered.events += advance.events
            wait, gathered.error = advance.wait, None
        except (NoSuchLog, UnreadableLog) as error:
            gathered.error, gathered.seen = error, state
        tail = self._tails.get(log)
        if tail is not None:
            gathered.gaps = list(tail.gaps)
            if self._crowded and wait is None:
                tail.close()  # it is opened again when it has changed
                gathered.seen = state
        if str(gathered.error) != before or len(gathered.gaps) > gaps:
            self._notice(gathered)
        return wait

    def _release(self, log: str) -> None:
        if log in self._tails:
            self._tails.pop(log).close()


def _state_of(log: str) -> tuple[int, ...]:
    try:
        status = os.stat(log)
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _no_progress(_: int) -> None:
    """Do nothing."""


def _allow_open_files(wanted: int) -> bool:
    """Raise the limit of open files, since every followed log stays open.

    Return whether `wanted` files can be open.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
            soft = enough
    return soft == resource.RLIM_INFINITY or soft >= wanted
