"""One user's strange job costs nobody else the answer: real ads, edited on a real pool."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from condor_advice.gather.live import HOLD_ATTRIBUTES
from condor_advice.lab.pool import Pool

ON_HOLD = "executable = /bin/sleep\narguments = 0\nhold = true\nlog = {log}\nqueue {count}\n"
# HTCondor itself needs these, lets nobody change them, or would release and remove jobs by them.
NOT_EDITED = {
    "PeriodicRelease",
    "PeriodicRemove",
    "PeriodicHold",
    "ClusterId",
    "ProcId",
    "Owner",
    "User",
    "JobStatus",
    "GlobalJobId",
    "JobUniverse",
}
VALUES = (
    "{1,2}", '"x"', "1e400", "-1e400", "real(\"NaN\")", "undefined", "error", "true", "-5",
    "9223372036854775807", "-9223372036854775807", "1e308", '""', "[a=1;b={[c=2]}]", "{}",
    "RequestCpus + RequestCpus", "NoSuchAttribute", 'strcat("a","b")', "0", "1.5", '"/dev/zero"',
    r'"\\033[2J"', '"/proc/self/maps"', "{[x=1],[y={1}]}", "time()", "ifThenElse(true,{1},2)",
)  # fmt: skip


@pytest.fixture(scope="module")
def pool(new_pool: Callable[..., Pool], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of their own: their ads would be in everybody's history."""
    with new_pool(directory=tmp_path_factory.mktemp("strangers")) as running:
        yield running


@pytest.fixture
def ask(pool: Pool, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str | Path, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        env = pool.environ | {
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
        }
        env.pop("CONDOR_ADVICE_STORE", None)
        command = [sys.executable, "-m", "condor_advice", *map(str, arguments)]
        return subprocess.run(
            pool.command(command), env=env, capture_output=True, text=True, timeout=timeout,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    return run


@pytest.fixture
def held(pool: Pool, tmp_path: Path) -> Iterator[Callable[[int], int]]:
    clusters: list[int] = []

    def submit(count: int) -> int:
        text = ON_HOLD.format(log=tmp_path / "jobs.log", count=count)
        clusters.append(pool.submit(text, cwd=tmp_path))
        return clusters[-1]

    yield submit
    for cluster in clusters:
        # The schedd itself would wait for a FIFO to write the end of the job into.
        edit(pool, str(cluster), UserLog='"/dev/null"', Iwd='"/tmp"')
        pool.run(["condor_rm", str(cluster)])


def edit(pool: Pool, job: str, **attributes: str) -> None:
    for name, value in attributes.items():
        pool.run(["condor_qedit", job, name, value])


def jobs_of(done: subprocess.CompletedProcess[str], cluster: int) -> set[str]:
    """The jobs that were answered or named in a note."""
    answered = {json.loads(line)["job"] for line in done.stdout.splitlines()}
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: job")]
    noted = {note.split()[2].rstrip(":") for note in notes}
    return {job for job in answered | noted if job.startswith(f"{cluster}.")}


def test_a_log_or_a_program_that_never_ends_stops_nobody(
    pool: Pool, ask: Callable[..., Any], held: Callable[[int], int], tmp_path: Path
) -> None:
    cluster = held(6)
    os.mkfifo(tmp_path / "pipe")
    pipe = f'"{tmp_path}/pipe"'
    failed = "\"Error from slot1@here: Failed to execute '/x': (errno=8: Exec format error)\""
    edit(pool, f"{cluster}.0", UserLog=pipe)
    edit(pool, f"{cluster}.1", UserLog='"/dev/zero"')
    edit(pool, f"{cluster}.2", Cmd=pipe, HoldReasonCode="6", HoldReason=failed)
    edit(pool, f"{cluster}.3", Cmd='"/dev/zero"', HoldReasonCode="6", HoldReason=failed)
    edit(pool, f"{cluster}.4", Iwd='"/"', UserLog='"dev/zero"')
    everyone = {f"{cluster}.{proc}" for proc in range(6)}
    done = ask("--all", "--json")
    assert done.returncode == 0, done.stderr
    assert jobs_of(done, cluster) == everyone
    for arguments in (("annotate", "--dry-run"), ("--all", "--apply", "--yes")):
        done = ask(*arguments)
        assert done.returncode == 0, done.stderr
    assert ask(f"{cluster}.0", "--hold", "1").returncode in (0, 3)


def test_a_log_of_everybody_else_is_read_beside_one_that_is_too_large(
    pool: Pool, ask: Callable[..., Any], held: Callable[[int], int], tmp_path: Path
) -> None:
    cluster = held(2)
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)
    edit(pool, f"{cluster}.0", UserLog=f'"{tmp_path}/huge"')
    done = ask(cluster, "--json")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HoldReasonCode", "{1,2}"),
        ("NumHolds", '"x"'),
        ("NumHolds", "9223372036854775807"),
        ("EnteredCurrentStatus", '"x"'),
        ("EnteredCurrentStatus", "9223372036854775807"),
        ("AdviceAt", '"x"'),
        ("AdviceProbability", "{}"),
        ("RequestCpus", "1e400"),
        ("HoldReason", "{1}"),
    ],
)
def test_an_attribute_of_a_wrong_type_is_as_if_absent(
    pool: Pool, ask: Callable[..., Any], held: Callable[[int], int], name: str, value: str
) -> None:
    cluster = held(2)
    edit(pool, f"{cluster}.0", **{name: value})
    done = ask(cluster, "--json")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert "Infinity" not in done.stdout
    done = ask("annotate", "--dry-run")
    assert done.returncode == 0, done.stderr


def test_expressions_that_refer_to_one_another_are_evaluated_once(
    pool: Pool, ask: Callable[..., Any], held: Callable[[int], int]
) -> None:
    cluster = held(1)
    names = ["RequestDisk", "RequestMemory", "RequestCpus", "RequestGPUs", "MaxRetries", "Args"]
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        edit(pool, f"{cluster}.0", **{name: f"sum({{{','.join([other] * 60)}}})"})
    done = ask(f"{cluster}.0", "--json", timeout=60)
    assert done.returncode == 0, done.stderr


def test_random_attributes_of_random_types_leave_every_job_answered_or_noted(
    pool: Pool, ask: Callable[..., Any], held: Callable[[int], int], tmp_path: Path
) -> None:
    count, edited, rng = 25, 0, random.Random(7)
    cluster = held(count)
    names = [*(set(HOLD_ATTRIBUTES) - NOT_EDITED), "AdviceAt", "AdviceProbability", "AdviceVerdict"]
    names.sort()
    for proc in range(count):
        pairs = [
            word
            for name in rng.sample(names, 8)
            for word in (name if rng.random() < 0.8 else name.lower(), rng.choice(VALUES))
        ]
        edited += (
            pool.run(["condor_qedit", f"{cluster}.{proc}", *pairs], check=False).returncode == 0
        )
    assert edited > count / 2
    done = ask("--all", "--json")
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert jobs_of(done, cluster) == {f"{cluster}.{proc}" for proc in range(count)}
    edit(pool, str(cluster), UserLog='"/dev/null"')
    for arguments in (("--all", "--explain"), ("annotate",), ("--all", "--apply", "--yes")):
        done = ask(*arguments)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode in (0, 1), done.stderr
