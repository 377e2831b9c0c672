"""Read Slurm accounting: `sacct --parsable` (or -P) text, and slurmrestd's JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, TextIO

from condor_advice.gather.workloads.files import open_text
from condor_advice.gather.workloads.table import (
    BadLine,
    JobState,
    JobTable,
    NotAJobTable,
    TableBuilder,
)

SLURM_STATES = {
    "COMPLETED": JobState.SUCCEEDED,
    "FAILED": JobState.FAILED,
    "CANCELLED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMEOUT,
    "DEADLINE": JobState.TIMEOUT,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY,
    "NODE_FAIL": JobState.NODE_FAILED,
    "BOOT_FAIL": JobState.NODE_FAILED,
    "PREEMPTED": JobState.PREEMPTED,
    "REVOKED": JobState.CANCELLED,
}
UNFINISHED = (
    "PENDING",
    "RUNNING",
    "REQUEUED",
    "RESIZING",
    "SUSPENDED",
    "COMPLETING",
    "CONFIGURING",
    "STAGE_OUT",
    "SPECIAL_EXIT",
    "STOPPED",
    "SIGNALING",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "RESV_DEL_HOLD",
)
UNKNOWN_WORDS = ("", "Unknown", "None", "N/A", "UNLIMITED", "Partition_Limit", "INVALID")
MB_PER_UNIT = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}

Record = dict[str, float | str | None]


def read_sacct(path: Path | str, zone: tzinfo = UTC) -> JobTable:
    """Read `sacct -P` output: a header line of field names, then one line per job or step.

    Steps ("123.batch") are not jobs; the job's peak memory is that of its largest step.
    sacct prints local times without a time zone: `zone` is that zone. Fields that sacct was not
    asked for are unknown in the table.
    """
    builder = TableBuilder()
    with open_text(path) as lines:
        header = lines.readline().rstrip("\n")
        fields = header.rstrip("|").split("|")
        if "State" not in fields or "Submit" not in fields:
            raise NotAJobTable(path, "sacct -P output", "no Submit and State in the first line")
        trailing = header.endswith("|")
        last: tuple[str, Record] | None = None
        for number, line in enumerate(lines, start=2):
            if not line.strip():
                continue
            words = line.rstrip("\n").split("|")
            if trailing and words and not words[-1]:
                words.pop()
            try:
                row = _row(fields, words)
                job = row.get("JobID") or row.get("JobIDRaw") or str(number)
                if "." in job and last is not None:
                    _add_step(last[1], row)
                    continue
                record = _sacct_record(row, job, zone)
            except ValueError as error:
                builder.bad_lines.append(BadLine(str(path), number, str(error)))
                continue
            if last is not None:
                builder.add(*last)
            last = job, record
        if last is not None:
            builder.add(*last)
    return builder.table().in_submit_order()


def read_slurmrestd(path: Path | str) -> JobTable:
    """Read the job list that slurmrestd or `sacct --json` prints, of any API version."""
    builder = TableBuilder()
    with open_text(path) as text:
        jobs = _json_jobs(path, text)
    for number, job in enumerate(jobs, start=1):
        try:
            builder.add(*_rest_record(job))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            builder.bad_lines.append(
                BadLine(str(path), number, f"job {number} of the list: {error!r}")
            )
    return builder.table().in_submit_order()


def _row(fields: list[str], words: list[str]) -> dict[str, str]:
    if len(words) != len(fields):
        raise ValueError(f"{len(words)} fields instead of {len(fields)}")
    return dict(zip(fields, words, strict=True))


def _sacct_record(row: Mapping[str, str], job: str, zone: tzinfo) -> Record:
    state = _state(row["State"])
    end = _time(row.get("End", ""), zone)
    start = _time(row.get("Start", ""), zone)
    submit = _time(row["Submit"], zone)
    if submit is None:
        raise ValueError(f"Submit is {row['Submit']!r}")
    cpus = _number(row.get("ReqCPUS", ""))
    nodes = _number(row.get("ReqNodes", "")) or _number(row.get("NNodes", ""))
    elapsed = _number(row.get("ElapsedRaw", "")) or _duration(row.get("Elapsed", ""))
    allocated = _number(row.get("AllocCPUS", "")) or _number(row.get("NCPUS", ""))
    if end is None and start is not None and elapsed is not None and state:
        end = start + elapsed
    return {
        "submit_time": submit,
        "start_time": start,
        "end_time": end,
        "state": float(state),
        "user": _word(row.get("User")),
        "group": _word(row.get("Account")),
        "name": _word(row.get("JobName")),
        "queue": _word(row.get("Partition")),
        "cluster": job.partition("_")[0] if "_" in job else "",
        "execution_point": _word(row.get("NodeList")),
        "requested_cpus": cpus,
        "allocated_cpus": allocated or None,
        "requested_seconds": _limit(row),
        "requested_memory_mb": _memory(row.get("ReqMem", ""), cpus, nodes),
        "used_memory_mb": _memory(row.get("MaxRSS", ""), None, None),
        "cpu_seconds": _duration(row.get("TotalCPU", "")),
    }


def _add_step(record: Record, row: Mapping[str, str]) -> None:
    used = _memory(row.get("MaxRSS", ""), None, None)
    before = record.get("used_memory_mb")
    if used is not None and (before is None or used > float(before)):
        record["used_memory_mb"] = used


def _limit(row: Mapping[str, str]) -> float | None:
    minutes = _number(row.get("TimelimitRaw", ""))
    return minutes * 60.0 if minutes is not None else _duration(row.get("Timelimit", ""))


def _state(text: str) -> JobState:
    """Return a job's state; Slurm also prints "CANCELLED by 1001" and "COMPLETED+"."""
    words = text.replace("+", " ").split()
    word = words[0].upper() if words else ""
    if word in SLURM_STATES:
        return SLURM_STATES[word]
    if word in UNFINISHED or not word:
        return JobState.UNKNOWN
    raise ValueError(f"unknown job state: {text!r}")


