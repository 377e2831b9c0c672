"""Decide which file of a rotated log is which.

A log is followed by name, but a name is not enough: HTCondor renames `EventLog` to `EventLog.1`
and starts a new one, logrotate may copy and truncate, and people delete files. So a file is
identified by its inode and a digest of its first bytes, and the position in it by a digest of the
bytes before that position. This module does no I/O; `look.py` and `tail.py` do.

What HTCondor 25.14 does:

- The global log starts with a 008 `Global JobLog:` event. Its `sequence` and `offset` say how many
  files and bytes came before. At rotation HTCondor rewrites this header in place (`size`, `events`
  and the date; in JSON logs even `id` and `sequence` are lost), so a fingerprint must not
  cover it.
- A writer may still append to a file after another process has rotated it. `offset` does not
  count those bytes, so a loss computed from headers is a lower bound.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

# How much of a file's beginning is read: enough for a header in any format and the fingerprint
# after it.
HEAD_BYTES = 2048
FINGERPRINT_BYTES = 512
# Two files may well share fewer first bytes than this; then the inode must match too.
TELLING_BYTES = 48
TAIL_BYTES = 64

_HEADER = re.compile(
    rb"Global JobLog: ctime=\d+ id=(?P<id>\S*) sequence=(?P<sequence>\d+) size=\d+ "
    rb"events=\d+ offset=(?P<offset>\d+) event_off=(?P<event_offset>\d+)"
)
# How the header event ends in the three formats, before a last newline.
_HEADER_ENDS = {b"0": b"\n...", b"<": b"</c>", b"{": b"\n}"}


def digest(data: bytes | memoryview) -> str:
    """Return a short digest of bytes, to keep in a cursor."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Header:
    """The 008 event with which HTCondor opens each file of the global event log."""

    id: str
    sequence: int
    offset: int  # bytes in all files before this one
    event_offset: int  # events in those files; 0 unless EVENT_LOG_COUNT_EVENTS is set
    length: int  # bytes of this event itself, which is rewritten at rotation


