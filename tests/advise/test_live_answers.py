"""Advice on a real pool: live ads, joined with store and logs, and with what may be missing."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from condor_advice.gather.events import JobStatus
from condor_advice.lab.pool import Pool

MISSING_INPUT = """
executable = /bin/sleep
arguments = 0
transfer_executable = false
should_transfer_files = yes
transfer_input_files = {directory}/inputs/run_$(Process).dat
{log}
request_memory = 16
queue {count}
"""


@pytest.fixture
def ask(pool: Pool, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        env = pool.environ | {
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "COLUMNS": "100",
        }
        env.pop("CONDOR_ADVICE_STORE", None)
        command = [sys.executable, "-m", "condor_advice", *map(str, arguments)]
        return subprocess.run(
            pool.command(command), env=env | more, capture_output=True, text=True, timeout=120
        )

    return run


@pytest.fixture
def answer(ask: Callable[..., Any]) -> Callable[..., list[dict[str, Any]]]:
    def run(*arguments: str | Path, **more: str) -> list[dict[str, Any]]:
        done = ask(*arguments, "--json", **more)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.fixture
def hold(pool: Pool, tmp_path: Path) -> Callable[..., int]:
    def make(count: int = 1, log: bool = True) -> int:
        (tmp_path / "inputs").mkdir(exist_ok=True)
        named = f"log = {tmp_path}/jobs.log" if log else ""
        text = MISSING_INPUT.format(directory=tmp_path, log=named, count=count)
        cluster = pool.submit(text, cwd=tmp_path)
        pool.wait_for(cluster, JobStatus.HELD)
        return cluster

    return make


def gather(ask: Callable[..., Any], pool: Pool) -> None:
    time.sleep(0.5)
    done = ask("gather", pool.event_log)
    assert done.returncode == 0, done.stderr


def test_one_job_is_answered_from_its_own_log_where_there_is_no_store(
    ask: Callable[..., Any], answer: Callable[..., Any], hold: Callable[..., int]
) -> None:
    cluster = hold()
    [found] = answer(f"{cluster}.0")
    assert (found["job"], found["verdict"]) == (f"{cluster}.0", "FIX")
    assert (found["hold"]["code"], found["hold"]["subcode"]) == (13, 2)
    assert found["source"] == "model"
    assert found["owner"]
    assert "run_0.dat" in found["remedy"]["text"]
    text = ask(f"{cluster}.0").stdout
    assert "there is no store yet" in text
    assert "condor-advice gather" in " ".join(text.split())


def test_the_store_knows_what_became_of_like_holds(
    ask: Callable[..., Any], answer: Callable[..., Any], hold: Callable[..., int], pool: Pool,
    tmp_path: Path,
) -> None:  # fmt: skip
    first = hold(3)
    for proc in range(3):
        (tmp_path / "inputs" / f"run_{proc}.dat").write_text("data")
    [command] = answer(f"{first}.1")[0]["remedy"]["commands"]
    pool.run(shlex.split(command))
    pool.run(["condor_release", str(first)])
    pool.wait_for(first, JobStatus.COMPLETED)
    for file in (tmp_path / "inputs").iterdir():
        file.unlink()
    second = hold(2)
    gather(ask, pool)
    found = answer(str(second))
    assert [one["job"] for one in found] == [f"{second}.0", f"{second}.1"]
    for one in found:
        assert one["evidence"]["like_cases"] >= 3
        assert one["evidence"]["like_cases_succeeded"] >= 3
        assert one["missing"] is None
    text = ask(str(second)).stdout
    assert f"2 jobs, {second}.0-1" in text
    assert "finished after a release" in text


def test_a_cause_that_is_gone_makes_it_a_release(
    answer: Callable[..., Any], hold: Callable[..., int], tmp_path: Path, pool: Pool
) -> None:
    cluster = hold()
    assert answer(f"{cluster}.0")[0]["verdict"] == "FIX"
    (tmp_path / "inputs" / "run_0.dat").write_text("data")
    [found] = answer(f"{cluster}.0")
    assert (found["verdict"], found["because"]) == ("RELEASE", "already corrected")
    pool.run(shlex.split(found["remedy"]["commands"][0]))
    pool.wait_for(cluster, JobStatus.COMPLETED)


def test_a_job_held_after_the_last_gather_is_answered_from_its_log(
    ask: Callable[..., Any], answer: Callable[..., Any], hold: Callable[..., int], pool: Pool
) -> None:
    hold()
    gather(ask, pool)
    late = hold()
    [found] = answer(f"{late}.0")
    assert found["source"] == "model"
    assert "held after the store was last updated" in found["missing"]
    silent = hold(log=False)
    [found] = answer(f"{silent}.0")
    assert found["source"] == "rules"
    assert "neither the store nor its log has this hold" in found["missing"]
    gather(ask, pool)
    [found] = answer(f"{silent}.0")
    assert (found["source"], found["missing"]) == ("model", None)


def test_everybodys_one_users_and_a_constraints_jobs(
    answer: Callable[..., Any], ask: Callable[..., Any], hold: Callable[..., int], pool: Pool
) -> None:
    cluster = hold(2)
    job = f"{cluster}.1"
    assert job in [one["job"] for one in answer()]
    assert job in [one["job"] for one in answer("--all")]
    assert job in [one["job"] for one in answer("--user", answer(job)[0]["owner"])]
    assert ask("--user", "nobody-of-that-name").stdout == "No job is on hold.\n"
    [one] = answer("--constraint", f"ClusterId == {cluster} && ProcId == 1")
    assert one["job"] == job
    for wrong in ("ClusterId = = 1", "(", '"'):
        done = ask("--constraint", wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert "is not a ClassAd expression" in done.stderr


def test_a_job_that_is_named_twice_is_answered_once(
    answer: Callable[..., Any], ask: Callable[..., Any], hold: Callable[..., int], tmp_path: Path
) -> None:
    cluster = hold(2)
    named = (f"{cluster}.1", str(cluster), f"{cluster}.0-1")
    assert [one["job"] for one in answer(*named)] == [f"{cluster}.1", f"{cluster}.0"]
    assert "2 held jobs: 2 FIX" in ask(*named).stdout
    log = ("--log", tmp_path / "jobs.log")
    assert [one["job"] for one in answer(*log, *named)] == [f"{cluster}.1", f"{cluster}.0"]


def test_a_range_may_be_longer_than_the_cluster(
    answer: Callable[..., Any], hold: Callable[..., int]
) -> None:
    cluster = hold(3)
    began = time.monotonic()
    found = answer(f"{cluster}.1-9999999")
    assert [one["job"] for one in found] == [f"{cluster}.1", f"{cluster}.2"]
    assert time.monotonic() - began < 5


def test_a_live_job_is_asked_about_as_of_a_moment_of_an_earlier_hold(
    answer: Callable[..., Any],
    ask: Callable[..., Any],
    hold: Callable[..., int],
    pool: Pool,
    tmp_path: Path,
) -> None:
    job = f"{hold()}.0"
    [first] = answer(job)
    held = datetime.fromisoformat(first["hold"]["at"])
    while datetime.now(UTC) < held + timedelta(seconds=2):
        time.sleep(0.1)
    pool.run(["condor_release", job])
    deadline = time.monotonic() + 120
    while (tmp_path / "jobs.log").read_text().count("\n012 (") < 2:
        assert time.monotonic() < deadline, "the job was not held again"
        time.sleep(0.2)
    [then] = answer(job, "--at", (held + timedelta(seconds=1)).isoformat())
    assert then["hold"]["number"] == 1
    assert then["hold"]["at"] == first["hold"]["at"]
    done = ask(job, "--at", held.isoformat())
    assert done.returncode == 3
    assert f"job {job}: was not on hold at" in done.stderr


def test_errors_name_the_job_and_have_their_status(
    ask: Callable[..., Any], pool: Pool, tmp_path: Path, hold: Callable[..., int]
) -> None:
    text = "executable = /bin/sleep\ntransfer_executable = false\narguments = 300\nqueue"
    running = pool.submit(text, cwd=tmp_path)
    pool.wait_for(running, JobStatus.RUNNING)
    held = hold()
    for arguments, status, message in (
        ([f"{running}.0"], 3, f"job {running}.0: is not on hold; it is running"),
        (["999999"], 3, "job 999999: not in the queue"),
        (
            [f"{held}.0", "--hold", "7"],
            3,
            f"job {held}.0: has no hold number 7, as far as the store and its log tell",
        ),
        (["12x"], 2, "'12x' is not a job id"),
        (["ap1#1.0", "ap2#1.0"], 2, "several access points"),
        (["nowhere.example#1.0"], 4, "nowhere.example"),
        ([f"{held}.0", "--log", "a", "--store", "b"], 2, "--log and --store exclude each other"),
    ):
        done = ask(*arguments)
        assert (done.returncode, done.stdout) == (status, ""), done
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    part = ask(f"{held}.0", f"{running}.0", "999999.3")
    assert part.returncode == 1
    assert f"{held}.0" in part.stdout
    assert f"job {running}.0: is not on hold; it is running" in part.stderr
    assert "job 999999.3: not in the queue" in part.stderr
    pool.run(["condor_rm", str(running)])


def test_without_a_schedd_the_store_answers(
    ask: Callable[..., Any], hold: Callable[..., int], pool: Pool, tmp_path: Path
) -> None:
    cluster = hold()
    away = tmp_path / "away"
    text = pool.config_file.read_text() + "\nSCHEDD_HOST = nowhere.example\n"
    (tmp_path / "condor_config").write_text(
        text + f"SCHEDD_ADDRESS_FILE = {away}\nSCHEDD_DAEMON_AD_FILE = {away}\n"
    )
    off = {"CONDOR_CONFIG": str(tmp_path / "condor_config")}
    done = ask(f"{cluster}.0", **off)
    assert done.returncode == 4, done
    assert "no answer from HTCondor" in done.stderr
    assert "--log FILE" in done.stderr
    gather(ask, pool)
    done = ask(f"{cluster}.0", **off)
    assert done.returncode == 0, done
    assert f"{cluster}.0" in done.stdout
    assert "no schedd answered, so this is from" in done.stdout


def test_a_store_that_is_damaged_or_old_is_said_and_does_not_stop_advice(
    ask: Callable[..., Any], hold: Callable[..., int], pool: Pool, tmp_path: Path
) -> None:
    cluster = hold()
    gather(ask, pool)
    store = tmp_path / "data" / "condor-advice" / "store.sqlite"
    with sqlite3.connect(store) as db:
        db.execute("UPDATE kept_pass SET taken_up_at = ?", (time.time() - 5 * 3600,))
    db.close()
    done = ask(f"{cluster}.0")
    assert done.returncode == 0
    assert "last updated 5 hours ago" in done.stdout
    for file in store.parent.glob("store.sqlite-*"):
        file.unlink()
    store.write_bytes(b"not a store at all" * 1000)
    done = ask(f"{cluster}.0")
    assert done.returncode == 0, done.stderr
    assert "not a store, or damaged" in done.stdout
    assert f"{cluster}.0" in done.stdout
    done = ask(f"{cluster}.0", "--store", store)
    assert (done.returncode, done.stdout) == (4, "")
    assert "not a store, or damaged" in done.stderr


def test_a_store_that_cannot_be_opened_is_said(
    ask: Callable[..., Any], hold: Callable[..., int], tmp_path: Path
) -> None:
    cluster = hold()
    (tmp_path / "data" / "condor-advice" / "store.sqlite").mkdir(parents=True)
    done = ask(f"{cluster}.0")
    assert done.returncode == 0, done.stderr
    assert "store.sqlite" in done.stdout
    assert "so there is no evidence from similar holds" in " ".join(done.stdout.split())
    assert f"{cluster}.0" in done.stdout


def test_commands_for_many_jobs_do_what_they_say(
    ask: Callable[..., Any], pool: Pool, tmp_path: Path
) -> None:
    text = (
        "executable = /bin/sleep\ntransfer_executable = false\narguments = 4\n"
        f"allowed_execute_duration = 3\nlog = {tmp_path}/jobs.log\nqueue 11"
    )
    cluster = pool.submit(text, cwd=tmp_path)
    pool.wait_for(cluster, JobStatus.HELD)
    lines = [line.strip() for line in ask(str(cluster)).stdout.splitlines()]
    [qedit] = [line for line in lines if line.startswith("condor_qedit")]
    [release] = [line for line in lines if line.startswith("condor_release")]
    assert "-constraint" in qedit
    assert "-constraint" in release
    for line in (qedit, release):
        pool.run(["sh", "-c", line])
    ads = pool.wait_for(cluster, JobStatus.COMPLETED)
    assert [ad["ExitCode"] for ad in ads] == [0] * 11
    assert {ad["AllowedExecuteDuration"] for ad in ads} == {6}
