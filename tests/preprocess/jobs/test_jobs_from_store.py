"""Jobs of gathered event logs become rows of a job table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from condor_advice.advise.cli import cli
from condor_advice.gather.store import NoStoreYet, Store, StoreBusy
from condor_advice.gather.workloads import JobState
from condor_advice.preprocess.jobs.from_store import read_store_jobs
from condor_advice.preprocess.jobs.horizons import Horizon, JobFeatures

LOG = """\
000 (007.000.000) 2024-05-01 10:00:00 Job submitted from host: <10.0.0.1:9618?alias=ap.example.net>
    DAG Node: fit
...
028 (007.000.000) 2024-05-01 10:00:00 Job ad information event triggered.
Owner = "ann"
Cmd = "/home/ann/fit.sh"
RequestMemory = 2048
RequestDisk = 1048576
RequestCpus = 4
...
000 (007.001.000) 2024-05-01 10:00:00 Job submitted from host: <10.0.0.1:9618?alias=ap.example.net>
...
001 (007.000.000) 2024-05-01 10:05:00 Job executing on host: <10.0.0.2:9618?alias=ep7.example.net>
...
006 (007.000.000) 2024-05-01 10:06:00 Image size of job updated: 4000
\t512  -  MemoryUsage of job (MB)
\t523000  -  ResidentSetSize of job (KB)
...
005 (007.000.000) 2024-05-01 11:05:00 Job terminated.
\t(1) Normal termination (return value 3)
\t\tUsr 0 00:00:07, Sys 0 00:00:01  -  Run Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
\t\tUsr 0 00:00:07, Sys 0 00:00:01  -  Total Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage
\t999283  -  Run Bytes Sent By Job
\t655  -  Run Bytes Received By Job
\t999283  -  Total Bytes Sent By Job
\t655  -  Total Bytes Received By Job
\tPartitionable Resources :    Usage  Request Allocated
\t   Cpus                 :                 4         4
\t   Disk (KB)            :   925944  1048576  35008281
\t   Memory (MB)          :      700     2048      2048
...
009 (007.001.000) 2024-05-01 11:10:00 Job was aborted.
\tvia condor_rm
...
000 (007.000.000) 2024-06-01 10:00:00 Job submitted from host: <10.0.0.1:9618?alias=ap.example.net>
...
"""


def test_gathered_jobs_have_their_times_requests_and_ends(tmp_path: Path) -> None:
    log, store = tmp_path / "job.log", tmp_path / "store.db"
    log.write_text(LOG)
    done = CliRunner().invoke(cli, ["gather", str(log), "--store", str(store), "--zone", "UTC"])
    assert done.exit_code == 0, done.output
    table = read_store_jobs(store)
    assert table.job.tolist() == ["7.0", "7.1", "7.0"]
    assert table.state.tolist() == [JobState.FAILED, JobState.CANCELLED, JobState.UNKNOWN]
    assert table.run_seconds[0] == 3600.0
    assert np.isnan(table["start_time"][1])
    assert table["requested_memory_mb"][0] == 2048.0
    assert table["requested_disk_mb"][0] == 1024.0
    assert table["used_memory_mb"][0] == 700.0
    assert table.strings("executable") == ["/home/ann/fit.sh", "", ""]
    assert table.strings("execution_point") == ["ep7.example.net", "", ""]
    assert table.strings("name") == ["fit", "", ""]
    assert len(set(table.strings("cluster"))) == 1
    assert table.samples is not None
    assert table.samples.row.tolist() == [0]
    assert table.samples.memory_mb.tolist() == [512.0]
    data = JobFeatures.for_table(table).datasets(table, [Horizon.TWO_MINUTES])
    assert data[Horizon.TWO_MINUTES].column("sample.memory_over_requested").tolist() == [0.25]


def test_a_request_that_only_the_end_reveals_is_not_taken(tmp_path: Path) -> None:
    log, store = tmp_path / "job.log", tmp_path / "store.db"
    before, _, rest = LOG.partition("028 (")
    log.write_text(before + rest.partition("...\n")[2])
    CliRunner().invoke(cli, ["gather", str(log), "--store", str(store), "--zone", "UTC"])
    table = read_store_jobs(store)
    assert np.isnan(table["requested_memory_mb"]).all()
    assert table["used_memory_mb"][0] == 700.0


def test_a_mistyped_store_is_refused_and_not_created(tmp_path: Path) -> None:
    mistyped = tmp_path / "stroe.db"
    with pytest.raises(NoStoreYet, match=f"{mistyped}: there is no store yet"):
        read_store_jobs(mistyped)
    done = subprocess.run(
        [sys.executable, "-m", "condor_advice", "failures", "train", "--store", str(mistyped)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == NoStoreYet.exit_status
    assert f"{mistyped}: there is no store yet" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_jobs_can_be_read_while_gather_follows_the_log(tmp_path: Path) -> None:
    log, store = tmp_path / "job.log", tmp_path / "store.db"
    log.write_text(LOG)
    gather = ["gather", str(log), "--store", str(store), "--zone", "UTC"]
    assert CliRunner().invoke(cli, gather).exit_code == 0
    follower = subprocess.Popen(
        [sys.executable, "-m", "condor_advice", *gather, "--follow"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_locked(store)
        assert read_store_jobs(store).job.tolist() == ["7.0", "7.1", "7.0"]
        assert follower.poll() is None
    finally:
        os.kill(follower.pid, signal.SIGTERM)
        follower.wait(timeout=30)


def _wait_until_locked(store: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            Store(store, wait=0.0).close()
        except StoreBusy:
            return
        time.sleep(0.1)
    raise AssertionError(f"nobody locked {store} within 30 s")
