"""Read HTCondor's history and epoch history: history files, `-long` output and JSON."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from condor_advice.gather.classads import assignment
from condor_advice.gather.errors import Unreachable
from condor_advice.gather.events import JobStatus
from condor_advice.gather.workloads.files import open_text
from condor_advice.gather.workloads.table import (
    BadLine,
    JobState,
    JobTable,
    NotAJobTable,
    TableBuilder,
)

Ad = dict[str, object]
PROJECTION = (
    "ClusterId",
    "ProcId",
    "GlobalJobId",
    "QDate",
    "JobStatus",
    "EnteredCurrentStatus",
    "CompletionDate",
    "JobStartDate",
    "JobCurrentStartDate",
    "JobLastStartDate",
    "NumShadowStarts",
    "ExitCode",
    "ExitBySignal",
    "Owner",
    "User",
    "AccountingGroup",
    "AcctGroup",
    "Cmd",
    "JobBatchName",
    "JobUniverse",
    "LastRemoteHost",
    "RemoteHost",
    "RequestCpus",
    "CpusProvisioned",
    "RequestMemory",
    "RequestDisk",
    "MemoryUsage",
    "ResidentSetSize",
    "ResidentSetSize_RAW",
    "DiskUsage",
    "DiskUsage_RAW",
    "RemoteUserCpu",
    "RemoteSysCpu",
    "AllowedExecuteDuration",
    "AllowedJobDuration",
    "MaxRuntime",
    "RequestRuntime",
)
UNIVERSES = {
    1: "standard",
    5: "vanilla",
    7: "scheduler",
    9: "grid",
    10: "java",
    11: "parallel",
    12: "local",
    13: "vm",
}


def read_condor_history(*paths: Path | str) -> JobTable:
    """Read history files, epoch history files, `condor_history -long` or `-json` output.

    A job may have several ads: one per run in the epoch history, then one in the history. It
    becomes one row, taken from the history's ad if there is one, else from the last run's. The
    start time is that of the first run, since that is when the owner saw the job start.
    """
    jobs = _Jobs()
    for path in paths:
        for number, ad in _ads(path, jobs.builder):
            jobs.add(str(path), number, ad)
    return jobs.table()


def read_schedd_history(limit: int = 100_000) -> JobTable:
    """Query this access point's schedd for its history and epoch history."""
    import htcondor2

    jobs = _Jobs()
    try:
        schedd = htcondor2.Schedd()
        for name, query in (("history", schedd.history), ("epochs", schedd.jobEpochHistory)):
            for number, ad in enumerate(query("true", list(PROJECTION), limit), start=1):
                jobs.add(name, number, {key: _evaluated(ad, key) for key in ad})
    except htcondor2.HTCondorException as error:
        raise Unreachable(
            f"cannot query the schedd's history ({error}); run this on an access point, "
            f"or give --history FILE"
        ) from error
    return jobs.table()


class _Jobs:
    """For each job, the most complete ad and the earliest start."""

    def __init__(self) -> None:
        self.builder = TableBuilder()
        self._latest: dict[tuple[str, int, int], Ad] = {}
        self._first_start: dict[tuple[str, int, int], float] = {}

    def add(self, path: str, number: int, ad: Ad) -> None:
        try:
            access_point = _text(ad, "GlobalJobId").partition("#")[0]
            key = (access_point, _integer(ad, "ClusterId"), _integer(ad, "ProcId"))
            _integer(ad, "QDate")
        except KeyError as error:
            self.builder.bad_lines.append(
                BadLine(path, number, f"the ad that ends here has no {error.args[0]}")
            )
            return
        start = _start(ad)
        if start is not None:
            self._first_start[key] = min(start, self._first_start.get(key, start))
        self._latest[key] = _fuller(self._latest.get(key), ad)

    def table(self) -> JobTable:
        for key, ad in self._latest.items():
            self.builder.add(f"{key[1]}.{key[2]}", _record(ad, self._first_start.get(key)))
        return self.builder.table().in_submit_order()


def _evaluated(ad: Any, name: str) -> object:
    """Return an attribute of a ClassAd as a plain value; None if it cannot be evaluated."""
    try:
        return ad.eval(name)
    except Exception:  # for example, an expression that refers to the matched machine
        return None


def _ads(path: Path | str, builder: TableBuilder) -> Iterator[tuple[int, Ad]]:
    """Yield the ads, each with the number of its last line."""
    with open_text(path) as lines:
        first = lines.readline()
        if first.lstrip().startswith(("[", "{")):
            yield from _json_ads(path, first + lines.read(), builder)
            return
        ad: Ad = {}
        any_attribute = False
        number = 0
        for number, line in enumerate(itertools.chain([first], lines), start=1):
            # A banner "*** ..." ends an ad in history files; an empty line does in -long output.
            if line.startswith("***") or not line.strip():
                if ad:
                    yield number, ad
                ad = {}
            elif pair := assignment(line):
                ad[pair[0]] = pair[1]
                any_attribute = True
            else:
                builder.bad_lines.append(
                    BadLine(str(path), number, "not an `Attribute = value` line")
                )
        if ad:
            yield number, ad
        elif not any_attribute and builder.bad_lines:
            raise NotAJobTable(path, "an HTCondor history", "no `Attribute = value` line in it")


