"""Checkpoints that survive a crash at any moment: write to a new name, rename, keep two."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from typing import Callable, Iterator, List, Optional, TypeVar

from condor_checkpoint.robust import describe, say

T = TypeVar("T")


class CheckpointFiles:
    """Numbered checkpoints in one directory; the newest complete ones are kept.

    A checkpoint is a file, or a directory with files. With HTCondor, name `directory` in
    `transfer_checkpoint_files` and in `transfer_output_files`. It is created at once, because
    HTCondor holds a job that ends without it. If it cannot be created, there is nothing to
    load, and every save fails.
    """

    def __init__(
        self, directory: str = "checkpoints", keep: int = 2, name: str = "checkpoint"
    ) -> None:
        if keep < 1:
            raise ValueError("keep at least one checkpoint")
        self.directory, self.keep, self.name = directory, keep, name
        self._pattern = re.compile(re.escape(name) + r"-(\d{6,})$")
        try:
            self.create()
            if not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            say(
                f"{directory}: {error.strerror}; nothing can be saved in this directory, and "
                "the next run will know nothing of this one"
            )

    def create(self) -> None:
        """Create the directory unless it exists."""
        os.makedirs(self.directory, exist_ok=True)

    def complete(self) -> List[str]:
        """Return the paths of the complete checkpoints, newest first."""
        try:
            names = os.listdir(self.directory)
        except OSError:
            return []
        matches = filter(None, map(self._pattern.match, names))
        numbers = sorted((int(match.group(1)) for match in matches), reverse=True)
        return [self._path(number) for number in numbers]

    def _path(self, number: int) -> str:
        return os.path.join(self.directory, f"{self.name}-{number:06d}")

    @contextlib.contextmanager
    def writing(self) -> Iterator[str]:
        """Yield a path to write to; it becomes the newest checkpoint if the block succeeds.

        If the block raises, the partial checkpoint is removed and the one before it stays.
        The oldest is removed first, so there are never more than `keep` on the disk.
        """
        self.create()
        kept = self.complete()
        for path in kept[max(1, self.keep - 1) :]:
            _remove(path)
        newest = int(kept[0].rpartition("-")[2]) if kept else 0
        part = os.path.join(self.directory, f".{self.name}.part")
        _remove(part)
        try:
            yield part
            _sync(part)
            os.replace(part, self._path(newest + 1))
            _sync_one(self.directory)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(part)
            raise
        for path in self.complete()[self.keep :]:
            _remove(path)

    def write(self, data: bytes) -> str:
        """Write one checkpoint and return its path."""
        with self.writing() as path, open(path, "wb") as file:
            file.write(data)
        return self.complete()[0]

    def load(self, read: Callable[[str], T]) -> Optional[T]:
        """Return `read(path)` of the newest checkpoint that is readable; None if there is none.

        A checkpoint that cannot be read is named on stderr, and the one before it is tried.
        """
        for path in self.complete():
            try:
                return read(path)
            except Exception as error:
                say(f"{path}: cannot be read ({describe(error)}); trying the one before")
        return None


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def _sync(path: str) -> None:
    """Force a file, or all files below a directory, to the disk."""
    if os.path.isdir(path) and not os.path.islink(path):
        for directory, _, names in os.walk(path):
            for name in names:
                full = os.path.join(directory, name)
                if os.path.isfile(full) and not os.path.islink(full):
                    _sync_one(full)
            _sync_one(directory)
    else:
        _sync_one(path)


def _sync_one(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