def _word(text: str | None) -> str:
    return "" if text is None or text in UNKNOWN_WORDS else text


def _number(text: str) -> float | None:
    return None if text in UNKNOWN_WORDS else float(text)


def _time(text: str, zone: tzinfo) -> float | None:
    if text in UNKNOWN_WORDS:
        return None
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def _duration(text: str) -> float | None:
    """Read [days-]hours:minutes:seconds, minutes:seconds or minutes:seconds.fraction."""
    if text in UNKNOWN_WORDS:
        return None
    days, dash, clock = text.rpartition("-")
    parts = [float(part) for part in clock.split(":")]
    if len(parts) > 3 or (dash and len(parts) != 3):
        raise ValueError(f"not a duration: {text!r}")
    seconds = 0.0
    for part in parts:
        seconds = 60.0 * seconds + part
    return seconds + (86400.0 * float(days) if dash else 0.0)


def _memory(text: str, cpus: float | None, nodes: float | None) -> float | None:
    """Read "4000M", "2Gc" (per core) or "16Gn" (per node) as megabytes of the whole job."""
    if text in UNKNOWN_WORDS:
        return None
    match = re.fullmatch(r"([0-9.]+)([KMGTP]?)([cn]?)", text)
    if not match:
        raise ValueError(f"not a memory size: {text!r}")
    amount, unit, per = match.groups()
    factor = {"c": cpus, "n": nodes}.get(per) or 1.0
    return float(amount) * MB_PER_UNIT[unit] * factor


def _json_jobs(path: Path | str, text: TextIO) -> list[Mapping[str, Any]]:
    try:
        document = json.load(text)
    except json.JSONDecodeError as error:
        raise NotAJobTable(path, "slurmrestd JSON", str(error)) from error
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise NotAJobTable(path, "slurmrestd JSON", 'no list "jobs" in it')
    return jobs


def _rest_record(job: Mapping[str, Any]) -> tuple[str, Record]:
    """Read one job of slurmdb (`time`, `required`) or of slurmctld (`submit_time`, ...)."""
    time = job.get("time") or {}
    required = job.get("required") or {}
    tres = job.get("tres") or {}
    submit = _first(_plain(time.get("submission")), _plain(job.get("submit_time")))
    if not submit:
        raise ValueError("no submission time")
    raw_state = job.get("state") or job.get("job_state") or ""
    if isinstance(raw_state, Mapping):
        raw_state = raw_state.get("current") or ""
    if isinstance(raw_state, list):
        raw_state = raw_state[0] if raw_state else ""
    state = _state(str(raw_state))
    start = _first(_plain(time.get("start")), _plain(job.get("start_time"))) or None
    end = _first(_plain(time.get("end")), _plain(job.get("end_time"))) or None
    limit = _first(_plain(time.get("limit")), _plain(job.get("time_limit")))
    requested = _tres(tres.get("requested"))
    allocated = _tres(tres.get("allocated"))
    cpus = _first(_plain(required.get("CPUs")), requested.get("cpu"), _plain(job.get("cpus")))
    per_cpu = _first(_plain(required.get("memory_per_cpu")), _plain(job.get("memory_per_cpu")))
    per_node = _first(
        _plain(required.get("memory_per_node")),
        _plain(job.get("memory_per_node")),
        _plain(required.get("memory")),
    )
    nodes = _first(_plain(job.get("allocation_nodes")), _plain(job.get("node_count"))) or 1.0
    memory = requested.get("mem")
    if memory is None and per_cpu:
        memory = per_cpu * (cpus or 1.0)
    if memory is None and per_node:
        memory = per_node * nodes
    array = (job.get("array") or {}).get("job_id") or _plain(job.get("array_job_id"))
    return str(job.get("job_id", "")), {
        "submit_time": submit,
        "start_time": start,
        "end_time": end if state else None,
        "state": float(state),
        "user": str(job.get("user") or job.get("user_name") or ""),
        "group": str(job.get("account") or ""),
        "name": str(job.get("name") or ""),
        "queue": str(job.get("partition") or ""),
        "cluster": str(int(array)) if array else "",
        "execution_point": _word(str(job.get("nodes") or "")),
        "requested_cpus": cpus,
        "allocated_cpus": allocated.get("cpu"),
        "requested_seconds": limit * 60.0 if limit else None,
        "requested_memory_mb": memory,
        "used_memory_mb": _peak_memory(job.get("steps") or []),
    }


def _plain(value: object) -> float | None:
    """Return a number; newer API versions wrap it in {"set", "infinite", "number"}."""
    if isinstance(value, Mapping):
        if not value.get("set", True) or value.get("infinite"):
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _tres(entries: Iterable[Mapping[str, Any]] | None) -> dict[str, float]:
    """Return the trackable resources by type; memory is in megabytes."""
    return {
        str(entry["type"]): float(entry["count"])
        for entry in entries or ()
        if entry.get("count") is not None
    }


def _peak_memory(steps: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the largest step's memory in megabytes; steps report bytes."""

    def sizes() -> Iterator[float]:
        for step in steps:
            used = ((step.get("tres") or {}).get("requested") or {}).get("max") or []
            for entry in used:
                if entry.get("type") == "mem" and entry.get("count"):
                    yield float(entry["count"]) / 1024.0**2

    return max(sizes(), default=None)
