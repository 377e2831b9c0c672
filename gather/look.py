"""Look at a log and its rotations on disk: what is there now, opened and judged.

Names move while one looks. So each file is opened first and judged by what was opened,
and a look is repeated until the names meant the same files before and after.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from condor_advice.gather.errors import AdviceError
from condor_advice.gather.rotation import HEAD_BYTES, LogFile, Position, digest

# Numbered rotations are looked for until so many in a row are missing.
MISSING_ROTATIONS = 3


class NoSuchLog(AdviceError):
    """There is no file under the log's name, nor a rotation of it."""


class UnreadableLog(AdviceError):
    """The log is there and cannot be read, or holds nothing that is an event."""


class MovingLog(AdviceError):
    """The log's files are renamed faster than one can look at them."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file of the chain, open."""

    file: LogFile
    fd: int


@contextmanager
def look(
    log: str,
    position: Position | None,
    rotations: bool = True,
    held: Sequence[OpenFile] = (),
) -> Iterator[list[OpenFile]]:
    """Open the log and its rotations, oldest first, in one consistent look.

    Files that are `held` open are part of it even if they have lost their names.
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
        meant = {name: inode for name, _, inode in before}
        same = all(meant[o.file.name] == (o.file.device, o.file.inode) for o in opened)
        if same and _names(log, rotations) == before:
            # In the middle of a rotation one number is missing for a moment.
            if attempt >= 10 or not _has_hole([rank for _, rank, _ in before]):
                return opened
            time.sleep(0.02)
        close_all(opened)
        time.sleep(0.001 * attempt)
    raise MovingLog(f"{log}: is rotated faster than it can be looked at; try again later")


def _names(log: str, rotations: bool) -> list[tuple[str, int, tuple[int, int]]]:
    """List what exists: name, rank, inode."""
    found = []
    missing = 0
    candidates: Iterator[tuple[str, int]] = iter([(log, 0)])
    if rotations:
        candidates = _candidates(log)
    for name, rank in candidates:
        try:
            status = os.stat(name)
        except OSError as error:
            # The name of a rotation may be too long where the log's own is not.
            absent = error.errno == errno.ENOENT or (rank and error.errno == errno.ENAMETOOLONG)
            if absent:
                missing += rank > 0
                if missing > MISSING_ROTATIONS:
                    break
                continue
            raise UnreadableLog(f"{name}: {why(error)}") from error
        missing = 0
        found.append((name, rank, (status.st_dev, status.st_ino)))
    return found


def _candidates(log: str) -> Iterator[tuple[str, int]]:
    """Name what rotations are called: `.old` when one is kept, else `.1`, `.2`, ..."""
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
    held_inodes = {(one.file.device, one.file.inode) for one in held}
    try:
        for name, rank, _ in names:
            fd = _open(name, rank)
            if fd is None:
                continue
            file = _inspect(fd, name, rank, position)
            inode = (file.device, file.inode)
            if inode in inodes:  # renamed between two of our steps: seen twice
                os.close(fd)
                continue
            inodes.add(inode)
            opened.append(OpenFile(replace(file, held=inode in held_inodes), fd))
    except BaseException:
        close_all(opened)
        raise
    # Both `.old` and `.1` exist after the setting was changed: the later one is newer.
    opened.sort(key=lambda o: (-o.file.rank, o.file.modified))
    return opened


def _open(name: str, rank: int) -> int | None:
    try:
        # Not blocking: a FIFO without a writer would hold us for ever.
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableLog(f"{name}: {why(error)}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        kind = "a directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "not a regular file"
        os.close(fd)
        if rank > 0:
            return None  # somebody's directory called EventLog.old is no rotation
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
    """Put files that have lost their names, but are still open, where they belong.

    That is behind what was older at the last look.
    """
    chain = list(opened)
    inodes = [(one.file.device, one.file.inode) for one in chain]
    place = 0
    for one in held:
        inode = (one.file.device, one.file.inode)
        if inode in inodes:
            place = inodes.index(inode) + 1
            continue
        older = [o.file.rank for o in chain[:place]]
        rank = older[-1] if older else max((o.file.rank for o in chain), default=0) + 1
        file = _inspect(one.fd, f"the deleted {one.file.name}", max(rank, 1), position)
        chain.insert(place, OpenFile(replace(file, held=True, linked=False), one.fd))
        inodes.insert(place, inode)
        place += 1
    return chain


def close_all(opened: Sequence[OpenFile]) -> None:
    """Give the file descriptors back."""
    for one in opened:
        os.close(one.fd)


def _has_hole(ranks: Sequence[int]) -> bool:
    highest = max(ranks, default=0)
    return any(rank not in ranks for rank in range(1, highest))


def why(error: OSError) -> str:
    """Say why a file cannot be read, and what to do about it."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            "permission denied; run as a user who may read it (often root or condor), "
            "or ask the administrator to make the log readable"
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            "cannot be read: more files are needed than may be open; raise `ulimit -n`, or use "
            "--no-rotations if what is numbered like a rotation is none"
        )
    return f"cannot be read: {os.strerror(error.errno) if error.errno else error}"
