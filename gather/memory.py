"""Tune malloc for a long-running process that reads block after block."""

from __future__ import annotations

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_BYTES = 256 << 20
_LARGE_ARRAY = 4 << 20


def keep_freed_memory() -> None:
    """Make malloc keep freed memory instead of returning it to the system at once.

    Each block of a log needs the same few arrays of several megabytes. If malloc returned them,
    allocating them again would cost a page fault per 4 KB, a noticeable part of the reader's
    time. Does nothing where the C library has no such setting.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _BYTES)
        library.mallopt(_TRIM_THRESHOLD, _BYTES)


def give_back_memory() -> None:
    """Return freed memory to the system now, and large arrays from now on as they are freed.

    Call this when other work begins, whose arrays do not fit the sizes that malloc has kept.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_ARRAY)
        library.malloc_trim(0)
