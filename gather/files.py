"""Write files: atomically, and private to their owner where they name other people's jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
