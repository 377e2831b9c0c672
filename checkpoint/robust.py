"""What keeps the hook harmless: safe messages, reads that cannot hang, checked numbers."""

from __future__ import annotations

import contextlib
import math
import os
import stat
import sys
from typing import Any, List, Optional

# The longest message, in characters, and the largest file that the hook reads, in bytes.
MESSAGE_LIMIT = 1000
FILE_LIMIT = 16 << 20


def say(text: str) -> None:
    """Print one line on stderr. If even that fails there is nothing left to do."""
    with contextlib.suppress(Exception):
        line = " ".join(text.split())[:MESSAGE_LIMIT]
        print(f"condor_checkpoint: {line}", file=sys.stderr, flush=True)


def describe(error: BaseException) -> str:
    """Return the type and the text of an error, also when its own `__str__` raises."""
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException:
        return f"{name} (its text cannot be shown)"
    return f"{name}: {text}" if text else name


def read_text(path: Optional[str], limit: int = FILE_LIMIT) -> Optional[str]:
    """Return the text of a regular file; None if it is missing, unreadable or too large.

    Opening a FIFO or a device may block for ever, so the file is opened without blocking and
    anything but a regular file is refused.
    """
    if not path:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError, TypeError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        chunks: List[bytes] = []
        size = 0
        while True:
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                return b"".join(chunks).decode("utf-8", "replace")
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                return None
    except OSError:
        return None
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def finite(value: Any, least: float = -math.inf, most: float = math.inf) -> Optional[float]:
    """Return a number as a float; None if it is no number, not finite or out of range."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) and least <= result <= most else None
