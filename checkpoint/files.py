"""Checkpoint files that survive a crash at any moment: write beside, rename, keep two."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import Callable, Iterator, List, Optional, TypeVar

T = TypeVar("T")


class CheckpointFiles:
    """Numbered checkpoints in one directory; the newest complete ones are kept.

    With HTCondor, name the directory in `transfer_checkpoint_files` (and in
    `transfer_output_files` for ON_EXIT_OR_EVICT).
    """

    def __init__(
        self, directory: str = "checkpoints", keep: int = 2, name: str = "checkpoint"
    ) -> None:
        if keep < 1:
            raise ValueError("keep at least one checkpoint")
        self.directory, self.keep, self.name = directory, keep, name
        self._pattern = re.compile(re.escape(name) + r"-(\d{6,})$")
        os.makedirs(directory, exist_ok=True)

    def complete(self) -> List[str]:
        """Return the paths of the complete checkpoints, newest first."""
        numbers = sorted(
            (
                int(match.group(1))
                for match in map(self._pattern.match, os.listdir(self.directory))
                if match
            ),
            reverse=True,
        )
        return [self._path(number) for number in numbers]

    def _path(self, number: int) -> str:
        return os.path.join(self.directory, f"{self.name}-{number:06d}")

    @contextlib.contextmanager
    def writing(self) -> Iterator[str]:
        """Give a path to write to; it becomes the newest checkpoint when the block ends well.

        When it does not, the half-written file goes and the checkpoint before it stays. The
        oldest is removed first, so that there is never room needed for more than `keep`.
        """
        kept = self.complete()
        for path in kept[max(1, self.keep - 1) :]:
            os.remove(path)
        newest = int(kept[0].rpartition("-")[2]) if kept else 0
        part = os.path.join(self.directory, f".{self.name}.part")
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)
        try:
            yield part
            _sync(part)
            os.replace(part, self._path(newest + 1))
            _sync(self.directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(part)
            raise
        for path in self.complete()[self.keep :]:
            os.remove(path)

    def write(self, data: bytes) -> str:
        """Write one checkpoint and return its path."""
        with self.writing() as path, open(path, "wb") as file:
            file.write(data)
        return self.complete()[0]

    def load(self, read: Callable[[str], T]) -> Optional[T]:
        """Return `read(path)` of the newest checkpoint that can be read; None if there is none.

        One that cannot be read is named on stderr, and the one before it is tried.
        """
        for path in self.complete():
            try:
                return read(path)
            except Exception as error:
                print(
                    f"condor_checkpoint: {path}: cannot be read ({error}); trying the one before",
                    file=sys.stderr,
                )
        return None


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
