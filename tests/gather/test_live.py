"""Queries to a real pool, and gathering its rotating event log while jobs run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from condor_advice.gather.errors import AdviceError, Unreachable, UsageError
from condor_advice.gather.events import JobStatus
from condor_advice.gather.live import AccessPoint, _any_of, find_event_log
from condor_advice.gather.rotation import read_header
from condor_advice.gather.store import Store, StoreUnreachable
from condor_advice.lab.pool import EventLog, Pool

ROOT = Path(__file__).resolve().parents[2]

HELD_TWICE = """
executable = /bin/sleep
arguments = 600
transfer_executable = false
periodic_hold = JobStatus == 2
periodic_hold_reason = "the test says so"
periodic_hold_subcode = 42
request_memory = 32 + 32
queue 2
"""
SHORT = """
executable = /bin/sleep
arguments = 0
transfer_executable = false
should_transfer_files = YES
request_memory = 16
queue {count}
"""


def test_held_jobs_come_with_all_that_htcondor_knows_about_their_holds(
    pool: Pool, tmp_path: Path
) -> None:
    cluster = pool.submit(HELD_TWICE, cwd=tmp_path)
    pool.wait_for(cluster, JobStatus.HELD)
    with pool.active():
        access_point = AccessPoint.find()
        jobs = access_point.held_jobs([(cluster, None)])
        assert [str(live.job) for live in jobs] == [f"{cluster}.0", f"{cluster}.1"]
        ad = jobs[0].ad
        assert (ad["HoldReasonCode"], ad["HoldReasonSubCode"]) == (3, 42)
        assert ad["HoldReason"] == "the test says so"
        assert ad["NumHoldsByReason"] == {"JobPolicy": ad["NumHolds"]}
        assert ad["RequestMemory"] == 64, "expressions are evaluated"
        assert jobs[0].job.access_point == access_point.name
        assert [j.job.proc for j in access_point.held_jobs([(cluster, 1)])] == [1]
        assert access_point.held_jobs([(cluster, None)], constraint="ProcId > 7") == []
        assert access_point.jobs([(cluster + 1000, None)]) == []
        mine = {live.job for live in access_point.held_jobs(mine=True)}
        assert {live.job for live in jobs} <= mine
        # The same schedd, found the long way through the collector.
        named = AccessPoint.find(access_point.name)
        assert [live.job for live in named.held_jobs([(cluster, None)])] == [j.job for j in jobs]

        epochs = access_point.epochs(cluster, 0)
        assert epochs, "the job ran, so its run left an ad"
        assert {(ad["ClusterId"], ad["ProcId"]) for ad in epochs} == {(cluster, 0)}
        assert access_point.epochs(cluster + 1000, 0) == []
    pool.run(["condor_rm", str(cluster)])


def test_an_invalid_constraint_is_refused_before_the_schedd_is_queried(
    pool: Pool,
) -> None:
    with pool.active(), pytest.raises(UsageError, match="is not a ClassAd expression"):
        AccessPoint.find().held_jobs(constraint="a == (")


def test_the_event_log_is_found_in_the_configuration(pool: Pool) -> None:
    with pool.active():
        found = find_event_log()
        assert found.path == str(pool.event_log)
        assert found.access_point == AccessPoint.find().name


def test_a_pool_that_does_not_answer_is_an_error_of_its_own_kind(
    make_pool: Callable[..., Pool],
) -> None:
    pool = make_pool(execution_points=())
    pool._write_directory()  # configured, never started
    with pool.active():
        with pytest.raises(Unreachable, match=r"Is the pool running\?") as caught:
            AccessPoint.find()
        assert caught.value.exit_status == 4
        with pytest.raises(Unreachable):
            AccessPoint.find("nobody@nowhere", "127.0.0.1:1")


def test_a_missing_configuration_is_reported_before_htcondor_exits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONDOR_CONFIG", "/no/such/condor_config")
    with pytest.raises(Unreachable, match="CONDOR_CONFIG is /no/such/condor_config"):
        AccessPoint.find()


def test_without_an_event_log_the_error_says_which_setting_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "condor_advice", "gather"],
        env={**os.environ, "CONDOR_CONFIG": "ONLY_ENV"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == AdviceError.exit_status
    assert "EVENT_LOG is not set" in result.stderr


def test_many_procs_of_one_cluster_make_one_short_constraint() -> None:
    assert _any_of([]) == ""
    assert _any_of([(7, None), (7, 3)]) == "(ClusterId == 7)"
    assert _any_of([(7, 3), (8, 1)]) == (
        "((ClusterId == 7 && ProcId == 3) || (ClusterId == 8 && ProcId == 1))"
    )
    many = _any_of([(7, proc) for proc in range(1000)])
    assert many.count("ClusterId") == 1


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "JSON, UTC, SUB_SECOND"])
def test_gathering_a_rotating_event_log_while_jobs_run_loses_and_duplicates_nothing(
    make_pool: Callable[..., Pool], tmp_path: Path, options: str
) -> None:
    settings = EventLog(max_size_bytes=5_000, max_rotations=60, format_options=options)
    pool = make_pool(event_log=settings)
    pool.start()
    store = tmp_path / "store.sqlite"
    command = [sys.executable, "-m", "condor_advice", "gather", "--store", str(store)]
    follower = subprocess.Popen([*command, "--follow"], env=pool.environ, text=True)
    try:
        clusters = [pool.submit(SHORT.format(count=8), cwd=tmp_path)]
        pool.wait_for(clusters[0], JobStatus.COMPLETED, timeout_seconds=120)
        follower.kill()  # rotations go on while nobody reads
        follower.wait()
        clusters.append(pool.submit(SHORT.format(count=4), cwd=tmp_path))
        pool.wait_for(clusters[1], JobStatus.COMPLETED, timeout_seconds=120)
        follower = subprocess.Popen([*command, "--follow"], env=pool.environ, text=True)
        clusters.append(pool.submit(SHORT.format(count=4), cwd=tmp_path))
        pool.wait_for(clusters[2], JobStatus.COMPLETED, timeout_seconds=120)
        assert wait_for_events(store, lambda found: found.get(5, 0) >= 8 + 4 + 4)
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(timeout=30) == 0
    finally:
        follower.kill()
        follower.wait()
    pool.stop(keep_directory=True)
    final = subprocess.run(command, env=pool.environ, capture_output=True, text=True)
    assert (final.returncode, final.stderr) == (0, "")

    files = sorted(pool.event_log.parent.glob("EventLog*"))
    assert len(files) > 4, "the log was to rotate several times"
    content = b"".join(file.read_bytes() for file in files)
    pattern = {
        "": rb"^(\d{3}) \(\d+\.",
        "JSON, UTC, SUB_SECOND": rb'"EventTypeNumber": (\d+)',
    }[options]
    expected = Counter(int(kind) for kind in re.findall(pattern, content, re.MULTILINE))
    expected.pop(8, None)  # the headers, which HTCondor rewrites
    with Store(store, readonly=True) as reading:
        found = reading.counts_by_type()
        assert found.pop(8) == len(files), "one header for each file"
        assert found == expected
        assert reading.gaps() == []
        terminated = [
            piece.columns.event(row, "").job.proc
            for cluster in clusters
            for piece in reading.job_pieces(cluster)
            for row in range(len(piece.columns))
            if piece.columns.type[row] == 5
        ]
    assert len(terminated) == 8 + 4 + 4
    shown = subprocess.run(
        [sys.executable, "-m", "condor_advice", "status", "--json", "--store", str(store)],
        capture_output=True,
        text=True,
    )
    [log] = json.loads(shown.stdout)["logs"]
    assert (log["unread_bytes"], log["problem"]) == (0, None)


def test_a_real_header_is_rewritten_in_place_at_rotation_and_keeps_its_length(
    make_pool: Callable[..., Pool], tmp_path: Path
) -> None:
    """If HTCondor ever changes this, fingerprints and offsets must change with it."""
    pool = make_pool(event_log=EventLog(max_size_bytes=8_000, max_rotations=20))
    pool.start()
    cluster = pool.submit(SHORT.format(count=1), cwd=tmp_path)
    pool.wait_for(cluster, JobStatus.COMPLETED)
    live = pool.event_log
    before = live.read_bytes()
    inode = live.stat().st_ino
    pool.wait_for(pool.submit(SHORT.format(count=6), cwd=tmp_path), JobStatus.COMPLETED)
    [rotated] = [f for f in live.parent.glob("EventLog.*") if f.stat().st_ino == inode]
    after = rotated.read_bytes()
    old, new = read_header(before[:2048]), read_header(after[:2048])
    assert old is not None
    assert new is not None
    assert (old.id, old.sequence, old.length) == (new.id, new.sequence, new.length)
    assert before[: old.length] != after[: new.length]
    assert after[new.length : len(before)] == before[old.length :]


def test_the_documented_local_universe_job_keeps_the_collector_running(
    pool: Pool, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "administrator.md").read_text()
    [description] = re.findall(r"```condor\n(.*?)```", page, re.DOTALL)
    command = Path(sys.executable).with_name("condor-advice")
    store = tmp_path / "store.sqlite"
    description = description.replace("/opt/condor-advice/bin/condor-advice", str(command))
    description = description.replace("$ENV(HOME)/condor-advice.sqlite", str(store))
    assert str(command) in description
    assert str(store) in description
    pool.wait_for(pool.submit(SHORT.format(count=1), cwd=tmp_path), JobStatus.COMPLETED)
    cluster = pool.submit(description, cwd=tmp_path)
    try:
        read = wait_for_events(store, lambda found: found.get(5, 0) >= 1)
        assert read, (tmp_path / "condor-advice.err").read_text()
        # Whatever ends it, the schedd starts it again, and it goes on where it was.
        holder = json.loads(Path(f"{store}.lock").read_text())
        os.kill(holder["pid"], signal.SIGKILL)
        later = pool.submit(SHORT.format(count=1), cwd=tmp_path)
        pool.wait_for(later, JobStatus.COMPLETED)
        assert wait_for_events(store, lambda found: found.get(5, 0) >= read[5] + 1)
        assert json.loads(Path(f"{store}.lock").read_text())["pid"] != holder["pid"]
    finally:
        pool.run(["condor_rm", str(cluster)])
    pool.wait_for(cluster, JobStatus.REMOVED)


def wait_for_events(
    store: Path, enough: Callable[[dict[int, int]], bool], patience: float = 60.0
) -> dict[int, int]:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        with suppress(StoreUnreachable), Store(store, readonly=True) as reading:
            found = reading.counts_by_type()
            if enough(found):
                return found
        time.sleep(0.2)
    return {}
