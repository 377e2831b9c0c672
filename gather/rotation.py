"""Which file of a rotated log is which: pure decisions over what was seen on disk.

A log is followed by its name, but a name says little: HTCondor renames `EventLog` to
`EventLog.1` and starts a new one, logrotate may copy and truncate, people delete. So a
file is known by its inode and by a digest of its first bytes, and the place reached in
it by a digest of the bytes before that place. Nothing here touches a disk; `tail.py`
looks and acts.

What HTCondor does, seen on 25.14:

- The global log starts with a 008 `Global JobLog:` event whose `sequence` and `offset`
  tell how many files and bytes came before. At rotation this header is rewritten in
  place (`size`, `events`, the date; in JSON logs even `id` and `sequence`, which are
  lost). A fingerprint must not cover it.
- A writer may still append to a file after another process rotated it. `offset` does
  not count those bytes, so a loss computed from headers is a lower bound.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

# What is kept of the beginning of a file: enough for a header in any format and a
# fingerprint behind it.
HEAD_BYTES = 2048
FINGERPRINT_BYTES = 512
# With fewer bytes than these two files may well begin alike; then the inode must agree.
TELLING_BYTES = 48
TAIL_BYTES = 64

_HEADER = re.compile(
    rb"Global JobLog: ctime=\d+ id=(?P<id>\S*) sequence=(?P<sequence>\d+) size=\d+ "
    rb"events=\d+ offset=(?P<offset>\d+) event_off=(?P<event_offset>\d+)"
)
# How the header event ends in the three formats, before a last newline.
_HEADER_ENDS = {b"0": b"\n...", b"<": b"</c>", b"{": b"\n}"}


def digest(data: bytes | memoryview) -> str:
    """Shorten bytes to something that fits a cursor and still tells them apart."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Header:
    """The 008 event with which HTCondor opens each file of the global event log."""

    id: str
    sequence: int
    offset: int  # bytes in all files before this one
    event_offset: int  # events in them, 0 unless EVENT_LOG_COUNT_EVENTS
    length: int  # bytes of this event itself, which are rewritten at rotation


def read_header(head: bytes) -> Header | None:
    """Find the header in the first bytes of a file; None while it is not whole."""
    ending = _HEADER_ENDS.get(head[:1])
    if ending is None:
        return None
    end = head.find(ending)
    if end < 0:
        return None
    found = _HEADER.search(head, 0, end)
    if found is None:
        return None
    return Header(
        id=found["id"].decode("ascii", "replace"),
        sequence=int(found["sequence"]),
        offset=int(found["offset"]),
        event_offset=int(found["event_offset"]),
        length=end + len(ending) + 1,
    )


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a file is recognised by, under whatever name it is found again."""

    device: int
    inode: int
    start: int  # the digest begins here, behind a header that may be rewritten
    length: int
    digest: str
    id: str = ""  # the header's, which alone may tell while nothing is behind it
    size: int = 0  # to which a finished file was read; it may still grow

    @property
    def telling(self) -> bool:
        """Whether the content alone identifies the file, without the inode."""
        return self.length >= TELLING_BYTES

    @property
    def empty(self) -> bool:
        """Whether only the inode is known, which another file may get later."""
        return self.length == 0 and self.id == ""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a log's rotation chain as it was found."""

    name: str
    rank: int  # 0 the log itself, 1 its latest rotation, ...
    device: int
    inode: int
    size: int
    modified: float
    head: bytes  # the first HEAD_BYTES
    continues: bool = False  # the bytes before the position reached are the expected ones
    held: bool = False  # open here since the last look, so its inode was not used again
    linked: bool = True  # False: deleted, and only still open here

    @property
    def header(self) -> Header | None:
        """The header that HTCondor wrote, in a file of the global event log."""
        return read_header(self.head)

    @property
    def body(self) -> int:
        """Where the bytes that never change begin."""
        header = self.header
        return header.length if header else 0

    def fingerprint(self, *, complete: bool = False) -> Fingerprint:
        """Take what will recognise this file again, as far as it is written.

        A `complete` file will not grow, nor will its header be rewritten: whatever is in
        it may be used.
        """
        header = self.header
        start = self.body
        if complete and start >= min(self.size, len(self.head)):
            start = 0
        covered = self.head[start : start + FINGERPRINT_BYTES]
        if not complete and start == 0 and _may_become_header(self.head):
            covered = b""
        name = header.id if header else ""
        return Fingerprint(self.device, self.inode, start, len(covered), digest(covered), name)

    def bears(self, mark: Fingerprint) -> bool:
        """Whether this is the file (or a copy of it) that the fingerprint was taken of."""
        same_inode = (self.device, self.inode) == (mark.device, mark.inode)
        if mark.length == 0:
            header = self.header
            return header.id == mark.id if header and header.id and mark.id else same_inode
        covered = self.head[mark.start : mark.start + mark.length]
        return digest(covered) == mark.digest and (same_inode or mark.telling)


