"""Make a job table from the store's events: one row for every job that was submitted.

Requests come from the 028 event that HTCondor adds to the submit event if
`EVENT_LOG_JOB_AD_INFORMATION_ATTRS` is set. The resource table of a 005 event has requests too,
but they are not used: jobs that have not ended lack them, and a model would learn from the gap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from condor_advice.gather.events import JobEventType
from condor_advice.gather.store import Store, default_store_path
from condor_advice.gather.workloads.table import JobState, JobTable, TableBuilder, UsageSamples

JobRecord = dict[str, float | str | None]

_EVENT_TYPES = (
    JobEventType.SUBMIT,
    JobEventType.EXECUTE,
    JobEventType.JOB_TERMINATED,
    JobEventType.JOB_ABORTED,
    JobEventType.JOB_AD_INFORMATION,
    JobEventType.IMAGE_SIZE,
)
_ALIAS = re.compile(r"[?&]alias=([^&>]+)")
_HOST = re.compile(r"<([^:>?]+)")
# column -> (attribute of the 028 ad, factor to the column's unit)
_REQUESTS = {
    "requested_cpus": ("RequestCpus", 1.0),
    "requested_memory_mb": ("RequestMemory", 1.0),
    "requested_disk_mb": ("RequestDisk", 1.0 / 1024.0),
    "requested_seconds": ("AllowedExecuteDuration", 1.0),
}
_NAMES = {"user": "Owner", "group": "AccountingGroup", "executable": "Cmd", "name": "JobBatchName"}


def read_store_jobs(path: Path | None = None) -> JobTable:
    """Read every job whose submit event is in the store; a reused job id is a new job.

    The store is opened read-only, so `gather --follow` may have it open at the same time.
    Raises NoStoreYet if there is no store at `path`.
    """
    builder = TableBuilder()
    samples: list[tuple[JobRecord, float, float]] = []
    rows: dict[int, int] = {}  # id() of a record -> its row
    with Store(path or default_store_path(), readonly=True) as store:
        open_jobs: dict[tuple[str, int, int], JobRecord] = {}
        for piece in store.pieces():
            columns = piece.columns
            for row in range(len(columns)):
                kind = int(columns.type[row])
                if kind not in _EVENT_TYPES or columns.cluster[row] < 0:
                    continue
                key = (piece.access_point, int(columns.cluster[row]), int(columns.proc[row]))
                moment = float(columns.time_us[row]) / 1e6
                if kind == JobEventType.SUBMIT:
                    known = open_jobs.get(key)
                    if known is not None and known["submit_time"] == moment:
                        continue  # the same submit, from a user log and the global one
                    if known is not None:
                        rows[id(known)] = len(rows)
                        builder.add(f"{key[1]}.{key[2]}", known)
                    open_jobs[key] = _submitted(key, moment, columns.ad(row))
                elif key not in open_jobs:
                    continue
                elif kind == JobEventType.IMAGE_SIZE:
                    memory = _number(columns.ad(row), "MemoryUsage")
                    if memory is not None:
                        samples.append((open_jobs[key], moment, memory))
                else:
                    _update(open_jobs[key], JobEventType(kind), moment, columns.ad(row))
        for key, record in open_jobs.items():
            rows[id(record)] = len(rows)
            builder.add(f"{key[1]}.{key[2]}", record)
    return replace(
        builder.table(),
        samples=UsageSamples(
            np.array([rows[id(record)] for record, _, _ in samples], dtype=np.int64),
            np.array([moment for _, moment, _ in samples]),
            np.array([memory for _, _, memory in samples]),
        ),
    ).in_submit_order()


def _submitted(key: tuple[str, int, int], moment: float, ad: Mapping[str, object]) -> JobRecord:
    notes = ad.get("StructuredNotes")
    name = ""
    if isinstance(notes, Mapping):
        name = str(notes.get("DAGNodeName") or notes.get("JobBatchName") or "")
    return {
        "submit_time": moment,
        "name": name,
        "cluster": f"{key[0]}#{key[1]}",
        "state": float(JobState.UNKNOWN),
    }


def _update(record: JobRecord, kind: JobEventType, moment: float, ad: Mapping[str, object]) -> None:
    if kind == JobEventType.JOB_AD_INFORMATION:
        if record.get("start_time") is None and record.get("end_time") is None:
            _requests(record, ad)
    elif kind == JobEventType.EXECUTE:
        record.setdefault("start_time", moment)
        record.setdefault("execution_point", _host(ad))
    elif kind == JobEventType.JOB_ABORTED:
        record["end_time"], record["state"] = moment, float(JobState.CANCELLED)
    else:
        passed = ad.get("TerminatedNormally") is True and ad.get("ReturnValue") == 0
        record["end_time"] = moment
        record["state"] = float(JobState.SUCCEEDED if passed else JobState.FAILED)
        record["used_memory_mb"] = _number(ad, "MemoryUsage")
        disk = _number(ad, "DiskUsage")
        record["used_disk_mb"] = None if disk is None else disk / 1024.0


def _requests(record: JobRecord, ad: Mapping[str, object]) -> None:
    for column, (attribute, factor) in _REQUESTS.items():
        value = _number(ad, attribute)
        if value is not None:
            record[column] = value * factor
    for column, attribute in _NAMES.items():
        text = ad.get(attribute)
        if isinstance(text, str) and text:
            record[column] = text


def _host(ad: Mapping[str, object]) -> str:
    slot = ad.get("SlotName")
    if isinstance(slot, str) and "@" in slot:
        return slot.rpartition("@")[2]
    address = str(ad.get("ExecuteHost") or "")
    match = _ALIAS.search(address) or _HOST.search(address)
    return match[1] if match else ""


def _number(ad: Mapping[str, object], name: str) -> float | None:
    value = ad.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
