"""Open record files: plain, .gz or .xz."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import TextIO

from condor_advice.gather.errors import AdviceError


class CannotRead(AdviceError):
    """A record file is missing or unreadable."""

    def __init__(self, path: Path | str, error: OSError) -> None:
        super().__init__(f"{path}: {error.strerror or error}; check the path and its permissions")


def open_text(path: Path | str) -> TextIO:
    """Open a text file for reading; bytes that are not UTF-8 become escapes."""
    path = Path(path)
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8", errors="backslashreplace")
        if path.suffix == ".xz":
            return lzma.open(path, "rt", encoding="utf-8", errors="backslashreplace")
        return open(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise CannotRead(path, error) from error
