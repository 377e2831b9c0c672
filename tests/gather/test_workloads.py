# ruff: noqa: E501 (sacct lines are as long as sacct makes them)
"""Readers of other schedulers' records: one table, with units, and no line lost silently."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from condor_advice.gather.workloads import (
    COLUMNS,
    JobState,
    concatenate,
    read_condor_history,
    read_sacct,
    read_slurmrestd,
    read_swf,
    swf_blocks,
)
from condor_advice.gather.workloads.files import CannotRead
from condor_advice.gather.workloads.table import NotAJobTable

SWF = """\
; Version: 2.2
; UnixStartTime: 1000000
; MaxJobs: 4
  1   0  10  100  4  90.5  2048  8 3600 4096 1 7 3 11 2  1 -1 -1
  2   5  -1   -1 -1   -1    -1  8 3600   -1 5 7 3 11 2 -1  1 20

  3  60   0   50  2   -1    -1  2   60   -1 0 9 3 12 1 -1 -1 -1
"""


@pytest.fixture
def swf(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    path.write_text(SWF)
    return path


def test_swf_fields_get_their_units(swf: Path) -> None:
    table = read_swf(swf)
    assert table.job.tolist() == ["1", "2", "3"]
    assert table["submit_time"].tolist() == [1000000.0, 1000005.0, 1000060.0]
    assert table["start_time"][0] == 1000010.0
    assert table["end_time"][0] == 1000110.0
    assert table.run_seconds[2] == 50.0
    assert table["requested_memory_mb"][0] == 4096 * 8 / 1024  # KB per processor -> MB
    assert table["used_memory_mb"][0] == 2048 * 4 / 1024
    assert table["cpu_seconds"][0] == 90.5
    assert table["think_seconds"][1] == 20.0
    assert table["preceding_job"][1] == 1.0
    assert table.state.tolist() == [JobState.SUCCEEDED, JobState.CANCELLED, JobState.FAILED]
    assert table.strings("user") == ["7", "7", "9"]
    assert table.strings("queue") == ["2", "2", "1"]
    assert table.header["UnixStartTime"] == "1000000"


def test_a_job_that_never_ran_has_an_end_but_no_start(swf: Path) -> None:
    table = read_swf(swf)
    assert np.isnan(table["start_time"][1])
    assert np.isfinite(table["end_time"][1])
    assert np.isnan(table.run_seconds[1])


def test_minus_one_is_unknown_in_every_column(swf: Path) -> None:
    table = read_swf(swf)
    assert not any(np.any(table[name] < 0) for name in table.numbers)
    assert np.isnan(table["cpu_seconds"][2])
    assert table.strings("execution_point") == ["1", "", ""]


@pytest.mark.parametrize("end", ["gz", "xz"])
def test_compressed_swf_reads_the_same(swf: Path, end: str) -> None:
    packed = swf.with_suffix(f".swf.{end}")
    packed.write_bytes((gzip if end == "gz" else lzma).compress(swf.read_bytes()))
    assert np.array_equal(read_swf(packed)["end_time"], read_swf(swf)["end_time"], equal_nan=True)


def test_bad_lines_are_counted_with_their_numbers(swf: Path) -> None:
    swf.write_text(
        SWF + "  4  60   0   50\n  5 60 0 x 2 -1 -1 2 60 -1 0 9 3 12 1 -1 -1 -1\n"
        "  6  70   0   50  2   -1    -1  2   60   -1 2 9 3 12 1 -1 -1 -1\n"
    )
    table = read_swf(swf)
    assert len(table) == 3
    assert [(bad.line, bad.path) for bad in table.bad_lines] == [
        (8, str(swf)),
        (9, str(swf)),
        (10, str(swf)),
    ]
    assert "4 fields instead of 18" in table.bad_lines[0].reason
    assert "could not convert" in table.bad_lines[1].reason
    assert "part of a job" in table.bad_lines[2].reason


def test_concatenated_blocks_are_the_whole_file(swf: Path) -> None:
    parts = list(swf_blocks(swf, lines_per_block=1))
    whole, joined = read_swf(swf), concatenate(parts)
    assert joined.strings("user") == whole.strings("user")
    assert np.array_equal(joined["submit_time"], whole["submit_time"])


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.swf").write_text("this is no workload\n")
    with pytest.raises(NotAJobTable, match="not an SWF file: line 1: 4 fields"):
        read_swf(tmp_path / "no.swf")
    with pytest.raises(CannotRead, match="check the path"):
        read_swf(tmp_path / "missing.swf")
    (tmp_path / "no.txt").write_text("a|b\n1|2\n")
    with pytest.raises(NotAJobTable, match="no Submit and State in the first line"):
        read_sacct(tmp_path / "no.txt")
    (tmp_path / "no.json").write_text("[]")
    with pytest.raises(NotAJobTable, match='no list "jobs"'):
        read_slurmrestd(tmp_path / "no.json")


SACCT = """\
JobID|User|Account|JobName|Partition|State|Submit|Start|End|ReqCPUS|AllocCPUS|ReqMem|ReqNodes|TimelimitRaw|MaxRSS|NodeList|TotalCPU
10|ann|phys|fit|short|COMPLETED|2024-06-24T12:00:00|2024-06-24T12:05:00|2024-06-24T13:05:00|4|4|2Gc|1|120||n1|03:20:10
10.batch||phys|batch||COMPLETED|2024-06-24T12:05:00|2024-06-24T12:05:00|2024-06-24T13:05:00|4|4|||| 1500M|n1|
11_3|ann|phys|fit|short|CANCELLED by 1001|2024-06-24T12:00:01|Unknown|2024-06-24T12:10:00|1|0|500M|1|Partition_Limit|||00:00:00
12|bob|chem|opt|long|OUT_OF_MEMORY|2024-06-24T12:00:02|2024-06-24T12:00:03|2024-06-25T12:00:03|1|1|16Gn|2|2880|||1-00:00:00
13|bob|chem|opt|long|RUNNING|2024-06-24T12:00:03|2024-06-24T12:00:04|Unknown|1|1|16Gn|1|2880|||
14|bob|chem|opt|long|EXPLODED|2024-06-24T12:00:03|2024-06-24T12:00:04|Unknown|1|1|16Gn|1|2880|||
15|bob|chem
"""


def test_sacct_reads_units_steps_and_states(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT.replace(" 1500M", "1500M"))
    table = read_sacct(path)
    assert table.job.tolist() == ["10", "11_3", "12", "13"]
    assert table.state.tolist() == [
        JobState.SUCCEEDED,
        JobState.CANCELLED,
        JobState.OUT_OF_MEMORY,
        JobState.UNKNOWN,
    ]
    assert table["requested_memory_mb"].tolist() == [8192.0, 500.0, 32768.0, 16384.0]
    assert table["used_memory_mb"][0] == 1500.0
    assert table["requested_seconds"][0] == 7200.0
    assert np.isnan(table["requested_seconds"][1])
    assert table.run_seconds[0] == 3600.0
    assert table["cpu_seconds"][2] == 86400.0
    assert np.isnan(table["start_time"][1])
    assert np.isnan(table["end_time"][3])
    assert table.strings("cluster") == ["", "11", "", ""]
    assert [(bad.line, bad.reason) for bad in table.bad_lines] == [
        (7, "unknown job state: 'EXPLODED'"),
        (8, "3 fields instead of 17"),
    ]


def test_sacct_times_are_in_the_given_zone(tmp_path: Path) -> None:
    from zoneinfo import ZoneInfo

    path = tmp_path / "sacct.txt"
    path.write_text("JobID|State|Submit\n1|COMPLETED|2024-06-24T12:00:00\n")
    apart = (
        read_sacct(path, ZoneInfo("America/Costa_Rica"))["submit_time"]
        - read_sacct(path)["submit_time"]
    )
    assert apart.tolist() == [6 * 3600.0]


def test_old_and_new_slurmrestd_output_reads_alike(tmp_path: Path) -> None:
    old = {
        "job_id": 1,
        "user": "ann",
        "account": "phys",
        "partition": "short",
        "name": "fit",
        "time": {"submission": 1000, "start": 1060, "end": 1160, "limit": 60},
        "state": {"current": "FAILED"},
        "required": {"CPUs": 2, "memory": 512},
        "allocation_nodes": 1,
        "nodes": "n1",
        "tres": {"allocated": [{"type": "cpu", "count": 2}], "requested": []},
        "steps": [{"tres": {"requested": {"max": [{"type": "mem", "count": 104857600}]}}}],
    }
    new = {
        **old,
        "job_id": 2,
        "state": {"current": ["FAILED"]},
        "time": {
            "submission": 1000,
            "start": 1060,
            "end": 1160,
            "limit": {"set": True, "infinite": False, "number": 60},
        },
        "required": {
            "CPUs": 2,
            "memory_per_cpu": {"set": False, "number": 0},
            "memory_per_node": {"set": True, "infinite": False, "number": 512},
        },
    }
    bad = {"job_id": 3, "time": {}}
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps({"jobs": [old, new, bad]}))
    table = read_slurmrestd(path)
    for name in (
        "requested_seconds",
        "requested_memory_mb",
        "used_memory_mb",
        "state",
        "requested_cpus",
        "start_time",
        "end_time",
    ):
        assert table[name][0] == table[name][1], name
    assert table["requested_seconds"][0] == 3600.0
    assert table["requested_memory_mb"][0] == 512.0
    assert table["used_memory_mb"][0] == 100.0
    assert [bad.line for bad in table.bad_lines] == [3]


HISTORY = """\
ClusterId = 5
ProcId = 0
Owner = "ann"
QDate = 1000
JobStartDate = 1100
CompletionDate = 1400
JobStatus = 4
ExitBySignal = false
ExitCode = 1
Cmd = "/home/ann/my \\"prog\\""
RequestMemory = 2048
RequestDisk = 1048576
RequestCpus = 2
MemoryUsage = ((ResidentSetSize + 1023) / 1024)
ResidentSetSize_RAW = 512000
DiskUsage_RAW = 2048
JobUniverse = 5
LastRemoteHost = "slot1_1@ep7.example.net"
GlobalJobId = "ap.example.net#5.0#1000"
RemoteUserCpu = 100.0
*** Offset = 0 ClusterId = 5 ProcId = 0 Owner = "ann" CompletionDate = 1400
ClusterId = 5
ProcId = 1
Owner = "ann"
QDate = 1000
JobStatus = 3
EnteredCurrentStatus = 1200
CompletionDate = 0
GlobalJobId = "ap.example.net#5.1#1000"
*** Offset = 512 ClusterId = 5 ProcId = 1 Owner = "ann" CompletionDate = 0
this is not an attribute
ClusterId = 6
*** Offset = 1024
"""


def test_history_files_become_rows_and_bad_ads_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text(HISTORY)
    table = read_condor_history(path)
    assert table.job.tolist() == ["5.0", "5.1"]
    assert table.state.tolist() == [JobState.FAILED, JobState.CANCELLED]
    assert table.strings("executable") == ['/home/ann/my "prog"', ""]
    assert table["used_memory_mb"][0] == 500.0
    assert table["requested_disk_mb"][0] == 1024.0
    assert table["used_disk_mb"][0] == 2.0
    assert table["cpu_seconds"][0] == 50.0
    assert table.strings("execution_point") == ["ep7.example.net", ""]
    assert table.strings("cluster") == ["ap.example.net#5"] * 2
    assert table["end_time"][1] == 1200.0
    assert [(bad.line, bad.reason) for bad in table.bad_lines] == [
        (31, "not an `Attribute = value` line"),
        (33, "the ad that ends here has no ProcId"),
    ]


def test_epochs_of_one_job_become_one_row_with_the_first_start(tmp_path: Path) -> None:
    epoch = (
        'ClusterId = 5\nProcId = 0\nOwner = "ann"\nQDate = 1000\nJobStatus = 2\n'
        "NumShadowStarts = {n}\nJobCurrentStartDate = {start}\n"
        'GlobalJobId = "ap.example.net#5.0#1000"\n'
        '*** EPOCH ClusterId=5 ProcId=0 RunInstanceId={n} Owner="ann" CurrentTime=1\n'
    )
    path = tmp_path / "epoch_history"
    path.write_text(epoch.format(n=1, start=1010) + epoch.format(n=2, start=1050))
    table = read_condor_history(path)
    assert len(table) == 1
    assert table["start_time"].tolist() == [1010.0]
    assert table.state.tolist() == [JobState.UNKNOWN]
    done = tmp_path / "history"
    done.write_text(HISTORY)
    both = read_condor_history(done, path)
    assert both.state.tolist() == [JobState.FAILED, JobState.CANCELLED]
    assert both["start_time"][0] == 1010.0


def test_json_output_of_condor_history_reads_like_the_file(tmp_path: Path) -> None:
    ad = {
        "ClusterId": 5,
        "ProcId": 0,
        "Owner": "ann",
        "QDate": 1000,
        "JobStatus": 4,
        "ExitCode": 0,
        "ExitBySignal": False,
        "CompletionDate": 1400,
        "JobStartDate": 1100,
    }
    path = tmp_path / "history.json"
    path.write_text(json.dumps([ad]))
    assert read_condor_history(path).state.tolist() == [JobState.SUCCEEDED]
    path.write_text(json.dumps(ad) + "\n{torn\n")
    table = read_condor_history(path)
    assert len(table) == 1
    assert [bad.line for bad in table.bad_lines] == [2]


def test_tables_with_different_vocabularies_keep_their_strings(swf: Path, tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text(HISTORY)
    both = concatenate([read_swf(swf), read_condor_history(path)])
    assert both.strings("user") == ["7", "7", "9", "ann", "ann"]
    assert len(both.bad_lines) == 2


def test_what_is_known_at_a_moment_leaves_out_what_came_later(swf: Path) -> None:
    table = read_swf(swf).known_at(1000050.0)
    assert table.job.tolist() == ["1", "2"]
    assert table["start_time"][0] == 1000010.0
    assert np.isnan(table["end_time"][0])
    assert np.isnan(table["cpu_seconds"][0])
    assert table.state[0] == JobState.UNKNOWN


def test_every_column_says_its_meaning() -> None:
    assert all(column.meaning for column in COLUMNS.values())


def test_a_real_public_log_reads_completely(shared: Path) -> None:
    table = read_swf(shared / "data" / "workloads" / "KTH-SP2-1996-2.1-cln.swf.xz")
    assert len(table) == 27992
    assert not table.bad_lines
    assert np.sum(table.state == JobState.FAILED) == 7509
