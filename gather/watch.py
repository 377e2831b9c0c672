"""Wait until a log may have changed: by inotify where the kernel tells, else by polling."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

# The kernel tells only of changes made on this machine.
_REMOTE = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "beegfs_nodev",
    "ceph", "glusterfs", "afs", "9p", "virtiofs", "panfs", "pvfs2", "cvmfs2",
}  # fmt: skip
# inotify may miss something (a queue that overflows, a bind mount): look anyway.
SAFETY_SECONDS = 5.0
POLL_SECONDS = 1.0
# Events that come in quick succession are read together: fewer, larger transactions.
GATHER_SECONDS = 0.2


class Watcher:
    """Tells when it is worth looking at any of some logs again."""

    def __init__(self, logs: Sequence[str], *, polling: bool = False) -> None:
        self._logs = list(logs)
        self._inotify = None if polling or any(map(is_remote, logs)) else _inotify()
        self._watched: dict[str, tuple[int, int]] = {}  # log -> inode under watch
        # Written to by `wake`, possibly from a signal handler.
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._woken_at = 0.0
        self._watch_directories()

    @property
    def polling(self) -> bool:
        """Whether the kernel does not tell, so that changes are found by looking."""
        return self._inotify is None

    def wake(self) -> None:
        """End a wait at once. Safe in a signal handler."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full: it wakes already
            os.write(self._wake_write, b"!")

    def wait(self, limit: float | None = None) -> None:
        """Return when a log may have changed, at `wake`, or after `limit` seconds."""
        patience = POLL_SECONDS if self.polling else SAFETY_SECONDS
        if limit is not None:
            patience = min(patience, max(0.0, limit))
        if self._watch_files():
            return  # what was written before the watch began would not be heard of
        fds = [self._wake_read]
        if self._inotify is not None:
            fds.append(self._inotify.fileno())
        deadline = time.monotonic() + patience
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select(fds, [], [], left)
            if self._wake_read in ready:
                os.read(self._wake_read, 1024)
                return
            if ready and self._drain():
                break
        self._breathe()

    def close(self) -> None:
        """Give back what the kernel keeps for us."""
        os.close(self._wake_read)
        os.close(self._wake_write)
        if self._inotify is not None:
            self._inotify.close()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _breathe(self) -> None:
        """Keep successive returns apart, so that a busy log costs few transactions."""
        pause = self._woken_at + GATHER_SECONDS - time.monotonic()
        if pause > 0:
            select.select([self._wake_read], [], [], pause)
        if self._inotify is not None:
            self._drain()  # what came meanwhile will be read now
        self._woken_at = time.monotonic()

    def _drain(self) -> bool:
        """Empty the kernel's queue; True if one of our logs or its rotations is in it."""
        assert self._inotify is not None
        from inotify_simple import flags

        concerned = False
        for event in self._inotify.read(timeout=0):
            # A watched file has no name; a name is an entry of a watched directory.
            if event.name == "" or event.mask & flags.Q_OVERFLOW:
                concerned = True
            elif event.name in self._names:
                concerned = True
                # Another file has the name now, perhaps with the inode of the last one.
                for log in [log for log in self._watched if log.endswith("/" + event.name)]:
                    del self._watched[log]
        return concerned

    def _watch_directories(self) -> None:
        """Hear of files that come, go and are renamed: rotations begin with that."""
        self._names = {os.path.basename(log) for log in self._logs}
        if self._inotify is None:
            return
        from inotify_simple import flags

        mask = flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE | flags.ONLYDIR
        for directory in {os.path.dirname(log) for log in self._logs}:
            try:
                self._inotify.add_watch(directory, mask)
            except OSError:
                self._give_up()
                return

    def _watch_files(self) -> bool:
        """Hear of growth. After a rotation another file has the log's name.

        True when a file came under watch only now.
        """
        if self._inotify is None:
            return False
        added = False
        from inotify_simple import flags

        for log in self._logs:
            try:
                found = os.stat(log)
                inode = (found.st_dev, found.st_ino)
                if self._watched.get(log) == inode:
                    continue
                # A watch on the rotated file stays, so that late events in it are heard,
                # until the file is deleted, when the kernel drops it.
                self._inotify.add_watch(log, flags.MODIFY)
                self._watched[log] = inode
                added = True
            except FileNotFoundError:
                continue
            except OSError:
                self._give_up()
                return False
        return added

    def _give_up(self) -> None:
        """Poll from now on, as when the user's number of watches is used up."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None


def _inotify() -> Any:
    """Return an inotify instance, or None where there is none."""
    try:
        from inotify_simple import INotify

        return INotify(nonblocking=True)
    except (ImportError, OSError):
        return None


def is_remote(path: str, mounts: Iterable[str] | None = None) -> bool:
    """Whether a path lies on a file system that other machines write to."""
    if mounts is None:
        try:
            with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
                mounts = file.readlines()
        except OSError:
            return False
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts:
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind in _REMOTE or kind.startswith("fuse.")
