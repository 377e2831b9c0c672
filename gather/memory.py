"""How the C library keeps memory, for a process that reads blocks all day."""

from __future__ import annotations

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_BYTES = 256 << 20
_LARGE_ARRAY = 4 << 20


def keep_freed_memory() -> None:
    """Have the C library keep what is freed, instead of giving it back at once.

    Every block of a log needs the same few arrays of some megabytes. Given back to the
    system, each of them costs a page fault per 4 KB when it is taken again, which is a
    tenth of the reader's time. Where the C library has no such setting, nothing is done.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _BYTES)
        library.mallopt(_TRIM_THRESHOLD, _BYTES)


def give_back_memory() -> None:
    """Give back now what has been kept, and large arrays from now on when they are freed.

    For when work of another kind begins: its arrays do not fit into the places of the blocks'.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_ARRAY)
        library.malloc_trim(0)
