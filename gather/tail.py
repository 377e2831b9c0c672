"""Follow a log from the store's cursor on, across rotations and restarts.

`rotation.py` decides which file is which; this module opens the files, reads them in blocks and
appends the events to the store. Events and cursor are written in one transaction, so a process
killed at any moment neither loses nor duplicates events.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from condor_advice.gather.clock import Clock
from condor_advice.gather.look import (
    MovingLog,
    NoSuchLog,
    OpenFile,
    UnreadableLog,
    close_all,
    has_rotations,
    look,
    why,
)
from condor_advice.gather.reader import (
    BLOCK_BYTES,
    YEARLESS_HEADER,
    EventColumns,
    ReaderState,
    first_year,
    read_block,
)
from condor_advice.gather.rotation import (
    FINGERPRINT_BYTES,
    HEAD_BYTES,
    TAIL_BYTES,
    Fingerprint,
    Header,
    LogFile,
    Loss,
    Place,
    Position,
    borne_marks,
    digest,
    locate,
    loss_between,
)
from condor_advice.gather.store import Cursor, Gap, Store, StoreDamaged
from condor_advice.gather.words import PADDING

# Anything that is still unfinished after this many bytes is not an event.
MAX_EVENT_BYTES = 32 << 20
# A shadow that opened the log just before another one rotated it writes its event to the
# rotated file. A rotated file counts as complete after this long without a write.
SETTLE_SECONDS = 2.0
# A deleted file is kept open for a while, because its writers may still have it open too. Not
# longer, because its disk space is freed only when everybody has closed it.
DELETED_SECONDS = 600.0


_MAY_BE_EVENT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\d{1,3}\b|<|\{)")


@dataclass(frozen=True, slots=True)
class Advance:
    """What one call of `LogTail.advance` did."""

    events: int
    wait: float | None  # seconds after which to look again even without a change


class LogTail:
    """One log: the position reached, and the open files it is read from."""

    def __init__(
        self,
        log: str | Path,
        store: Store,
        *,
        access_point: str,
        clock: Clock,
        rotations: bool = True,
        settle_seconds: float = SETTLE_SECONDS,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.log = os.path.abspath(log)
        if not _is_text(self.log):
            raise UnreadableLog(
                f"{self.log!r}: its name is not UTF-8, so the store cannot keep it; gather it "
                "through a symbolic link (`ln -s`) with another name"
            )
        self._store = store
        self._access_point = access_point
        self._clock = clock
        self._rotations = rotations
        self._settle_seconds = settle_seconds
        self._block_bytes = block_bytes
        # Files kept open so that they can be read even if they are deleted meanwhile: the one
        # being read, and the unread ones after it.
        self._held: list[OpenFile] = []
        self._last: OpenFile | None = None  # the file finished last; it may get a late event
        self.gaps: list[Gap] = []  # recorded since this object was created
        self._quiet: tuple[int, float] = (-1, 0.0)  # size of the file, and since when
        self._stamp: list[int] | None = None  # of the file before its last block was read
        cursor = store.cursor(self.log)
        self._position = position_of(cursor) if cursor else None
        self._reader = reader_state_of(cursor) if cursor else ReaderState()

    def close(self) -> None:
        """Close the files; the position is in the store."""
        close_all(self._held)
        self._held = []
        self._remember_last(None)

    def advance(
        self,
        progress: Callable[[int], None] = lambda _: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Advance:
        """Read everything new, across all files of the log.

        Calls `progress` with the number of bytes read, and `stopping` between transactions.
        """
        try:
            return self._advance(progress, stopping)
        except OSError as error:
            # The disk or the file server failed. Open files may be unusable now (ESTALE).
            self.close()
            raise UnreadableLog(f"{self.log}: {why(error)}") from error

    def _advance(self, progress: Callable[[int], None], stopping: Callable[[], bool]) -> Advance:
        events = 0
        while not stopping():
            if self._is_plain():
                read = self._read_on(progress, stopping)
                events += read.events
                if read.intact and self._is_newest():
                    return Advance(events, None)
            try:
                step = self._step(progress, stopping)
            except MovingLog:
                return Advance(events, wait=0.05)
            events += step.events
            if not step.more:
                return Advance(events, step.wait)
        return Advance(events, None)

    def _is_plain(self) -> bool:
        """Return whether only the newest file can have new events, and is still the same file."""
        if self._position is None or not self._position.begun or not self._is_newest():
            return False
        last = self._last
        return last is None or os.fstat(last.fd).st_size == last.file.size

    def unread_bytes(self) -> int:
        """Return how many bytes there are to read now, over all files."""
        return unread_bytes(self.log, self._position, rotations=self._rotations)

    # One look at the whole rotation chain, and the step that follows from it.

    def _step(self, progress: Callable[[int], None], stopping: Callable[[], bool]) -> _Step:
        with look(self.log, self._position, self._rotations, self._held) as chain:
            if not chain:
                raise NoSuchLog(self._missing())
            self._record_vanished(chain)
            late = self._read_late(chain)
            if late:
                return _Step(late, more=True, wait=None)
            place = locate(self._position, [opened.file for opened in chain])
            if place.current is None:
                if not place.unread:
                    return _Step(0, more=False, wait=None)
                begun = self._position is not None and self._position.begun
                lost = self._position.mark if self._position and begun else None
                self._enter(place.unread, chain, None, place.losses, lost)
                return _Step(0, more=True, wait=None)
            self._adopt(place, chain)
            start = self._position
            read = self._read_on(progress, stopping)
            if not read.intact:
                return _Step(read.events, more=True, wait=None)
            if stopping():
                return _Step(read.events, more=False, wait=None)
            if not place.unread:
                # It is the newest, or its successor does not exist yet.
                if not place.current.linked and self._quiet_seconds() >= DELETED_SECONDS:
                    self._let_go(place.current)
                return _Step(read.events, more=False, wait=None)
            if self._position is not start:
                # With more of this file read, the other files may be recognised differently.
                return _Step(read.events, more=True, wait=None)
            wait = self._unsettled()
            if wait is not None:
                return _Step(read.events, more=False, wait=wait)
            last = self._enter_next(place.current, place.unread, chain)
            return _Step(read.events + last, more=True, wait=None)

    def _record_vanished(self, chain: Sequence[OpenFile]) -> None:
        """Record a gap for each unread file that was truncated before it was read."""
        if self._position is None:
            return
        now = {(o.file.device, o.file.inode): o.file for o in chain}
        for index, held in enumerate(self._held[1:], start=1):
            waiting, mark = held.file, held.file.fingerprint()
            # Held files are always in the chain, and nearly always unchanged.
            same = now[waiting.device, waiting.inode]
            candidates = itertools.chain([same], (opened.file for opened in chain))
            if not mark.telling or any(
                file.bears(mark) and file.size >= waiting.size for file in candidates
            ):
                continue
            loss = Loss(f"{waiting.name} was truncated before it was read", bytes=waiting.size)
            self._commit(None, self._position, self._gaps([loss]))
            self._held[index] = OpenFile(same, held.fd)  # so that the gap is recorded once

    def _read_late(self, chain: Sequence[OpenFile]) -> int:
        """Read events that were appended to files after they had been finished."""
        events = 0
        if self._position is None:
            return 0
        borne = borne_marks([opened.file for opened in chain], self._position.done)
        for opened, marks in zip(chain, borne, strict=True):
            file, position = opened.file, self._position
            mark = next((m for m in marks if m.size and m.inode == file.inode), None)
            if mark is None or file.size <= mark.size:
                continue
            if self._last is not None and self._last.file.inode == file.inode:
                self._last = OpenFile(file, self._last.fd)
            data = os.pread(opened.fd, MAX_EVENT_BYTES, mark.size)
            state = replace(self._reader)
            columns, consumed = read_block(data, state, base=mark.size, clock=self._clock)
            if consumed:
                grown = replace(mark, size=mark.size + consumed)
                done = tuple(grown if other is mark else other for other in position.done)
                self._commit(columns, replace(position, done=done), ())
                events += len(columns)
        return events

    def _remember_last(self, finished: OpenFile | None) -> None:
        """Keep the file finished last open, to notice late writes to it."""
        if self._last is not None:
            os.close(self._last.fd)
        self._last = None
        if finished is not None:
            self._last = OpenFile(finished.file, os.dup(finished.fd))

    def _adopt(self, place: Place, chain: Sequence[OpenFile]) -> None:
        """Go on reading in the file that contains the position."""
        assert place.current is not None
        assert self._position is not None
        self._hold((place.current, *place.unread), chain)
        if place.start == self._position.offset and not place.losses:
            if self._position.mark.inode != place.current.inode:
                self._position = replace(self._position, mark=place.current.fingerprint())
            return
        mark = place.current.fingerprint()
        tail = _bytes_before(self._fd, place.start, mark.start)
        skipped = tuple(file.fingerprint() for file in place.skipped)
        position = replace(
            self._position,
            mark=mark,
            offset=place.start,
            done=skipped + self._position.done,
            tail_length=len(tail),
            tail=digest(tail),
        )
        self._commit(None, position, self._gaps(place.losses))

    def _enter(
        self,
        files: Sequence[LogFile],
        chain: Sequence[OpenFile],
        columns: EventColumns | None,
        losses: Sequence[Loss],
        finished: Fingerprint | None = None,
    ) -> None:
        """Move the position to the beginning of the first unread file."""
        file = files[0]
        done = self._position.done if self._position else ()
        if finished is not None and not finished.empty:
            done = (*done, finished)
        # Forget the files that no longer exist, except the last one finished: whether it still
        # exists tells whether rotations were missed.
        borne = borne_marks([opened.file for opened in chain], done)
        existing = {mark for marks in borne for mark in marks}
        done = tuple(mark for mark in done if mark is finished or mark in existing)
        fresh = Position(mark=file.fingerprint(), offset=0, header=file.header, events=0, done=done)
        self._hold(files, chain)
        if self._position is None and not losses:
            self._position = fresh  # stored with the first event, if there is one
            return
        if losses:
            # Dates without a year continue across files, but not across a gap.
            self._reader = ReaderState()
        self._commit(columns, fresh, self._gaps(losses))

    def _enter_next(
        self, left: LogFile, unread: Sequence[LogFile], chain: Sequence[OpenFile]
    ) -> int:
        """Move from a finished file to the next one; read the incomplete event at its end.

        Returns the number of events in that rest, usually none.
        """
        assert self._position is not None
        position = self._position
        rest = os.pread(self._fd, MAX_EVENT_BYTES, position.offset)
        columns, consumed = None, 0
        if rest:
            columns, consumed = read_block(
                rest, self._reader, base=position.offset, clock=self._clock, final=True
            )
            if os.fstat(self._fd).st_size > position.offset + consumed:
                # The file has grown after all: stay in it.
                self._commit(columns, self._moved(rest, 0, consumed, len(columns)), ())
                return len(columns)
        files = [opened.file for opened in chain]
        loss = loss_between(position, left, unread[0], files)
        head = os.pread(self._fd, HEAD_BYTES, 0)
        size = position.offset + consumed
        finished = replace(left, head=head).fingerprint(complete=True)
        finished = replace(finished, size=size)
        self._remember_last(OpenFile(replace(left, size=size), self._fd))
        self._enter(unread, chain, columns, (loss,) if loss else (), finished)
        return len(columns) if columns is not None else 0

    def _let_go(self, deleted: LogFile) -> None:
        """Finish a deleted file that has no successor; any later file is new."""
        assert self._position is not None
        done = (*self._position.done, deleted.fingerprint(complete=True))
        nowhere = Fingerprint(device=0, inode=0, start=0, length=0, digest=digest(b""))
        position = Position(mark=nowhere, offset=0, header=None, events=0, done=done)
        self._commit(None, position, ())
        self.close()

    # Reading.

    def _read_on(self, progress: Callable[[int], None], stopping: Callable[[], bool]) -> _Read:
        """Read the open file to its end; not intact if bytes already read have changed."""
        events = 0
        want = self._block_bytes
        while not stopping():
            assert self._position is not None
            position = self._position
            lead = position.tail_length
            self._stamp = _stamp_of(os.fstat(self._fd))
            # Read a little more, so that the reader need not copy the block to pad it.
            data = os.pread(self._fd, lead + want + PADDING, position.offset - lead)
            if len(data) < lead or digest(data[:lead]) != position.tail:
                return _Read(events, intact=False)
            fresh = data[lead:]
            if not fresh:
                break
            whole = len(fresh) >= want
            if position.offset == 0 and self._reader.year is None:
                self._reader.year = self._first_year(fresh)
            size = min(len(fresh), want)
            columns, consumed = self._read_block(fresh, size, final=False)
            if not consumed and whole and want >= MAX_EVENT_BYTES:
                # Only now: `final` would also count an event cut off by the block's end as torn.
                columns, consumed = self._read_block(fresh, size, final=True)
            if not len(columns) and position.offset == 0:
                self._refuse_foreign(fresh, consumed)
            if consumed:
                self._commit(columns, self._moved(data, lead, consumed, len(columns)), ())
                events += len(columns)
                progress(consumed)
                want = self._block_bytes
            elif whole:
                want *= 2
            if not whole:
                break
        return _Read(events, intact=True)

    def _read_block(self, data: bytes, size: int, *, final: bool) -> tuple[EventColumns, int]:
        assert self._position is not None
        base = self._position.offset
        return read_block(data, self._reader, base=base, clock=self._clock, final=final, size=size)

    def _first_year(self, beginning: bytes) -> int | None:
        """Return the year of the first event if the log's dates have no year, else None."""
        if not YEARLESS_HEADER.search(b"\n" + beginning[:HEAD_BYTES]):
            return None
        status = os.fstat(self._fd)
        return first_year(self._fd, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    def _refuse_foreign(self, beginning: bytes, consumed: int) -> None:
        """Raise if the file is not an event log, before anything of it is stored."""
        if self._file.rank > 0 or (consumed == 0 and _MAY_BE_EVENT.match(beginning)):
            return  # the first event may be incomplete
        raise UnreadableLog(
            f"{self.log}: no HTCondor job event in its first {len(beginning):,} bytes; give the "
            f"file named by `log =` in the submit description or by EVENT_LOG in HTCondor's "
            f"configuration"
        )

    def _moved(self, data: bytes, lead: int, consumed: int, events: int) -> Position:
        """Return the position after `consumed` bytes of `data[lead:]`."""
        assert self._position is not None
        position = self._position
        offset = position.offset + consumed
        mark, header = position.mark, position.header
        if mark.length < FINGERPRINT_BYTES:
            grown = replace(self._file, head=os.pread(self._fd, HEAD_BYTES, 0))
            # Bytes already read that are not a header will not become one.
            mark = grown.fingerprint(complete=grown.header is None)
            header = header or grown.header
        if position.offset == 0 and header is not None:
            events -= 1  # HTCondor does not count its header either
        tail_length = min(TAIL_BYTES, max(0, offset - mark.start), lead + consumed)
        end = lead + consumed
        return replace(
            position,
            mark=mark,
            header=header,
            offset=offset,
            events=position.events + events,
            tail_length=tail_length,
            tail=digest(data[end - tail_length : end]),
        )

    def _commit(
        self, columns: EventColumns | None, position: Position, gaps: Sequence[Gap]
    ) -> None:
        """Store the events and the cursor after them in one transaction."""
        cursor = cursor_of(
            self.log, self._access_point, position, self._reader, self._rotations, self._stamp
        )
        self._store.append(columns, cursor, gaps)
        self._position = position
        self.gaps += gaps

    # The open file.

    @property
    def _fd(self) -> int:
        return self._held[0].fd

    @property
    def _file(self) -> LogFile:
        return self._held[0].file

    def _hold(self, files: Sequence[LogFile], chain: Sequence[OpenFile]) -> None:
        """Keep these files open and no others; the first is the one being read."""
        inodes = {(held.file.device, held.file.inode): held.fd for held in self._held}
        kept, spare = [], dict(inodes)
        for file in files:
            inode = (file.device, file.inode)
            if inode in inodes:
                fd = inodes[inode]
                spare.pop(inode, None)
            else:
                fd = os.dup(next(opened.fd for opened in chain if opened.file is file))
            kept.append(OpenFile(file, fd))
        for fd in spare.values():
            os.close(fd)
        if not self._held or self._held[0].fd != kept[0].fd:
            self._quiet = (-1, 0.0)
        self._held = kept

    def _is_newest(self) -> bool:
        """Return whether the file being read is open and still has the log's own name."""
        if not self._held:
            return False
        try:
            status = os.stat(self.log)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self._file.device, self._file.inode)

    def _unsettled(self) -> float | None:
        """Return how long a rotated file must still be watched; None if it is complete."""
        left = self._settle_seconds - self._quiet_seconds()
        return left if left > 0 else None

    def _quiet_seconds(self) -> float:
        """Return how long nobody has written to the file being read.

        The modification time says so, unless the file server's clock differs from ours; so take
        into account how long we have seen the same size.
        """
        status = os.fstat(self._fd)
        now = time.monotonic()
        if self._quiet[0] != status.st_size:
            self._quiet = (status.st_size, now)
        return max(time.time() - status.st_mtime, now - self._quiet[1])

    def _gaps(self, losses: Sequence[Loss]) -> tuple[Gap, ...]:
        return tuple(
            Gap(
                log=self.log,
                found_at=time.time(),
                reason=loss.reason,
                bytes_lost=loss.bytes,
                events_lost=loss.events,
                after_sequence=loss.after_sequence,
                before_sequence=loss.before_sequence,
            )
            for loss in losses
        )

    def _missing(self) -> str:
        if self._position is None:
            return f"{self.log}: no such file; check the name, or wait until HTCondor writes it"
        return f"{self.log}: the file no longer exists; the events already read are kept"


