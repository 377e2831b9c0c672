"""A new user's first day on a real pool: what is printed is pasted as it is, and does no harm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from condor_advice.gather.events import JobStatus
from condor_advice.lab.pool import Pool

Ask = Callable[..., str]
BLOCK = " " * 11  # what the lines to paste begin with


@pytest.fixture
def ask(pool: Pool, tmp_path: Path) -> Ask:
    def run(*arguments: str) -> str:
        env = pool.environ | {
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "COLUMNS": "100",
        }
        env.pop("CONDOR_ADVICE_STORE", None)
        command = pool.command([sys.executable, "-m", "condor_advice", *arguments])
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def paste(pool: Pool, answer: str) -> None:
    lines = [line.strip() for line in answer.splitlines() if line.startswith(BLOCK)]
    pool.run(["bash"], input="\n".join([*lines, "true\n"]))


def submit(pool: Pool, directory: Path, *lines: str, count: int = 1) -> int:
    text = ("executable = /bin/sleep", "transfer_executable = false", f"log = {directory}/log")
    last = () if any(line.startswith("arguments") for line in lines) else ("arguments = 0",)
    cluster = pool.submit("\n".join([*text, *last, *lines, f"queue {count}"]), cwd=directory)
    pool.wait_for(cluster, JobStatus.HELD)
    return cluster


def states(pool: Pool, cluster: int) -> list[tuple[int, int]]:
    ads = pool.jobs(f"ClusterId == {cluster}")
    return [(ad["JobStatus"], ad["EnteredCurrentStatus"]) for ad in ads]


def test_many_jobs_with_a_wrong_directory_are_not_released_half_mended(
    pool: Pool, ask: Ask, tmp_path: Path
) -> None:
    (tmp_path / "right").mkdir()
    for proc in range(20):
        (tmp_path / "right" / f"in_{proc}.dat").touch()
    inputs = "transfer_input_files = wrong/in_$(Process).dat"
    cluster = submit(pool, tmp_path, "should_transfer_files = yes", inputs, count=20)
    before = states(pool, cluster)
    answer = ask(str(cluster))
    assert "condor_release" not in answer
    paste(pool, answer)
    assert states(pool, cluster) == before
    pool.run(["condor_rm", str(cluster)])


def test_another_index_is_never_proposed_and_nothing_is_released_before_the_file_is_there(
    pool: Pool, ask: Ask, tmp_path: Path
) -> None:
    (tmp_path / "star_5.fits").touch()
    inputs = "transfer_input_files = star_4.fits"
    cluster = submit(pool, tmp_path, "should_transfer_files = yes", inputs)
    before = states(pool, cluster)
    answer = ask(str(cluster))
    assert "star_5" not in answer
    paste(pool, answer)
    assert states(pool, cluster) == before
    (tmp_path / "star_4.fits").touch()
    answer = ask(str(cluster))
    assert answer.startswith("RELEASE")
    assert "already corrected" in answer
    paste(pool, answer)
    pool.wait_for(cluster, JobStatus.COMPLETED)


def test_a_policy_that_was_lifted_is_a_release_and_until_then_nothing_is_pasted(
    pool: Pool, ask: Ask, tmp_path: Path
) -> None:
    cluster = submit(pool, tmp_path, "periodic_hold = JobStatus == 2", "arguments = 5")
    before = states(pool, cluster)
    paste(pool, ask(str(cluster)))
    assert states(pool, cluster) == before
    pool.run(["condor_qedit", str(cluster), "PeriodicHold", "false"])
    answer = ask(str(cluster))
    assert answer.startswith("RELEASE")
    paste(pool, answer)
    pool.wait_for(cluster, JobStatus.COMPLETED)


def test_twice_the_allowed_time_is_printed_and_cures_the_job(
    pool: Pool, ask: Ask, tmp_path: Path
) -> None:
    cluster = submit(pool, tmp_path, "allowed_execute_duration = 4", "arguments = 6")
    answer = ask(str(cluster))
    assert "AllowedExecuteDuration 8" in answer
    paste(pool, answer)
    pool.wait_for(cluster, JobStatus.COMPLETED)


def over_memory(directory: Path, request_mb: int, used_mb: int) -> tuple[str, ...]:
    """Submit lines of a job that the execution point holds for its memory, as a site would.

    It needs no memory at all: the job's own policy reports the usage that the test wants.
    """
    return (
        f"request_memory = {request_mb}",
        "arguments = 300",
        f"+MemoryUsage = {used_mb}",
        f"periodic_hold = JobStatus == 2 && MemoryUsage > {request_mb}",
        'periodic_hold_reason = "memory usage exceeded request_memory"',
        "periodic_hold_subcode = 102",
    )


def printed_value(answer: str, attribute: str) -> int:
    [line] = [line for line in answer.splitlines() if f" {attribute} " in line]
    return int(line.split(f" {attribute} ")[1].split()[0])


def test_no_size_is_advised_that_no_slot_has(pool: Pool, ask: Ask, tmp_path: Path) -> None:
    largest = max(point.memory_mb for point in pool.execution_points)
    cluster = submit(pool, tmp_path, *over_memory(tmp_path, largest - 2048, largest - 1024))
    answer = ask(str(cluster))
    assert f"no slot of this pool has that much: largest is {largest:,} MB" in " ".join(
        answer.split()
    )
    assert printed_value(answer, "RequestMemory") == largest
    pool.run(["condor_rm", str(cluster)])


def test_a_size_that_slots_have_says_how_many(pool: Pool, ask: Ask, tmp_path: Path) -> None:
    cluster = submit(pool, tmp_path, *over_memory(tmp_path, 64, 100))
    assert "1 of 1 slot has that much" in " ".join(ask(str(cluster)).split())
    pool.run(["condor_qedit", str(cluster), "MemoryProvisioned", "64"])
    pool.run(["condor_qedit", str(cluster), "RequestMemory", "999999"])
    answer = " ".join(ask(str(cluster)).split())
    assert "it requests 999,999 MB of memory now, but no slot of this pool has that much" in answer
    assert "condor_release" not in answer
    pool.run(["condor_rm", str(cluster)])


def test_an_idle_job_is_told_which_requirement_leaves_no_slot(
    pool: Pool, ask: Ask, tmp_path: Path
) -> None:
    description = [
        "executable = /bin/sleep", "arguments = 0", "request_memory = 999999",
        'requirements = TARGET.HasTelescope && TARGET.OpSys == "LINUX"', "queue",
    ]  # fmt: skip
    cluster = pool.submit("\n".join(description), cwd=tmp_path)
    answer = " ".join(ask(f"{cluster}.0").split())
    largest = max(point.memory_mb for point in pool.execution_points)
    assert answer.startswith(f"IDLE {cluster}.0: no slot could run it")
    assert f"0 of 1 slot has 999,999 MB of memory: largest is {largest:,} MB" in answer
    assert "0 of 1 slot meets `TARGET.HasTelescope`" in answer
    assert "OpSys" not in answer
    pool.run(["condor_rm", str(cluster)])
