"""Open a log and its rotations and inspect them, as one consistent snapshot.

Files may be renamed meanwhile. So each file is opened first and inspected through its descriptor,
and all of this is repeated until the names refer to the same files before and after.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from condor_advice.gather.errors import AdviceError
from condor_advice.gather.rotation import HEAD_BYTES, LogFile, Position, digest

# The search for numbered rotations stops after this many missing numbers in a row.
MISSING_ROTATIONS = 3


class NoSuchLog(AdviceError):
    """Neither the log nor any rotation of it exists."""


class UnreadableLog(AdviceError):
    """The log exists but cannot be read, or contains no event."""


class MovingLog(AdviceError):
    """The log's files are renamed faster than they can be opened."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An open file of the rotation chain."""

    file: LogFile
    fd: int


@contextmanager
def look(
    log: str,
    position: Position | None,
    rotations: bool = True,
    held: Sequence[OpenFile] = (),
) -> Iterator[list[OpenFile]]:
    """Open the log and its rotations, oldest first, as one consistent snapshot.

    Files that are `held` open are included even if they have been deleted.
    """
    opened = _open_consistently(log, position, rotations, held)
    try:
        yield _add_unlinked(opened, position, held)
    finally:
        close_all(opened)


def _open_consistently(
    log: str, position: Position | None, rotations: bool, held: Sequence[OpenFile]
) -> list[OpenFile]:
    for attempt in range(40):
        before = _names(log, rotations)
        opened = _open_all(before, position, held)
        inodes = {name: inode for name, _, inode in before}
        same = all(inodes[o.file.name] == (o.file.device, o.file.inode) for o in opened)
        if same and _names(log, rotations) == before:
            # During a rotation one number is missing for a moment.
            if attempt >= 10 or not _has_hole([rank for _, rank, _ in before]):
                return opened
            time.sleep(0.02)
        close_all(opened)
        time.sleep(0.001 * attempt)
    raise MovingLog(f"{log}: rotated faster than it can be opened; try again later")


def _names(log: str, rotations: bool) -> list[tuple[str, int, tuple[int, int]]]:
    """List the existing files: name, rank, inode."""
    existing = []
    missing = 0
    candidates: Iterator[tuple[str, int]] = iter([(log, 0)])
    if rotations:
        candidates = _candidates(log)
    for name, rank in candidates:
        try:
            status = os.stat(name)
        except OSError as error:
            # The name of a rotation may be too long even if the log's own is not.
            absent = error.errno == errno.ENOENT or (rank and error.errno == errno.ENAMETOOLONG)
            if absent:
                missing += rank > 0
                if missing > MISSING_ROTATIONS:
                    break
                continue
            raise UnreadableLog(f"{name}: {why(error)}") from error
        missing = 0
        existing.append((name, rank, (status.st_dev, status.st_ino)))
    return existing


def has_rotations(log: str) -> bool:
    """Tell whether a log has anything that may be a rotation of it."""
    candidates = itertools.islice(_candidates(log), 1, MISSING_ROTATIONS + 2)
    return any(os.path.lexists(name) for name, _ in candidates)


def _candidates(log: str) -> Iterator[tuple[str, int]]:
    """Yield possible names and their ranks: `.old` if one rotation is kept, else `.1`, `.2`, ..."""
    yield log, 0
    yield f"{log}.old", 1
    rank = 1
    while True:
        yield f"{log}.{rank}", rank
        rank += 1


def _open_all(
    names: Sequence[tuple[str, int, tuple[int, int]]],
    position: Position | None,
    held: Sequence[OpenFile],
) -> list[OpenFile]:
    opened: list[OpenFile] = []
    inodes: set[tuple[int, int]] = set()
    held_inodes = {(kept.file.device, kept.file.inode) for kept in held}
    try:
        for name, rank, _ in names:
            fd = _open(name, rank)
            if fd is None:
                continue
            file = _inspect(fd, name, rank, position)
            inode = (file.device, file.inode)
            if inode in inodes:  # renamed between two steps, so seen twice
                os.close(fd)
                continue
            inodes.add(inode)
            opened.append(OpenFile(replace(file, held=inode in held_inodes), fd))
    except BaseException:
        close_all(opened)
        raise
    # Both `.old` and `.1` exist after the rotation setting was changed: sort them by time.
    opened.sort(key=lambda o: (-o.file.rank, o.file.modified))
    return opened


def _open(name: str, rank: int) -> int | None:
    try:
        # Non-blocking: opening a FIFO without a writer would never return.
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableLog(f"{name}: {why(error)}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        kind = "a directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "not a regular file"
        os.close(fd)
        if rank > 0:
            return None  # a directory called EventLog.old is not a rotation
        raise UnreadableLog(f"{name}: is {kind}; name the event log itself")
    return fd


def _inspect(fd: int, name: str, rank: int, position: Position | None) -> LogFile:
    status = os.fstat(fd)
    head = os.pread(fd, HEAD_BYTES, 0)
    continues = False
    if position is not None and status.st_size >= position.offset:
        length = position.tail_length
        before = os.pread(fd, length, position.offset - length)
        continues = len(before) == length and digest(before) == position.tail
    return LogFile(
        name=name,
        rank=rank,
        device=status.st_dev,
        inode=status.st_ino,
        size=status.st_size,
        modified=status.st_mtime,
        head=head,
        continues=continues,
        linked=status.st_nlink > 0,
    )


def _add_unlinked(
    opened: Sequence[OpenFile], position: Position | None, held: Sequence[OpenFile]
) -> list[OpenFile]:
    """Insert files that are deleted but still open here at their place in the chain.

    That is after the files that were older at the last look.
    """
    chain = list(opened)
    inodes = [(o.file.device, o.file.inode) for o in chain]
    place = 0
    for kept in held:
        inode = (kept.file.device, kept.file.inode)
        if inode in inodes:
            place = inodes.index(inode) + 1
            continue
        older = [o.file.rank for o in chain[:place]]
        rank = older[-1] if older else max((o.file.rank for o in chain), default=0) + 1
        file = _inspect(kept.fd, f"the deleted {kept.file.name}", max(rank, 1), position)
        chain.insert(place, OpenFile(replace(file, held=True, linked=False), kept.fd))
        inodes.insert(place, inode)
        place += 1
    return chain


def close_all(opened: Sequence[OpenFile]) -> None:
    """Close the file descriptors."""
    for file in opened:
        os.close(file.fd)


def _has_hole(ranks: Sequence[int]) -> bool:
    highest = max(ranks, default=0)
    return any(rank not in ranks for rank in range(1, highest))


def why(error: OSError) -> str:
    """Say why a file cannot be read, and what to do about it."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            "permission denied; run as a user who can read it (often root or condor), "
            "or ask the administrator to make the log readable"
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            "cannot read the log: too many open files; raise `ulimit -n`, or use --no-rotations "
            "if the numbered files are not rotations of this log"
        )
    return f"cannot read the log: {os.strerror(error.errno) if error.errno else error}"
