"""Write files: atomically, and private to their owner where they name other people's jobs."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from condor_advice.gather.errors import AdviceError


class UnsafeFile(AdviceError):
    """Somebody else put a file or a link where we would write, or read what we trust."""


def check_trusted(path: Path, *, writing: bool) -> None:
    """Refuse a link or a stranger's file in a directory that others may write to.

    A file that does not exist is fine. A writer also distrusts a directory that belongs to another
    user; a reader may follow a link that the directory's owner made.
    """
    try:
        directory, entry = os.stat(path.parent), os.lstat(path)
    except OSError:
        return  # missing, or closed to us: opening it says so
    open_to_others = directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not open_to_others and not (writing and directory.st_uid not in (os.geteuid(), 0)):
        return
    closed = f"`chmod go-w {path.parent}`, or use a directory of your own"
    if stat.S_ISLNK(entry.st_mode):
        raise UnsafeFile(
            f"{path}: a symbolic link in a directory that others may write to; name the file "
            f"itself, {closed}"
        )
    if entry.st_uid not in (os.geteuid(), 0, directory.st_uid):
        raise UnsafeFile(
            f"{path}: belongs to user {entry.st_uid}, in a directory that others may write to; "
            f"check the file, then {closed}"
        )


def open_lock(path: Path, beside: Path) -> int:
    """Open or create a lock file; refuse links and what neither we nor `beside`'s owner made.

    Whoever can write to the directory could otherwise make us overwrite any file of ours.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    remedy = "somebody else may have put it there: check it, then remove it"
    try:
        lock = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafeFile(f"{path}: the lock file is a symbolic link; {remedy}") from None
        raise
    status = os.fstat(lock)
    try:
        owners = (os.geteuid(), os.stat(beside).st_uid)
    except OSError:
        owners = (os.geteuid(), os.geteuid())
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_uid not in owners:
        os.close(lock)
        raise UnsafeFile(
            f"{path}: the lock file is not a regular file of its own, or belongs to user "
            f"{status.st_uid}; {remedy}"
        )
    return lock


@contextmanager
def private_files() -> Iterator[None]:
    """Create files and directories in the block that only their owner can read.

    The umask belongs to the whole process, so use this for short blocks or whole commands.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def private_directory(directory: Path) -> None:
    """Create a directory and its parents with mode 0700; leave existing modes as they are."""
    if not directory.is_dir():
        with private_files():
            directory.mkdir(parents=True, exist_ok=True)


@contextmanager
def as_readable_as(directory: Path) -> Iterator[None]:
    """Create files and directories in the block for those whom `directory` admits.

    What is added to a directory that its owner has opened with chmod can be read by the same
    people; in a private directory it is private.
    """
    before = os.umask(~directory.stat().st_mode & 0o777 | 0o022)
    try:
        yield
    finally:
        os.umask(before)


def make_private(directory: Path) -> None:
    """Take all rights below a directory, which is ours alone, from everybody but its owner."""
    for place, _, files in os.walk(directory):
        os.chmod(place, 0o700)
        for name in files:
            path = Path(place, name)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o700)


def replace_file(path: Path, content: bytes | str) -> None:
    """Write a temporary file in the same directory, fsync it, and rename it to `path`."""
    data = content.encode() if isinstance(content, str) else content
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.unlink(missing_ok=True)  # left by a crash
        # O_EXCL also refuses a symbolic link that somebody else put there.
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Fsync a file or a directory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
