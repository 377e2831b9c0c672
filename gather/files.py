"""Replace files atomically, so that neither a reader nor a crash sees a partial file."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes | str) -> None:
    """Write a temporary file in the same directory, fsync it, and rename it to `path`."""
    data = content.encode() if isinstance(content, str) else content
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(beside, "wb") as file:
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