def _json_ads(path: Path | str, text: str, builder: TableBuilder) -> Iterator[tuple[int, Ad]]:
    try:
        parsed = json.loads(text)
        ads = parsed if isinstance(parsed, list) else [parsed]
    except json.JSONDecodeError:
        ads = []
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip(" ,[]"):
                continue
            try:
                ads.append(json.loads(line.rstrip(",")))
            except json.JSONDecodeError as error:
                builder.bad_lines.append(BadLine(str(path), number, str(error)))
        if not ads:
            raise NotAJobTable(path, "an HTCondor history", "no JSON ad in it") from None
    for number, ad in enumerate(ads, start=1):
        yield number, dict(ad)


def _fuller(known: Ad | None, new: Ad) -> Ad:
    """Return the later ad of a job: the one after it left the queue, or with more starts."""
    if known is None:
        return new

    def rank(ad: Ad) -> tuple[bool, float, float]:
        return (
            _number(ad, "JobStatus") in (JobStatus.REMOVED, JobStatus.COMPLETED)
            and "CompletionDate" in ad
            and bool(_number(ad, "CompletionDate") or _number(ad, "EnteredCurrentStatus")),
            _number(ad, "NumShadowStarts") or 0.0,
            _number(ad, "EnteredCurrentStatus") or 0.0,
        )

    return new if rank(new) >= rank(known) else known


def _start(ad: Ad) -> float | None:
    return (
        _number(ad, "JobStartDate")
        or _number(ad, "JobCurrentStartDate")
        or _number(ad, "JobLastStartDate")
        or None
    )


def _record(ad: Ad, start: float | None) -> dict[str, float | str | None]:
    state = _state(ad)
    end = _number(ad, "CompletionDate") or None
    if state and end is None:
        end = _number(ad, "EnteredCurrentStatus")
    requested_seconds = next(
        (
            value
            for value in (
                _number(ad, "AllowedExecuteDuration"),
                _number(ad, "AllowedJobDuration"),
                _number(ad, "MaxRuntime"),
                _number(ad, "RequestRuntime"),
            )
            if value
        ),
        None,
    )
    disk = _number(ad, "RequestDisk")
    used_disk = _number(ad, "DiskUsage_RAW") or _number(ad, "DiskUsage")
    rss = _number(ad, "ResidentSetSize_RAW") or _number(ad, "ResidentSetSize")
    memory = _number(ad, "MemoryUsage") or (rss / 1024.0 if rss else None)
    cpus = _number(ad, "RequestCpus")
    cpu = (_number(ad, "RemoteUserCpu") or 0.0) + (_number(ad, "RemoteSysCpu") or 0.0)
    universe = _number(ad, "JobUniverse")
    host = _text(ad, "LastRemoteHost") or _text(ad, "RemoteHost")
    return {
        "submit_time": _number(ad, "QDate"),
        "start_time": start,
        "end_time": end if state else None,
        "state": float(state),
        "user": _text(ad, "Owner") or _text(ad, "User"),
        "group": _text(ad, "AccountingGroup") or _text(ad, "AcctGroup"),
        "executable": _text(ad, "Cmd"),
        "name": _text(ad, "JobBatchName"),
        "queue": UNIVERSES.get(int(universe), str(int(universe))) if universe else "",
        "cluster": f"{_text(ad, 'GlobalJobId').partition('#')[0]}#{_integer(ad, 'ClusterId')}",
        "execution_point": host.rpartition("@")[2],
        "requested_cpus": cpus,
        "allocated_cpus": _number(ad, "CpusProvisioned") or cpus,
        "requested_seconds": requested_seconds,
        "requested_memory_mb": _number(ad, "RequestMemory"),
        "requested_disk_mb": disk / 1024.0 if disk else None,
        "used_memory_mb": memory if start else None,
        "used_disk_mb": used_disk / 1024.0 if used_disk and start else None,
        "cpu_seconds": cpu / (cpus or 1.0) if start and state else None,
    }


def _state(ad: Ad) -> JobState:
    status = _number(ad, "JobStatus")
    if status == JobStatus.REMOVED:
        return JobState.CANCELLED
    if status != JobStatus.COMPLETED:
        return JobState.UNKNOWN
    if ad.get("ExitBySignal") is True:
        return JobState.FAILED
    code = _number(ad, "ExitCode")
    if code is None:
        return JobState.UNKNOWN
    return JobState.SUCCEEDED if code == 0 else JobState.FAILED


def _number(ad: Mapping[str, object], name: str) -> float | None:
    value = ad.get(name)
    return float(value) if isinstance(value, int | float) else None


def _integer(ad: Mapping[str, object], name: str) -> int:
    value = ad.get(name)
    if not isinstance(value, int):
        raise KeyError(name)
    return value


def _text(ad: Mapping[str, object], name: str) -> str:
    value = ad.get(name)
    return value if isinstance(value, str) else ""
