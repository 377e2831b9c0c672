"""Write an event log and rotate it, in every way that HTCondor and administrators do.

The real pool rotates its log too, but not at a chosen byte, and nobody can ask it to
tear an event. Header, naming and in-place rewriting are HTCondor's own, as seen on 25.14.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

_START = datetime(2026, 3, 1, tzinfo=UTC)


def held_event(serial: int, padding: int = 0) -> bytes:
    """One hold whose cluster is `serial`, so that each event can be told from all others."""
    when = (_START + timedelta(seconds=serial)).strftime("%Y-%m-%d %H:%M:%S")
    return (
        f"012 ({serial:03d}.000.000) {when} Job was held.\n"
        f"\tThe job's own policy held it{' again and' * padding} again\n"
        f"\tCode 3 Subcode {serial % 7}\n...\n"
    ).encode()


def job_events() -> Iterator[bytes]:
    """Write the events of jobs endlessly, in the proportions of a busy access point.

    Each job is a cluster of its own: submitted, running, its size updated, and then
    terminated; every tenth is held and released first.
    """
    host = b"<10.1.2.3:9618?addrs=10.1.2.3-9618&alias=ep.example.org&noUDP&sock=startd_7_2>"
    usage = b"".join(
        b"\t   %-20s : %8s  %8s %9s\n" % row
        for row in (
            (b"Cpus", b"0.97", b"1", b"1"),
            (b"Disk (KB)", b"113", b"2048", b"4096"),
            (b"Memory (MB)", b"84", b"128", b"128"),
        )
    )
    for serial in itertools.count(1):
        when = _START + timedelta(seconds=serial // 12)
        stamp = when.strftime("%Y-%m-%d %H:%M:%S").encode()
        bodies = [
            (0, b"Job submitted from host: " + host + b"\n"),
            (1, b"Job executing on host: " + host + b"\n\tSlotName: slot1_3@ep.example.org\n"),
            (6, b"Image size of job updated: 90112\n\t84  -  MemoryUsage of job (MB)\n"),
            (5, b"Job terminated.\n\t(1) Normal termination (return value 0)\n" + usage),
        ]
        if serial % 10 == 0:
            held = b"Job was held.\n\tmemory usage exceeded request_memory\n\tCode 34 Subcode 102\n"
            bodies[2:2] = [(12, held), (13, b"Job was released.\n\tvia condor_release\n")]
        for kind, body in bodies:
            yield b"%03d (%03d.000.000) %s %s...\n" % (kind, serial, stamp, body)


class RotatingLog:
    """A log and its rotations; `header` makes it a global event log."""

    def __init__(self, path: Path, *, header: bool = True, max_rotations: int = 5) -> None:
        self.path = path
        self.header = header
        self.max_rotations = max_rotations
        self.sequence = 0
        self.offset = 0
        self.event_offset = 0
        self.fd = -1
        self.events = 0  # written to the newest file
        self.files = 0  # made so far
        self.open()

    def open(self) -> None:
        """Open the newest file as a writer does, creating it if necessary."""
        self.fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        if self.header and os.fstat(self.fd).st_size == 0:
            self.sequence += 1
            self.events = 0
            self.files += 1
            os.write(self.fd, self._header(size=0, events=0))

    def close(self) -> None:
        """Close the newest file."""
        os.close(self.fd)

    def write(self, events: Iterable[bytes]) -> None:
        """Append whole events, one `write` each as HTCondor does."""
        for event in events:
            self.write_part(event)
            self.events += 1

    def write_part(self, data: bytes) -> None:
        """Append some bytes."""
        assert os.write(self.fd, data) == len(data)

    @property
    def size(self) -> int:
        """The size of the newest file."""
        return os.fstat(self.fd).st_size

    def rotated(self, number: int) -> Path:
        """Name a rotation as HTCondor does: `.old` if only one is kept."""
        return Path(f"{self.path}.old" if self.max_rotations == 1 else f"{self.path}.{number}")

    def rotate(self, *, keep_old_fd: bool = False) -> int:
        """Rotate by renaming, and return the writer's handle on the old file if asked for.

        HTCondor first writes size and number of events into the header in place.
        """
        if self.path.read_bytes()[:3] == b"008":
            size = self.size
            fd = os.open(self.path, os.O_WRONLY)
            os.pwrite(fd, self._header(size=size, events=self.events), 0)
            os.close(fd)
            self.offset += size
            self.event_offset += self.events
        self._shift()
        os.rename(self.path, self.rotated(1))
        old = self.fd
        if not keep_old_fd:
            os.close(old)
        self.open()
        return old

    def copy_and_truncate(self) -> None:
        """Rotate as logrotate's copytruncate does; writers keep the same file."""
        self._shift()
        shutil.copyfile(self.path, self.rotated(1))
        os.ftruncate(self.fd, 0)

    def truncate(self) -> None:
        """Empty the newest file in place."""
        os.ftruncate(self.fd, 0)

    def delete_and_recreate(self) -> None:
        """Remove the newest file and begin another one."""
        os.unlink(self.path)
        os.close(self.fd)
        self.sequence = 0
        self.offset = self.event_offset = 0
        self.open()

    def _shift(self) -> None:
        """Make room for a new first rotation; delete the oldest."""
        for number in range(self.max_rotations, 1, -1):
            older = self.rotated(number - 1)
            if older.exists():
                os.rename(older, self.rotated(number))

    def _header(self, *, size: int, events: int) -> bytes:
        when = (_START + timedelta(seconds=self.sequence)).strftime("%m/%d %H:%M:%S")
        info = (
            f"Global JobLog: ctime={int(_START.timestamp()) + self.sequence} "
            f"id=0.{os.getpid()}.{self.files}.{self.sequence} sequence={self.sequence} "
            f"size={size} events={events} offset={self.offset} "
            f"event_off={self.event_offset} max_rotation={self.max_rotations} creator_name=<>"
        )
        return f"008 (-01.-01.-01) {when} {info:<256}\n...\n".encode()
