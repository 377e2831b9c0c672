"""Keep one pool's daemons running, and end all of them when it exits.

This runs as a separate process between the process that wants the pool (the owner) and its
`condor_master`. It ends the pool on SIGTERM, when the owner exits for any reason (`kill -9`
included), and when the master exits. Orphaned daemons and jobs become children of the keeper
instead of init, so it can find and end every process that the pool started.

It is run by file name and uses the standard library alone: it must start fast, whatever the
owner's working directory and import path are.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process instead of init."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def parents() -> dict[int, int]:
    """Return the parent of every process on the machine."""
    parent_of = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = Path(entry.path, "stat").read_text(errors="replace")
        except OSError:
            continue  # ended since the listing
        # The command name may contain spaces and parentheses; the fields follow its last ')'.
        parent_of[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    return parent_of


def descendants(root: int) -> Iterator[int]:
    """Yield every process below `root`, nearest first."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop(0)
        yield pid
        waiting.extend(children.get(pid, ()))


def reap() -> bool:
    """Reap children that have exited; return False when none is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def kill_all_descendants(patience_seconds: float) -> bool:
    """Send SIGKILL until no descendant is left; return False if one survives."""
    deadline = time.monotonic() + patience_seconds
    while reap():
        # Repeat, since a process may fork between the listing and the signal.
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def keep(command: list[str], owner: int, grace_seconds: float) -> int:
    """Run the master until the pool should stop, then end all its processes."""
    adopt_orphans()
    # A signal writes a byte here, so one select() waits for both signals and processes.
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    stop_asked = False

    def ask_to_stop(*_: object) -> None:
        nonlocal stop_asked
        stop_asked = True

    for number in STOP_SIGNALS:
        signal.signal(number, ask_to_stop)
    signal.signal(signal.SIGCHLD, lambda *_: None)

    selector = selectors.DefaultSelector()
    selector.register(wake_read, selectors.EVENT_READ)
    if owner:
        try:
            owner_fd = os.pidfd_open(owner)
        except ProcessLookupError:
            return 1
        if os.getppid() != owner:
            return 1  # it exited, and another process has its id
        selector.register(owner_fd, selectors.EVENT_READ)

    master = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    master_fd = os.pidfd_open(master.pid)
    selector.register(master_fd, selectors.EVENT_READ)

    master_ended = owner_ended = False
    while not (stop_asked or owner_ended or master_ended):
        for key, _ in selector.select():
            if key.fd == wake_read:
                os.read(wake_read, 4096)
            elif key.fd == master_fd:
                master_ended = True
            else:
                owner_ended = True
        if not master_ended:
            reap()
            # reap() may have reaped the master itself; its pidfd is then ready next time.

    if not master_ended:
        with contextlib.suppress(ProcessLookupError):
            master.send_signal(signal.SIGQUIT)  # HTCondor's fast shutdown
        selector.unregister(wake_read)
        if owner:
            selector.unregister(owner_fd)
        selector.select(grace_seconds)
    clean = kill_all_descendants(patience_seconds=10)
    return 0 if clean and not master_ended else 1


def main() -> int:
    """Parse the arguments, lock the pool's directory and keep the pool."""
    parser = argparse.ArgumentParser(description="Keep the daemons of one pool.")
    parser.add_argument("--owner", type=int, default=0, help="stop when this process exits")
    parser.add_argument("--lock", type=Path, required=True, help="file to lock while the pool runs")
    parser.add_argument("--grace", type=float, default=20.0, help="seconds for a clean shutdown")
    parser.add_argument("command", nargs="+", help="command that starts condor_master -f")
    options = parser.parse_args()

    lock = os.open(options.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"{options.lock}: another pool is running in this directory", file=sys.stderr)
        return 1
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return keep(options.command, options.owner, options.grace)


if __name__ == "__main__":
    sys.exit(main())