def read_header(head: bytes) -> Header | None:
    """Return the header in the first bytes of a file; None if it is absent or incomplete."""
    ending = _HEADER_ENDS.get(head[:1])
    if ending is None:
        return None
    end = head.find(ending)
    if end < 0:
        return None
    match = _HEADER.search(head, 0, end)
    if match is None:
        return None
    return Header(
        id=match["id"].decode("ascii", "replace"),
        sequence=int(match["sequence"]),
        offset=int(match["offset"]),
        event_offset=int(match["event_offset"]),
        length=end + len(ending) + 1,
    )


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What identifies a file, whatever its name."""

    device: int
    inode: int
    start: int  # the digest begins here, after the header, which may be rewritten
    length: int
    digest: str
    id: str = ""  # the header's; the only content to compare while the header stands alone
    size: int = 0  # how far a finished file was read; it may still grow

    @property
    def telling(self) -> bool:
        """Whether the content alone identifies the file, without the inode."""
        return self.length >= TELLING_BYTES

    @property
    def empty(self) -> bool:
        """Whether only the inode is known, which another file may reuse."""
        return self.length == 0 and self.id == ""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a log's rotation chain, as it is on disk."""

    name: str
    rank: int  # 0 the log itself, 1 its latest rotation, ...
    device: int
    inode: int
    size: int
    modified: float
    head: bytes  # the first HEAD_BYTES
    continues: bool = False  # the bytes before the position are the expected ones
    held: bool = False  # open here since the last look, so its inode was not reused
    linked: bool = True  # False: deleted, but still open here

    @property
    def header(self) -> Header | None:
        """The header that HTCondor wrote, in a file of the global event log."""
        return read_header(self.head)

    @property
    def body(self) -> int:
        """The offset of the bytes that never change."""
        header = self.header
        return header.length if header else 0

    def fingerprint(self, *, complete: bool = False) -> Fingerprint:
        """Return this file's fingerprint, from what is written so far.

        A `complete` file will not grow, nor will its header be rewritten, so its whole content
        may be used.
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
        """Return whether the fingerprint is that of this file, or of a copy of it."""
        same_inode = (self.device, self.inode) == (mark.device, mark.inode)
        if mark.length == 0:
            header = self.header
            return header.id == mark.id if header and header.id and mark.id else same_inode
        covered = self.head[mark.start : mark.start + mark.length]
        return digest(covered) == mark.digest and (same_inode or mark.telling)


def borne_marks(files: Sequence[LogFile], marks: Sequence[Fingerprint]) -> list[list[Fingerprint]]:
    """Return, for each file, the fingerprints that it matches.

    Comparing every file with every fingerprint would take minutes with hundreds of rotations.
    """
    nameless = [mark for mark in marks if mark.length == 0]
    by_content: dict[tuple[int, int, str], list[Fingerprint]] = {}
    for mark in marks:
        by_content.setdefault((mark.start, mark.length, mark.digest), []).append(mark)
    extents = {(mark.start, mark.length) for mark in marks if mark.length}
    borne = []
    for file in files:
        likely = list(nameless)
        for start, length in extents:
            covered = digest(file.head[start : start + length])
            likely += by_content.get((start, length, covered), ())
        borne.append([mark for mark in likely if file.bears(mark)])
    return borne


def _may_become_header(head: bytes) -> bool:
    """Return whether these bytes may be the beginning of an incomplete header."""
    ending = _HEADER_ENDS.get(head[:1])
    return ending is not None and len(head) < HEAD_BYTES and ending not in head


@dataclass(frozen=True, slots=True)
class Position:
    """How far a log has been read: a file, an offset in it, and the files already finished."""

    mark: Fingerprint
    offset: int
    header: Header | None
    events: int  # read from this file, not counting its header
    done: tuple[Fingerprint, ...]  # files of the chain read to their end, oldest first
    tail_length: int = 0  # of the bytes before `offset` that show the file is unchanged
    tail: str = digest(b"")

    @property
    def begun(self) -> bool:
        """Whether anything after the header was read: only then can content identify the file."""
        return self.mark.length > 0 and self.offset > self.mark.start


@dataclass(frozen=True, slots=True)
class Loss:
    """Events that are, or may be, lost: they can no longer be read."""

    reason: str
    bytes: int | None = None  # None: unknown; else at least this many
    events: int | None = None
    after_sequence: int | None = None
    before_sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where to continue reading."""

    current: LogFile | None  # the file that contains the position, if it still exists
    start: int  # the offset in `current` to continue from
    unread: tuple[LogFile, ...]  # newer files, oldest first
    losses: tuple[Loss, ...]  # to be recorded with the next step
    skipped: tuple[LogFile, ...] = ()  # files that appeared too late and are skipped


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
    # Of several copies, the newest is the one that grows.
    alike.sort(key=lambda file: file.rank)
    ours = next((file for file in alike if file.continues), None)
    if ours is not None:
        index = unread.index(ours)
        # Copies of the file being read contain nothing new.
        newer = [file for file in unread[index + 1 :] if file not in alike]
        strangers = [file for file in unread[:index] if file not in alike]
        behind = _worth_reading([file for file in strangers if not _begins(file, ours)])
        losses = tuple(
            Loss(
                f"{file.name} appeared among the rotations after newer files had been read; "
                f"its {file.size} bytes were skipped: gather it under its own name"
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
    fate = "was truncated" if truncated else "is gone"
    reason = (
        f"the file that had been read to byte {position.offset} {fate}, and no rotation "
        f"holds the rest of it"
    )
    return Place(None, 0, tuple(newer), (_loss_before(position, newer[0], reason),))


def _locate_unbegun(position: Position, chain: Sequence[LogFile], unread: list[LogFile]) -> Place:
    """Find the file if at most its header was read.

    Often there was nothing after the header yet to identify it, and inodes are reused. It is the
    same file if its content or its header's id says so, or if it was kept open; or else if no
    unread file is older and the file read before it still precedes it.
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
        reason = "the next file to read is gone"
        return Place(None, 0, newer, (_loss_before(position, first, reason),))
    # A file created and deleted between two looks leaves no trace. Rotations do leave traces,
    # which must be complete, unless nothing was ever read before.
    if first.rank == 0 or not position.done or _neighbour(position, chain, first):
        return Place(None, 0, newer, ())
    reason = (
        "the log was rotated or replaced more often than the remaining rotations show; "
        "whole files may be missing"
    )
    return Place(None, 0, newer, (_loss_before(position, first, reason),))


def _is_unbegun(position: Position, file: LogFile) -> bool:
    """Return whether this may be the file of which at most the header was read."""
    if not file.bears(position.mark) or file.size < position.offset:
        return False
    return position.offset <= file.body


def _neighbour(position: Position, chain: Sequence[LogFile], first: LogFile) -> bool:
    """Return whether the file read last still exists, and `first` comes right after it."""
    if not position.done:
        return False
    previous = next((file for file in chain if file.bears(position.done[-1])), None)
    return previous is not None and _follows(chain, previous, first)


def _locate_rewritten(position: Position, unread: list[LogFile], alike: list[LogFile]) -> Place:
    """Find the place in a file that begins as before, but is shorter or differs later.

    Reading it from the beginning would duplicate events. So a loss is recorded, and reading
    continues at the old offset, or at the end of a shorter file.
    """
    newest = alike[0]
    index = unread.index(newest)
    newer = _worth_reading([file for file in unread[index + 1 :] if file not in alike])
    copied = (newest.device, newest.inode) != (position.mark.device, position.mark.inode)
    if copied and newest.rank > 0 and newest.size < position.offset:
        # The copy was made before the last bytes were written, and those were read: complete.
        return Place(newest, newest.size, newer, ())
    start = min(position.offset, newest.size)
    reason = (
        f"{newest.name} had been read to byte {position.offset}, but was truncated or changed "
        f"before that; reading continues at byte {start}"
    )
    return Place(newest, start, newer, (Loss(reason),))


def loss_between(
    position: Position, left: LogFile, successor: LogFile, chain: Sequence[LogFile]
) -> Loss | None:
    """Return what is missing between a finished file and the next existing one, if anything."""
    old, new = position.header, successor.header
    if old is not None and new is not None and _later(old, new):
        missing = new.sequence - old.sequence - 1
        if missing == 0:
            return None
        reason = f"{missing} rotated file(s) before {successor.name} are gone"
        return _loss_before(position, successor, reason)
    if not left.linked:
        if successor.rank == 0:
            return None  # deleted and recreated, and all of the deleted file was read
        reason = (
            f"the file before {successor.name} was rotated away while it was being read; "
            f"others may be lost"
        )
        return _loss_before(position, successor, reason)
    if _follows(chain, left, successor):
        return None
    reason = f"rotations between {left.name} and {successor.name} are missing"
    return _loss_before(position, successor, reason)


def _follows(chain: Sequence[LogFile], older: LogFile, newer: LogFile) -> bool:
    """Return whether every rotation between the two exists.

    A missing newest file proves nothing: it is missing for a moment in each rotation.
    """
    ranks = {file.rank for file in chain}
    return all(rank in ranks for rank in range(newer.rank + 1, older.rank))


def _loss_before(position: Position, successor: LogFile, reason: str) -> Loss:
    """Return a loss, with its size if the headers of the two files give it."""
    old, new = position.header, successor.header
    if old is None or new is None or not _later(old, new):
        return Loss(reason)
    lost_bytes = new.offset - old.offset - position.offset
    lost_events: int | None = new.event_offset - old.event_offset - position.events
    if new.event_offset == 0 or (lost_events is not None and lost_events < 0):
        lost_events = None
    return Loss(reason, max(0, lost_bytes), lost_events, old.sequence, new.sequence)


def _begins(file: LogFile, other: LogFile) -> bool:
    """Return whether a small file is a copy of the other's beginning."""
    start = file.body
    return file.size <= HEAD_BYTES and other.head[start:].startswith(file.head[start:])


def _later(old: Header | None, new: Header | None) -> bool:
    """Return whether `new` is later in the same sequence; JSON headers have no sequence."""
    return old is not None and new is not None and new.sequence > old.sequence > 0


def _same_id(old: Header | None, new: Header | None) -> bool:
    return old is not None and new is not None and old.id != "" and old.id == new.id


def _worth_reading(files: Sequence[LogFile]) -> tuple[LogFile, ...]:
    """Leave out empty rotated files; an empty newest file is just new."""
    return tuple(file for file in files if file.size > 0 or file.rank == 0)
