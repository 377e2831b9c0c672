"""History files that a real HTCondor wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from condor_advice.gather.classads import assignment
from condor_advice.gather.events import JobStatus
from condor_advice.gather.workloads import JobState, read_condor_history, read_schedd_history

pytestmark = pytest.mark.pool


def test_a_real_history_says_how_jobs_ended(pool: Any, tmp_path: Path) -> None:
    clusters = [
        pool.submit(
            f"executable = /bin/sh\ntransfer_executable = false\n"
            f"arguments = \"-c 'exit {code}'\"\nrequest_memory = 64\n"
            f"log = {tmp_path}/job.log\nqueue"
        )
        for code in (0, 3)
    ]
    for cluster in clusters:
        pool.wait_for(cluster, JobStatus.COMPLETED)
    table = read_condor_history(*(pool.directory / "spool").glob("history*"))
    state = dict(zip(table.job.tolist(), table.state.tolist(), strict=True))
    assert state[f"{clusters[0]}.0"] == JobState.SUCCEEDED
    assert state[f"{clusters[1]}.0"] == JobState.FAILED
    assert not table.bad_lines
    mine = np.isin(table.job, [f"{cluster}.0" for cluster in clusters])
    assert np.all(table["submit_time"][mine] <= table["start_time"][mine])
    assert np.all(table["start_time"][mine] <= table["end_time"][mine])
    assert np.all(table["requested_memory_mb"][mine] == 64.0)


def test_attributes_read_from_a_file_are_what_htcondor_reads(pool: Any, tmp_path: Path) -> None:
    cluster = pool.submit(
        "executable = /bin/true\ntransfer_executable = false\n"
        'My.Quoted = "say \\"yes\\", C:\\new\\tools"\nMy.List = { "a,b", 2, true }\n'
        'My.Nested = [ one = 1; two = "x;y"; ]\nMy.Real = 2.5E-3\n'
        f"log = {tmp_path}/job.log\nqueue"
    )
    pool.wait_for(cluster, JobStatus.COMPLETED)
    classad2 = pytest.importorskip("classad2")
    compared = 0
    for path in (pool.directory / "spool").glob("history*"):
        for text in re.split(r"^\*\*\*.*\n", path.read_text(), flags=re.MULTILINE):
            theirs = classad2.parseOne(text, classad2.ParserType.Old)
            if theirs.get("ClusterId") != cluster:
                continue
            ours = dict(filter(None, map(assignment, text.splitlines())))
            assert set(ours) == set(theirs)
            for name, value in ours.items():
                expected = plain(theirs[name])
                if isinstance(expected, classad2.ExprTree | classad2.Value):
                    assert isinstance(value, str), name  # an expression stays text
                else:
                    assert value == expected, name
                    compared += 1
            assert ours["Quoted"] == 'say "yes", C:\\new\\tools'
    assert compared > 50


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(one) for one in value]
    return {name: plain(one) for name, one in value.items()} if hasattr(value, "items") else value


def test_the_schedd_says_what_its_history_files_say(pool: Any, tmp_path: Path) -> None:
    cluster = pool.submit(
        f"executable = /bin/false\ntransfer_executable = false\nlog = {tmp_path}/job.log\nqueue"
    )
    pool.wait_for(cluster, JobStatus.COMPLETED)
    from_files = read_condor_history(*(pool.directory / "spool").glob("history*"))
    with pool.active():
        asked = read_schedd_history()
    assert f"{cluster}.0" in asked.job.tolist()
    for table in (from_files, asked):
        row = table.job.tolist().index(f"{cluster}.0")
        assert table.state[row] == JobState.FAILED
        assert table.strings("executable")[row] == "/bin/false"
        assert table.run_seconds[row] >= 0.0
