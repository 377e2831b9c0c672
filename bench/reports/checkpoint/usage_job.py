"""A job of a given kind: it leaks, fills its disk, overruns, crashes, or behaves.

    python usage_job.py KIND SEED MEMORY_LIMIT_MB DISK_LIMIT_MB SECONDS

Everything else is drawn from the seed, so that no two jobs of a kind are alike.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

MEGABYTE = 1024 * 1024
STEP = 0.2


def main() -> None:
    """Run as a job of the given kind."""
    kind, seed, memory_limit, disk_limit, seconds = sys.argv[1], *map(int, sys.argv[2:6])
    rng = random.Random(f"{kind} {seed}")
    held: list[bytearray] = []
    begun = time.monotonic()
    start = rng.uniform(0.05, 0.3) * seconds  # work before anything happens
    room = memory_limit - 35  # without the memory of two interpreters
    rate = room / (seconds - start) * rng.uniform(1.3, 2.5)  # reaches the limit before the end
    level = rng.uniform(0.4, 0.8) * room
    crash_at = rng.uniform(0.2, 0.9) * seconds
    saw = rng.uniform(4.0, 10.0)

    def hold_megabytes(amount: float) -> None:
        amount = max(0.0, amount)
        while len(held) < int(amount):
            held.append(bytearray(os.urandom(4096) * 256))
        del held[int(amount) :]

    with open("scratch.data", "wb") as file:
        while (now := time.monotonic() - begun) < seconds:
            grown = max(0.0, now - start)
            if kind == "leak":
                hold_megabytes(rate * grown)
            elif kind == "bursts":  # the same leak, in steps
                hold_megabytes(rate * saw / 2 * int(grown / (saw / 2)))
            elif kind == "disk":
                write_up_to(file, (disk_limit * MEGABYTE) * 1.5 * grown / (seconds - start))
            elif kind == "diskstop":
                write_up_to(file, 0.6 * disk_limit * MEGABYTE * min(1.0, grown / saw))
            elif kind == "plateau":
                hold_megabytes(min(level, 2 * rate * grown))
            elif kind == "saw":
                hold_megabytes(level * (grown % saw) / saw)
            elif kind == "crash" and now > crash_at:
                os.kill(os.getpid(), rng.choice([signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL]))
            elif kind == "steady":
                hold_megabytes(level)
            burn(rng.uniform(0.0, 0.02))
            time.sleep(STEP)


def write_up_to(file: object, size: float) -> None:
    """Extend the file to this many bytes."""
    missing = int(size) - file.tell()  # type: ignore[attr-defined]
    if missing > 0:
        file.write(os.urandom(missing))  # type: ignore[attr-defined]
        file.flush()  # type: ignore[attr-defined]


def burn(seconds: float) -> None:
    """Use CPU time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


main()
