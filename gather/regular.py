"""Open files that somebody else named: regular files only, without blocking.

A path in a job ad or a submit file is a stranger's. Opening a FIFO blocks until somebody writes to
it, a device may never end, and opening a terminal may change who controls the process.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import BinaryIO

READ_SECONDS = 10.0  # a slow file server must not hold up everybody's answers
# Of the logs that jobs name; for jobs in larger ones the rules answer.
MOST_OWN_LOG_BYTES = 64 << 20
_CHUNK = 1 << 20


def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading; raise OSError for anything else.

    Without `follow`, a symbolic link counts as anything else.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except ValueError as error:  # a NUL character in the path
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | os.PathLike[str], limit: int, seconds: float = READ_SECONDS) -> bytes:
    """Read a regular file; raise OSError if it has more than `limit` bytes or takes too long."""
    deadline = time.monotonic() + seconds
    chunks: list[bytes] = []
    size = 0
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            if size > limit:
                raise OSError(errno.EFBIG, f"larger than {limit:,} bytes", str(path))
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "took too long to read", str(path))
            chunks.append(chunk)
    return b"".join(chunks)


def read_start(path: str | os.PathLike[str], size: int) -> bytes:
    """Read the first bytes of a regular file."""
    with open_regular(path) as file:
        return file.read(size)


def size_of_regular(path: str) -> int | None:
    """Return the size of a regular file; None if it is missing or something else."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
