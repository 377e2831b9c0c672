"""Opening records: plain, .gz and .xz alike."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import TextIO

from condor_advice.gather.errors import AdviceError


class CannotRead(AdviceError):
    """A file of records is missing or may not be read."""

    def __init__(self, path: Path | str, error: OSError) -> None:
        super().__init__(f"{path}: {error.strerror or error}; check the name and the permissions")


def open_text(path: Path | str) -> TextIO:
    """Open a text file for reading; bytes that are no UTF-8 are kept as escapes."""
    path = Path(path)
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8", errors="backslashreplace")
        if path.suffix == ".xz":
            return lzma.open(path, "rt", encoding="utf-8", errors="backslashreplace")
        return open(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise CannotRead(path, error) from error
