"""The current usage of the job: memory, processor, disk, network, open files.

Numbers come from the job's control group if it has one of its own, else from /proc for the
tree of its processes. Any file may be missing, unreadable or vanish at any time; a number that
cannot be read is None.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Dict, List, NamedTuple, Optional, Set

from condor_checkpoint.condor import Job, Limits, number
from condor_checkpoint.robust import read_text

PAGE = resource.getpagesize()
TICKS = os.sysconf("SC_CLK_TCK")
# A walk through the scratch directory may take this share of the time.
WALK_SHARE = 0.002
# v1 writes "no limit" as a huge number of pages.
NO_LIMIT = 1 << 60


class Sample(NamedTuple):
    """One measurement, in bytes and seconds; counters grow from the start of the job."""

    time: float  # Unix time
    elapsed: float  # seconds since the watch began
    memory: Optional[float] = None
    memory_peak: Optional[float] = None
    memory_limit: Optional[float] = None
    cpu: Optional[float] = None  # counter
    cpus: float = 1.0
    read: Optional[float] = None  # counter, storage only
    written: Optional[float] = None  # counter
    received: Optional[float] = None  # counter, the whole network namespace
    sent: Optional[float] = None  # counter
    disk: Optional[float] = None  # scratch directory
    disk_limit: Optional[float] = None
    file_system_free: Optional[float] = None
    file_system_size: Optional[float] = None
    open_files: Optional[float] = None  # of the process with the most
    open_files_limit: Optional[float] = None
    processes: Optional[float] = None
    end: Optional[float] = None  # Unix time at which the job will be stopped


class Sampler:
    """Takes samples of one job; `pid` is the root of its process tree.

    `root` is where /proc and /sys are found, for the tests.
    """

    def __init__(
        self,
        job: Optional[Job] = None,
        pid: Optional[int] = None,
        scratch: Optional[str] = None,
        limits: Optional[Limits] = None,
        root: str = "/",
    ) -> None:
        self.job = job or Job()
        self._proc = os.path.join(root, "proc")
        self._sys = os.path.join(root, "sys/fs/cgroup")
        self.pid = pid or self._top_of_job()
        self.scratch = scratch or self.job.scratch
        self.limits = limits or self.job.limits()
        self.started = time.monotonic()
        self._peak = 0.0
        self._next_walk = 0.0
        self._disk: Optional[float] = None
        self._gone_cpu = 0.0  # of processes that have ended
        self._gone_read = self._gone_written = 0.0
        self._seen: Dict[int, List[float]] = {}
        self._cgroup = _Cgroup(self._proc, self._sys, self.pid)

    def _top_of_job(self) -> int:
        """Return the process that the starter started, or this one outside HTCondor."""
        pid = current = os.getpid()
        if not self.job.is_condor:
            return pid
        for _ in range(100):
            parent = _parent(self._proc, current)
            if parent is None or parent <= 1:
                break  # the starter is in another PID namespace
            name = read_text(os.path.join(self._proc, str(parent), "comm")) or ""
            if parent == self.job.starter_pid or name.strip() == "condor_starter":
                return current
            current = parent
        return pid

    def take(self) -> Sample:
        """Measure the job once."""
        pids = process_tree(self._proc, self.pid)
        memory, cpu, read, written = self._processes(pids)
        limit = self.limits.memory
        if self._cgroup.is_own(pids):
            memory = _first(self._cgroup.memory(), memory)
            cpu = _first(self._cgroup.cpu(), cpu)
        bound = self._cgroup.memory_limit()
        if bound is not None and (limit is None or bound < limit):
            limit = bound
        if memory is not None:
            self._peak = max(self._peak, memory)
        received, sent = self._network()
        free, size = _file_system(self.scratch or ".")
        files, files_limit = self._open_files(pids)
        return Sample(
            time=time.time(),
            elapsed=time.monotonic() - self.started,
            memory=memory,
            memory_peak=self._peak or None,
            memory_limit=limit,
            cpu=cpu,
            cpus=self.limits.cpus,
            read=read,
            written=written,
            received=received,
            sent=sent,
            disk=self._scratch_use(),
            disk_limit=self.limits.disk,
            file_system_free=free,
            file_system_size=size,
            open_files=files,
            open_files_limit=files_limit,
            processes=float(len(pids)) if pids else None,
            end=self.limits.end,
        )

    def _processes(self, pids: Set[int]) -> List[Optional[float]]:
        """Return memory now, and processor time and I/O since the start, of all processes."""
        seen: Dict[int, List[float]] = {}
        memory = 0.0
        for pid in pids:
            stat = _stat(self._proc, pid)
            if stat is None:
                continue
            memory += stat.resident
            io = _io(self._proc, pid)
            seen[pid] = [stat.cpu, io.get("read_bytes", 0.0), io.get("write_bytes", 0.0)]
        if not seen:
            return [None, None, None, None]
        for pid, counters in self._seen.items():
            if pid not in seen:  # the counters keep what an ended process used
                self._gone_cpu += counters[0]
                self._gone_read += counters[1]
                self._gone_written += counters[2]
        self._seen = seen
        totals = [sum(column) for column in zip(*seen.values())]
        return [
            memory,
            totals[0] + self._gone_cpu,
            totals[1] + self._gone_read,
            totals[2] + self._gone_written,
        ]

    def _network(self) -> List[Optional[float]]:
        text = read_text(os.path.join(self._proc, str(self.pid), "net/dev"))
        if text is None:
            return [None, None]
        received = sent = 0.0
        for line in text.splitlines()[2:]:
            name, _, numbers = line.partition(":")
            fields = numbers.split()
            if name.strip() != "lo" and len(fields) >= 9:
                received += float(fields[0])
                sent += float(fields[8])
        return [received, sent]

    def _open_files(self, pids: Set[int]) -> List[Optional[float]]:
        most: Optional[float] = None
        for pid in pids:
            try:
                count = float(len(os.listdir(os.path.join(self._proc, str(pid), "fd"))))
            except OSError:
                continue
            most = count if most is None else max(most, count)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return [most, None if soft == resource.RLIM_INFINITY else float(soft)]

    def _scratch_use(self) -> Optional[float]:
        """Return the size of the scratch directory, from our own walk or the starter's.

        A walk over very many files is expensive, so the next one waits until the walks so far
        are a small share of the time.
        """
        if not self.scratch:
            return None
        begun = time.monotonic()
        if begun >= self._next_walk:
            self._disk = directory_size(self.scratch)
            ended = time.monotonic()
            self._next_walk = ended + (ended - begun) / WALK_SHARE
            if self._disk is not None:
                return self._disk
        seen = number(self.job.usage(), "DiskUsage")
        return max(self._disk or 0.0, seen * 1024.0) if seen is not None else self._disk


class _Stat(NamedTuple):
    parent: int
    cpu: float
    resident: float


class _Cgroup:
    """The control group of a process, of either version."""

    def __init__(self, proc: str, sys: str, pid: int) -> None:
        self._paths: Dict[str, str] = {}
        self._stops: Dict[str, str] = {}
        for line in (read_text(os.path.join(proc, str(pid), "cgroup")) or "").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            names = ["v2"] if not controllers else controllers.split(",")
            for name in names:
                for mount in (
                    [sys, os.path.join(sys, "unified")]
                    if name == "v2"
                    else [os.path.join(sys, name), os.path.join(sys, controllers)]
                ):
                    full = os.path.normpath(os.path.join(mount, path.lstrip("/")))
                    if os.path.isdir(full):
                        self._paths.setdefault(name, full)
                        self._stops.setdefault(name, mount)
                        break
        v2 = self._paths.get("v2")
        # With both versions mounted, the memory controller is in one of them.
        self._v2 = v2 if v2 and os.path.exists(os.path.join(v2, "memory.current")) else None
        self._v1 = None if self._v2 else self._paths.get("memory")

    def is_own(self, pids: Set[int]) -> bool:
        """Whether the group holds only this job; otherwise its usage includes other processes."""
        path = self._v2 or self._v1
        text = read_text(os.path.join(path, "cgroup.procs")) if path else None
        if not text:
            return False
        return all(int(word) in pids for word in text.split())

    def memory(self) -> Optional[float]:
        """Memory that the kernel cannot reclaim by dropping caches."""
        if self._v2:
            current, cache = _number(self._v2, "memory.current"), "inactive_file"
            path = self._v2
        elif self._v1:
            current, cache = _number(self._v1, "memory.usage_in_bytes"), "total_inactive_file"
            path = self._v1
        else:
            return None
        if current is None:
            return None
        for line in (read_text(os.path.join(path, "memory.stat")) or "").splitlines():
            key, _, value = line.partition(" ")
            if key == cache:
                return max(0.0, current - float(value))
        return current

    def memory_limit(self) -> Optional[float]:
        """The lowest limit of the group and those above it."""
        if self._v2:
            path, stop, name = self._v2, self._stops["v2"], "memory.max"
        elif self._v1:
            path, stop, name = self._v1, self._stops["memory"], "memory.limit_in_bytes"
        else:
            return None
        lowest: Optional[float] = None
        while path.startswith(stop):
            value = _number(path, name)  # "max" is no number, and None
            if value is not None and value < NO_LIMIT and (lowest is None or value < lowest):
                lowest = value
            parent = os.path.dirname(path)
            if path == stop or parent == path:
                break
            path = parent
        return lowest

    def cpu(self) -> Optional[float]:
        """Processor seconds since the group was made."""
        if self._v2:
            for line in (read_text(os.path.join(self._v2, "cpu.stat")) or "").splitlines():
                key, _, value = line.partition(" ")
                if key == "usage_usec":
                    return float(value) / 1e6
            return None
        # Own memory group does not mean own processor group, so v1 is left to /proc.
        return None


def process_tree(proc: str, top: int) -> Set[int]:
    """Return `top` and all below it, from the kernel's list of children where there is one."""
    pids: Set[int] = set()
    queue = [top]
    while queue:
        pid = queue.pop()
        if pid in pids:
            continue
        task = os.path.join(proc, str(pid), "task")
        try:
            threads = os.listdir(task)
        except OSError:
            continue
        pids.add(pid)
        for thread in threads:
            text = read_text(os.path.join(task, thread, "children"))
            if text is None:
                if os.path.isdir(os.path.join(proc, str(pid))):
                    return _tree_by_parents(proc, top)
                break
            queue.extend(int(word) for word in text.split())
    return pids


