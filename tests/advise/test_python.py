"""`condor_advice.advise_on`: the answer of the command line, for Python."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import condor_advice
from condor_advice import (
    Advice,
    AdviceError,
    Because,
    NoSuchJob,
    Unreachable,
    UsageError,
    Verdict,
    advise_on,
)
from condor_advice.advise import commands as commands_package
from condor_advice.gather.events import JobStatus
from condor_advice.lab.pool import Pool

DEMO = Path(commands_package.__file__).resolve().parents[1] / "demo.log"


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("CONDOR_ADVICE_STORE", raising=False)
    monkeypatch.delenv("CONDOR_ADVICE_SITE", raising=False)


def printed(*arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "condor_advice", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_job_in_a_log_gets_the_answer_that_the_command_prints() -> None:
    first, *_ = printed("--log", str(DEMO))
    advice = advise_on(first["job"], logs=DEMO)
    assert isinstance(advice, Advice)
    assert isinstance(advice.verdict, Verdict)
    assert isinstance(advice.grounds.reason, Because)
    assert advice.as_dict() == first
    assert advise_on(first["job"], logs=[str(DEMO)]).as_dict() == first
    assert advice.attributions == ()
    assert advise_on(first["job"], logs=DEMO, explain=True).attributions


def test_an_earlier_hold_can_be_asked_about() -> None:
    first, *_ = printed("--log", str(DEMO), "--hold", "1")
    advice = advise_on(first["job"], logs=DEMO, hold=1)
    assert advice.hold.number == 1
    assert advice.as_dict() == first


@pytest.mark.parametrize(
    ("job_id", "more", "error", "words"),
    [
        ("999999.0", {}, NoSuchJob, "job 999999.0: not found"),
        ("1234", {}, UsageError, "'1234' may mean several jobs; name one job, as in 1234.7"),
        ("1234.0-9", {}, UsageError, "may mean several jobs"),
        ("job", {}, UsageError, "'job' is not a job id"),
        ("1.0", {"store": "x"}, UsageError, "`logs` and `store` exclude each other"),
        ("1.0", {"hold": 0}, UsageError, "a job's first hold is number 1"),
        ("ap1#1.0", {"access_point": "ap2"}, UsageError, "names ap1, but access_point is 'ap2'"),
    ],
)
def test_what_cannot_be_answered_is_an_error_that_says_so(job_id, more, error, words) -> None:
    with pytest.raises(error) as raised:
        advise_on(job_id, logs=DEMO, **more)
    assert words in str(raised.value)
    assert isinstance(raised.value, AdviceError)


def test_a_store_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="no-store"):
        advise_on("1.0", store=tmp_path / "no-store")


def test_the_package_is_cheap_to_import_and_names_what_it_has() -> None:
    code = (
        "import sys; before = set(sys.modules); import condor_advice\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name not in sys.stdlib_module_names}
    assert {name for name in loaded if "." not in name} == {"condor_advice"}
    assert not {name for name in loaded if name.startswith("condor_advice.")}
    assert all(hasattr(condor_advice, name) for name in condor_advice.__all__)
    with pytest.raises(AttributeError, match="no attribute 'advise_onn'"):
        _ = condor_advice.advise_onn  # type: ignore[attr-defined]


@pytest.mark.slow
def test_type_checkers_see_the_signature(tmp_path: Path) -> None:
    checked = tmp_path / "user.py"
    checked.write_text(
        "from condor_advice import advise_on\nreveal_type(advise_on('1.0').verdict)\nadvise_on(1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir",
         str(tmp_path / "cache"), str(checked)],
        capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert (
        'note: Revealed type is "condor_advice.preprocess.holds.hold_reasons.Verdict"'
        in done.stdout
    )
    assert 'has incompatible type "int"; expected "str"' in done.stdout


MISSING_INPUT = """
executable = /bin/sleep
arguments = 0
transfer_executable = false
should_transfer_files = yes
transfer_input_files = {directory}/no-such.dat
log = {directory}/jobs.log
request_memory = 16
queue
"""


@pytest.fixture
def held(pool: Pool, tmp_path: Path) -> Callable[[], int]:
    def make() -> int:
        cluster = pool.submit(MISSING_INPUT.format(directory=tmp_path), cwd=tmp_path)
        pool.wait_for(cluster, JobStatus.HELD)
        return cluster

    return make


def test_a_held_job_on_a_pool_is_answered_and_nothing_is_recorded(
    pool: Pool, held: Callable[[], int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = held()
    with pool.active(), caplog.at_level("INFO", logger="condor_advice"):
        advice = advise_on(f"{cluster}.0")
        assert advice.verdict is Verdict.FIX
        assert advice.grounds.reason is Because.REPAIR_FIRST
        assert "no-such.dat" in advice.remedy.text
        assert "there is no store yet" in caplog.text
        point = advice.hold.job.access_point
        assert advise_on(f"{cluster}.0", access_point=point).verdict is Verdict.FIX
        (tmp_path / "no-such.dat").touch()
        gone = advise_on(f"{cluster}.0")
        assert (gone.verdict, gone.grounds.reason) == (Verdict.RELEASE, Because.CAUSE_GONE)
        pool.run(["condor_release", f"{cluster}.0"])
        pool.wait_for(cluster, JobStatus.COMPLETED)
        with pytest.raises(NoSuchJob, match=f"job {cluster}.0: not in the queue of"):
            advise_on(f"{cluster}.0")
    assert not (tmp_path / "XDG_STATE_HOME").exists()