@dataclass(frozen=True, slots=True)
class _Step:
    events: int
    more: bool  # look again at once
    wait: float | None


@dataclass(frozen=True, slots=True)
class _Read:
    events: int
    intact: bool


def _is_text(name: str) -> bool:
    """Return whether a file name is valid text; Python keeps other bytes as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _bytes_before(fd: int, offset: int, start: int) -> bytes:
    length = min(TAIL_BYTES, max(0, offset - start))
    return os.pread(fd, length, offset - length)


# Conversion between the store's cursor and a position.


def cursor_of(
    log: str,
    access_point: str,
    position: Position,
    reader: ReaderState,
    rotations: bool = True,
    stamp: list[int] | None = None,
) -> Cursor:
    """Return a position as a cursor for the store."""
    mark, header = position.mark, position.header
    state = {
        "reader": reader.to_json(),
        "rotations": rotations,
        "stamp": stamp,
        "start": mark.start,
        "id": mark.id,
        "header": asdict(header) if header else None,
        "events": position.events,
        "tail_length": position.tail_length,
        "done": [[getattr(done, name) for name in done.__slots__] for done in position.done],
    }
    return Cursor(
        log=log,
        access_point=access_point,
        device=_signed(mark.device),
        inode=_signed(mark.inode),
        head=bytes.fromhex(mark.digest),
        head_length=mark.length,
        offset=position.offset,
        tail=bytes.fromhex(position.tail),
        state=json.dumps(state),
        sequence=header.sequence if header else None,
        read_at=time.time(),
    )


def _stamp_of(status: os.stat_result) -> list[int]:
    """Return what changes whenever a file is written to, replaced or renamed."""
    return [
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    ]  # fmt: skip


def is_unchanged(cursor: Cursor) -> bool:
    """Tell from file names and their status alone that a log has nothing new.

    False means that nothing is known: the log has to be opened.
    """
    with _readable(cursor) as state:
        stamp, done = state.get("stamp"), state["done"]
    if stamp is None or done:
        return False
    try:
        status = os.stat(cursor.log)
        return (
            _stamp_of(status) == stamp
            and status.st_size == cursor.offset
            and stat.S_ISREG(status.st_mode)
            and not has_rotations(cursor.log)
        )
    except OSError:
        return False


def _signed(number: int) -> int:
    """Return a 64-bit number as signed, for SQLite; some file systems use all bits of inodes."""
    return number - (1 << 64) if number >> 63 else number


def position_of(cursor: Cursor) -> Position:
    """Return the position that `cursor_of` wrote."""
    with _readable(cursor) as state:
        header = state["header"]
        return Position(
            mark=Fingerprint(
                device=cursor.device % (1 << 64),
                inode=cursor.inode % (1 << 64),
                start=state["start"],
                length=cursor.head_length,
                digest=cursor.head.hex(),
                id=state["id"],
            ),
            offset=cursor.offset,
            header=Header(**header) if header else None,
            events=state["events"],
            done=tuple(Fingerprint(*done) for done in state["done"]),
            tail_length=state["tail_length"],
            tail=cursor.tail.hex(),
        )


def reader_state_of(cursor: Cursor) -> ReaderState:
    """Return the reader's state from a cursor."""
    with _readable(cursor) as state:
        return ReaderState.from_json(state["reader"])


@contextmanager
def _readable(cursor: Cursor) -> Iterator[dict[str, Any]]:
    """Yield a cursor's state; it may be corrupt, because SQLite keeps no checksums."""
    try:
        yield json.loads(cursor.state)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreDamaged(
            f"{cursor.log}: its cursor in the store is damaged ({error!r}); move the store away "
            "and gather the logs again"
        ) from error


def unread_bytes(log: str, position: Position | None, *, rotations: bool = True) -> int:
    """Return how many bytes of a log and its rotations come after a position."""
    with look(log, position, rotations) as chain:
        place = locate(position, [opened.file for opened in chain])
    here = place.current.size - place.start if place.current else 0
    return max(0, here) + sum(file.size for file in place.unread)


def unread_behind(cursor: Cursor) -> int:
    """Return how many bytes of a log are not in the store yet."""
    with _readable(cursor) as state:
        rotations = bool(state.get("rotations", True))
    return unread_bytes(cursor.log, position_of(cursor), rotations=rotations)