def borne_marks(files: Sequence[LogFile], marks: Sequence[Fingerprint]) -> list[list[Fingerprint]]:
    """Return for each file those of the fingerprints that it bears.

    Where a log has hundreds of rotations, trying each with each would take minutes.
    """
    nameless = [mark for mark in marks if mark.length == 0]
    by_content: dict[tuple[int, int, str], list[Fingerprint]] = {}
    for mark in marks:
        by_content.setdefault((mark.start, mark.length, mark.digest), []).append(mark)
    extents = {(mark.start, mark.length) for mark in marks if mark.length}
    found = []
    for file in files:
        likely = list(nameless)
        for start, length in extents:
            covered = digest(file.head[start : start + length])
            likely += by_content.get((start, length, covered), ())
        found.append([mark for mark in likely if file.bears(mark)])
    return found


def _may_become_header(head: bytes) -> bool:
    """Whether these bytes could be the beginning of a header not yet written in full."""
    ending = _HEADER_ENDS.get(head[:1])
    return ending is not None and len(head) < HEAD_BYTES and ending not in head


@dataclass(frozen=True, slots=True)
class Position:
    """How far a log is read: a file, a byte in it, and the files already done with."""

    mark: Fingerprint
    offset: int
    header: Header | None
    events: int  # read from this file, its header not counted
    done: tuple[Fingerprint, ...]  # files of the chain read to their end, oldest first
    tail_length: int = 0  # of the bytes before `offset` that show the file is unchanged
    tail: str = digest(b"")

    @property
    def begun(self) -> bool:
        """Whether anything behind the header was read: only then can content identify it."""
        return self.mark.length > 0 and self.offset > self.mark.start