def _tree_by_parents(proc: str, top: int) -> Set[int]:
    children: Dict[int, List[int]] = {}
    for name in os.listdir(proc):
        if name.isdigit():
            parent = _parent(proc, int(name))
            if parent is not None:
                children.setdefault(parent, []).append(int(name))
    pids: Set[int] = set()
    queue = [top]
    while queue:
        pid = queue.pop()
        if pid not in pids and os.path.isdir(os.path.join(proc, str(pid))):
            pids.add(pid)
            queue.extend(children.get(pid, ()))
    return pids


def directory_size(path: str) -> Optional[float]:
    """Return the space that the files below a directory occupy; None if it cannot be read.

    A file with several names counts once.
    """
    total = 0.0
    linked: Set[int] = set()
    stack = [path]
    readable = False
    while stack:
        try:
            with os.scandir(stack.pop()) as entries:
                readable = True
                for entry in entries:
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            stack.append(entry.path)
                            continue
                        stat = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # gone since it was listed
                    if stat.st_nlink > 1:
                        if stat.st_ino in linked:
                            continue
                        linked.add(stat.st_ino)
                    total += stat.st_blocks * 512.0
        except OSError:
            continue
    return total if readable else None


def _file_system(path: str) -> List[Optional[float]]:
    try:
        stat = os.statvfs(path)
    except OSError:
        return [None, None]
    return [float(stat.f_bavail * stat.f_frsize), float(stat.f_blocks * stat.f_frsize)]


def _stat(proc: str, pid: int) -> Optional[_Stat]:
    text = read_text(os.path.join(proc, str(pid), "stat"))
    if text is None:
        return None
    # The name is in parentheses and may hold anything, so count from the last one.
    fields = text.rpartition(")")[2].split()
    try:
        return _Stat(
            int(fields[1]),
            (float(fields[11]) + float(fields[12])) / TICKS,
            float(fields[21]) * PAGE,
        )
    except (IndexError, ValueError):
        return None


def _parent(proc: str, pid: int) -> Optional[int]:
    stat = _stat(proc, pid)
    return stat.parent if stat else None


def _io(proc: str, pid: int) -> Dict[str, float]:
    counters = {}
    for line in (read_text(os.path.join(proc, str(pid), "io")) or "").splitlines():
        key, _, value = line.partition(":")
        try:
            counters[key] = float(value)
        except ValueError:
            continue
    return counters


def _number(directory: str, name: str) -> Optional[float]:
    text = read_text(os.path.join(directory, name))
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _first(*values: Optional[float]) -> Optional[float]:
    return next((value for value in values if value is not None), None)
