"""Wait until a log may have changed: with inotify where possible, otherwise by polling."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

# inotify reports only changes made on this machine.
_REMOTE = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "beegfs_nodev",
    "ceph", "glusterfs", "afs", "9p", "virtiofs", "panfs", "pvfs2", "cvmfs2",
}  # fmt: skip
# inotify may miss changes (queue overflow, bind mounts), so check this often anyway.
SAFETY_SECONDS = 5.0
POLL_SECONDS = 1.0
# Read events that arrive in quick succession together: fewer, larger transactions.
GATHER_SECONDS = 0.2


class Watcher:
    """Waits until one of several logs may have changed."""

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
        """Whether changes are found by polling instead of inotify."""
        return self._inotify is None

    def wake(self) -> None:
        """End a wait at once. Safe in a signal handler."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full: a wake-up is pending
            os.write(self._wake_write, b"!")

    def wait(self, limit: float | None = None) -> None:
        """Return when a log may have changed, on `wake`, or after `limit` seconds."""
        patience = POLL_SECONDS if self.polling else SAFETY_SECONDS
        if limit is not None:
            patience = min(patience, max(0.0, limit))
        if self._watch_files():
            return  # inotify does not report what was written before the watch began
        fds = [self._wake_read]
        if self._inotify is not None:
            fds.append(self._inotify.fileno())
        deadline = time.monotonic() + patience
        while (left := deadline - time.monotonic()) > 0:
            ready = _readable(fds, left)
            if self._wake_read in ready:
                os.read(self._wake_read, 1024)
                return
            if ready and self._drain():
                break
        self._breathe()

    def close(self) -> None:
        """Close the pipe and the inotify instance."""
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
        """Space out successive returns, so that a busy log costs few transactions."""
        pause = self._woken_at + GATHER_SECONDS - time.monotonic()
        if pause > 0:
            _readable([self._wake_read], pause)
        if self._inotify is not None:
            self._drain()  # the caller reads now, so these changes are covered
        self._woken_at = time.monotonic()

    def _drain(self) -> bool:
        """Empty the inotify queue; return whether it named one of our logs or rotations."""
        assert self._inotify is not None
        from inotify_simple import flags

        concerned = False
        for event in self._inotify.read(timeout=0):
            # Events of watched files have no name; events of watched directories name the entry.
            if event.name == "" or event.mask & flags.Q_OVERFLOW:
                concerned = True
            elif event.name in self._names:
                concerned = True
                # Another file has this name now, perhaps with the previous file's inode.
                for log in [log for log in self._watched if log.endswith("/" + event.name)]:
                    del self._watched[log]
        return concerned

    def _watch_directories(self) -> None:
        """Watch for files being created, deleted and renamed, as in a rotation."""
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
        """Watch the logs for growth; after a rotation, watch the new file.

        Return whether any watch is new.
        """
        if self._inotify is None:
            return False
        added = False
        from inotify_simple import flags

        for log in self._logs:
            try:
                status = os.stat(log)
                inode = (status.st_dev, status.st_ino)
                if self._watched.get(log) == inode:
                    continue
                # The watch on a rotated file stays, to catch late events in it. The kernel
                # drops the watch when the file is deleted.
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
        """Poll from now on, for example because the user has no inotify watches left."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None


def _readable(descriptors: list[int], seconds: float) -> list[int]:
    """Return which descriptors can be read, waiting at most this long for the first.

    `select` refuses descriptors above 1023, which a collector of many logs has.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(1000.0 * seconds)]


def _inotify() -> Any:
    """Return an inotify instance, or None if inotify is unavailable."""
    try:
        from inotify_simple import INotify

        return INotify(nonblocking=True)
    except (ImportError, OSError):
        return None


def is_remote(path: str, mounts: Iterable[str] | None = None) -> bool:
    """Return whether a path is on a file system that other machines can write to."""
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