@dataclass(frozen=True, slots=True)
class Loss:
    """Events that were, or may have been, in the log and can no longer be read."""

    reason: str
    bytes: int | None = None  # None: cannot be known; else at least so many
    events: int | None = None
    after_sequence: int | None = None
    before_sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where to go on reading."""

    current: LogFile | None  # the file that the position is in, if it still exists
    start: int  # the byte in `current` to go on from
    unread: tuple[LogFile, ...]  # newer files, oldest first
    losses: tuple[Loss, ...]  # what is found missing, to be recorded with the next step
    skipped: tuple[LogFile, ...] = ()  # files that cannot be fitted in and are passed over


def locate(position: Position | None, chain: Sequence[LogFile]) -> Place:
    """Find a position in the files that exist now.

    `chain` is ordered oldest first; a file that is deleted but still open comes first
    with `linked` False.
    """
    if position is None:
        return Place(None, 0, _worth_reading(chain), ())
    done = borne_marks(chain, position.done)
    unread = [file for file, marks in zip(chain, done, strict=True) if not marks]
    if not position.begun:
        return _locate_unbegun(position, chain, unread)

    alike = [file for file in unread if file.bears(position.mark)]
    inode = (position.mark.device, position.mark.inode)
    # Of several copies the newest goes on growing.
    alike.sort(key=lambda file: file.rank)
    ours = next((file for file in alike if file.continues), None)
    if ours is not None:
        index = unread.index(ours)
        # Copies of the file that is being read hold nothing new.
        newer = [file for file in unread[index + 1 :] if file not in alike]
        strangers = [file for file in unread[:index] if file not in alike]
        behind = _worth_reading([file for file in strangers if not _begins(file, ours)])
        losses = tuple(
            Loss(
                f"{file.name} appeared among the rotations after newer files had been read; "
                f"its {file.size} bytes were not read: gather it under its own name"
            )
            for file in behind
        )
        return Place(ours, position.offset, _worth_reading(newer), losses, behind)

    if alike:
        return _locate_rewritten(position, unread, alike)

    newer = list(_worth_reading(unread))
    if not newer:
        return Place(None, 0, (), ())
    truncated = any((file.device, file.inode) == inode for file in chain)
    what = "was truncated" if truncated else "is gone"
    reason = (
        f"the file that had been read to byte {position.offset} {what}, and no rotation "
        f"holds the rest of it"
    )
    return Place(None, 0, tuple(newer), (_loss_before(position, newer[0], reason),))


def _locate_unbegun(position: Position, chain: Sequence[LogFile], unread: list[LogFile]) -> Place:
    """Find the file when nothing but perhaps its header was read.

    Often there was nothing behind the header yet to know it by, and inodes are used
    again. It is the same file when its content or its header's id says so, or when it was
    kept open; or else when no unread file is older and the file read before it is still
    there next to it.
    """
    newer = _worth_reading(unread)
    if not newer:
        return Place(None, 0, (), ())
    first = newer[0]
    if _is_unbegun(position, first):
        proven = first.held or first.rank == 0 or position.mark.telling
        proven = proven or _same_id(position.header, first.header)
        if proven or _neighbour(position, chain, first):
            return Place(first, position.offset, newer[1:], ())
    elif _later(position.header, first.header):
        reason = "the file that had been opened to be read next is gone"
        return Place(None, 0, newer, (_loss_before(position, first, reason),))
    # A file that came and went between two looks leaves no trace; with rotations there
    # are traces, and they must be complete, unless nothing was ever read before.
    if first.rank == 0 or not position.done or _neighbour(position, chain, first):
        return Place(None, 0, newer, ())
    reason = (
        "the log was rotated or replaced more often than the rotations that are left show; "
        "whole files may be missing"
    )
    return Place(None, 0, newer, (_loss_before(position, first, reason),))


def _is_unbegun(position: Position, file: LogFile) -> bool:
    """Whether this may be the file in which nothing but the header was read."""
    if not file.bears(position.mark) or file.size < position.offset:
        return False
    return position.offset <= file.body


def _neighbour(position: Position, chain: Sequence[LogFile], first: LogFile) -> bool:
    """Whether the file read last is still there, and `first` is the one after it."""
    if not position.done:
        return False
    previous = next((file for file in chain if file.bears(position.done[-1])), None)
    return previous is not None and _follows(chain, previous, first)


def _locate_rewritten(position: Position, unread: list[LogFile], alike: list[LogFile]) -> Place:
    """Find the place in a file that begins as it did, but is shorter or differs later.

    Reading it from its beginning would double events; so what it had beyond the common
    part counts as lost, and reading goes on behind it.
    """
    newest = alike[0]
    index = unread.index(newest)
    newer = _worth_reading([file for file in unread[index + 1 :] if file not in alike])
    copied = (newest.device, newest.inode) != (position.mark.device, position.mark.inode)
    if copied and newest.rank > 0 and newest.size < position.offset:
        # A copy made before the last bytes came, and those bytes were read: complete.
        return Place(newest, newest.size, newer, ())
    start = min(position.offset, newest.size)
    reason = (
        f"{newest.name} was cut or changed before byte {position.offset}, up to which it "
        f"had been read; reading goes on at byte {start}"
    )
    return Place(newest, start, newer, (Loss(reason),))


def loss_between(
    position: Position, left: LogFile, successor: LogFile, chain: Sequence[LogFile]
) -> Loss | None:
    """What is missing between a file read to its end and the next one there is."""
    old, new = position.header, successor.header
    if old is not None and new is not None and _later(old, new):
        missing = new.sequence - old.sequence - 1
        if missing == 0:
            return None
        reason = f"{missing} rotated file(s) before {successor.name} are gone"
        return _loss_before(position, successor, reason)
    if not left.linked:
        if successor.rank == 0:
            return None  # deleted and made anew, and all of the deleted file was read
        reason = (
            f"the file before {successor.name} was rotated away while it was being read; "
            f"others may have been"
        )
        return _loss_before(position, successor, reason)
    if _follows(chain, left, successor):
        return None
    reason = f"rotations between {left.name} and {successor.name} are missing"
    return _loss_before(position, successor, reason)


def _follows(chain: Sequence[LogFile], older: LogFile, newer: LogFile) -> bool:
    """Whether every rotation between the two is there.

    A missing newest file proves nothing: it is so for a moment in each rotation.
    """
    ranks = {file.rank for file in chain}
    return all(rank in ranks for rank in range(newer.rank + 1, older.rank))


def _loss_before(position: Position, successor: LogFile, reason: str) -> Loss:
    """Put figures to a loss, as far as the headers of the two files know them."""
    old, new = position.header, successor.header
    if old is None or new is None or not _later(old, new):
        return Loss(reason)
    lost_bytes = new.offset - old.offset - position.offset
    lost_events: int | None = new.event_offset - old.event_offset - position.events
    if new.event_offset == 0 or (lost_events is not None and lost_events < 0):
        lost_events = None
    return Loss(reason, max(0, lost_bytes), lost_events, old.sequence, new.sequence)


def _begins(file: LogFile, other: LogFile) -> bool:
    """Whether a small file is a copy that was made when the other was as small."""
    start = file.body
    return file.size <= HEAD_BYTES and other.head[start:].startswith(file.head[start:])


def _later(old: Header | None, new: Header | None) -> bool:
    """Whether both headers count in one sequence; HTCondor counts only in text and XML."""
    return old is not None and new is not None and new.sequence > old.sequence > 0


def _same_id(old: Header | None, new: Header | None) -> bool:
    return old is not None and new is not None and old.id != "" and old.id == new.id


def _worth_reading(files: Sequence[LogFile]) -> tuple[LogFile, ...]:
    """Leave out rotated files that are empty; an empty newest file is only young."""
    return tuple(file for file in files if file.size > 0 or file.rank == 0)
