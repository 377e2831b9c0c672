"""The pool that all pool tests stand on: it runs jobs, and it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from condor_advice.gather.events import JobStatus
from condor_advice.lab.pool import EventLog, ExecutionPoint, Pool, PoolError

MakePool = Callable[..., Pool]

# A job that leaves a grandchild in a session of its own, which no process group reaches.
RUNAWAY_JOB = """\
executable = /bin/sh
arguments = "-c 'setsid sleep 1000 & exec sleep 1000'"
queue
"""


def processes_of(directory: Path) -> list[str]:
    """Every process whose command, environment or working directory names `directory`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            environ = (process / "environ").read_bytes().decode(errors="replace")
            cwd = os.readlink(process / "cwd")
        except OSError:
            continue  # ended meanwhile, or somebody else's
        own = int(process.name) == os.getpid()
        if not own and any(str(directory) in text for text in (command, environ, cwd)):
            found.append(f"{process.name} {command}")
    return found


def wait_until_no_process_of(directory: Path, timeout_seconds: float = 40) -> None:
    deadline = time.monotonic() + timeout_seconds
    while left := processes_of(directory):
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.1)


def start_runaway_job(pool: Pool) -> None:
    pool.wait_for(pool.submit(RUNAWAY_JOB), JobStatus.RUNNING)
    deadline = time.monotonic() + 20
    while sum("sleep 1000" in process for process in processes_of(pool.directory)) < 2:
        assert time.monotonic() < deadline, processes_of(pool.directory)
        time.sleep(0.1)


def test_a_job_runs_to_completion(pool: Pool, tmp_path: Path) -> None:
    cluster = pool.submit(
        "executable = /bin/echo\narguments = hello $(ProcId)\noutput = out.$(ProcId)\nqueue 2",
        cwd=tmp_path,
    )
    ads = pool.wait_for(cluster, JobStatus.COMPLETED)
    assert [ad["ExitCode"] for ad in ads] == [0, 0]
    assert ads[0]["Owner"] == pool.account
    assert (tmp_path / "out.1").read_text() == "hello 1\n"


def test_a_job_whose_input_is_missing_is_held_with_code_13(pool: Pool, tmp_path: Path) -> None:
    cluster = pool.submit(
        "executable = /bin/true\nshould_transfer_files = YES\n"
        "transfer_input_files = gone.dat\nlog = job.log\nqueue",
        cwd=tmp_path,
    )
    [ad] = pool.wait_for(cluster, JobStatus.HELD)
    assert (ad["HoldReasonCode"], ad["HoldReasonSubCode"]) == (13, 2)
    assert "gone.dat" in ad["HoldReason"]
    assert "012 (" in (tmp_path / "job.log").read_text()
    pool.run(["condor_rm", str(cluster)])


def test_waiting_for_what_does_not_happen_says_what_did(pool: Pool) -> None:
    cluster = pool.submit("executable = /bin/true\nhold = true\nqueue")
    with pytest.raises(PoolError, match=rf"{cluster}\.0 HELD submitted on hold"):
        pool.wait_for(cluster, JobStatus.COMPLETED, timeout_seconds=1)
    pool.run(["condor_rm", str(cluster)])


def test_a_failing_command_is_an_error_with_its_words(pool: Pool) -> None:
    with pytest.raises(PoolError, match=r"condor_submit .* exited with 1: (.|\n)*/no/such/program"):
        pool.submit("executable = /no/such/program\nqueue")


def test_htcondor2_in_this_process_talks_to_the_pool(pool: Pool) -> None:
    import htcondor2

    before = os.environ.get("CONDOR_CONFIG")
    schedd = pool.schedd()
    description = htcondor2.Submit({"executable": "/bin/true", "hold": "true"})
    cluster = schedd.submit(description).cluster()
    [ad] = schedd.query(f"ClusterId == {cluster}", projection=["Owner", "JobStatus"])
    assert (ad["Owner"], ad["JobStatus"]) == (pool.account, JobStatus.HELD)
    schedd.act(htcondor2.JobAction.Remove, f"ClusterId == {cluster}")
    assert os.environ["CONDOR_CONFIG"] == str(pool.config_file)
    pool.deactivate()
    assert os.environ.get("CONDOR_CONFIG") == before
    assert htcondor2.param.get("LOCAL_DIR") != str(pool.directory)


def test_two_pools_take_turns_in_one_process(pool: Pool, make_pool: MakePool) -> None:
    with make_pool(execution_points=()) as other:
        mine = pool.submit("executable = /bin/true\nhold = true\nbatch_name = mine\nqueue")
        other.submit("executable = /bin/true\nhold = true\nbatch_name = other\nqueue")

        def batches(of: Pool) -> list[str]:
            with of.active():
                ads = of.schedd().query("JobBatchName isnt undefined")
                return [ad["JobBatchName"] for ad in ads]

        assert (batches(pool), batches(other), batches(pool)) == (["mine"], ["other"], ["mine"])
    pool.run(["condor_rm", str(mine)])


def test_execution_points_have_names_sizes_and_characters(make_pool: MakePool) -> None:
    points = [
        ExecutionPoint("plain", cpus=2),
        ExecutionPoint(
            "odd",
            cpus=4,
            memory_mb=512,
            config={"STARTD_ATTRS": "$(STARTD_ATTRS) HasMood", "HasMood": "True"},
            environment={"_CONDOR_USER_JOB_WRAPPER": "/bin/false"},
        ),
    ]
    with make_pool(execution_points=points) as pool:
        shown = pool.run(["condor_status", "-af", "Name", "Cpus", "Memory", "HasMood"])
        rows = sorted(line.split() for line in shown.stdout.splitlines())
        assert [row[0].split("@")[1] for row in rows] == ["odd", "plain"]
        assert rows[0][1:] == ["4", "512", "true"]
        assert rows[1][1:] == ["2", "32768", "undefined"]
        job = "executable = /bin/true\nrequirements = {}\nmax_retries = 0\nqueue"
        plain = pool.submit(job.format("HasMood =!= true"))
        assert pool.wait_for(plain, JobStatus.COMPLETED)[0]["ExitCode"] == 0
        odd = pool.submit(job.format("HasMood"))
        assert pool.wait_for(odd, JobStatus.COMPLETED)[0]["ExitCode"] == 1


def test_the_event_log_rotates_and_is_written_as_asked(make_pool: MakePool) -> None:
    event_log = EventLog(
        max_size_bytes=3000, max_rotations=2, format_options="ISO_DATE", ad_attributes=["Owner"]
    )
    with make_pool(event_log=event_log, execution_points=()) as pool:
        pool.submit("executable = /bin/true\nhold = true\nqueue 20")
        files = sorted(pool.event_log.parent.glob("EventLog*"))
        text = "".join(file.read_text() for file in files)
    assert {"EventLog", "EventLog.1", "EventLog.2"} <= {file.name for file in files}
    assert f"\n000 (001.019.000) {time.strftime('%Y-')}" in text
    assert f'\nOwner = "{pool.account}"' in text


def test_settings_of_the_caller_come_last(make_pool: MakePool) -> None:
    pool = make_pool(config="NEGOTIATOR_INTERVAL = 77", daemons=["COLLECTOR"], execution_points=())
    with pool:
        assert pool.run(["condor_config_val", "NEGOTIATOR_INTERVAL"]).stdout == "77\n"
        assert pool.run(["condor_config_val", "DAEMON_LIST"]).stdout == "MASTER COLLECTOR\n"


def test_a_pool_that_cannot_start_says_why_and_leaves_nothing(make_pool: MakePool) -> None:
    pool = make_pool(config="error : nobody may start this")
    with pytest.raises(PoolError, match="nobody may start this"):
        pool.start()
    assert processes_of(pool.directory) == []


def test_a_directory_holds_one_running_pool(make_pool: MakePool) -> None:
    with make_pool(execution_points=()) as pool:
        again = make_pool(directory=pool.directory)
        assert again.is_running()
        with pytest.raises(PoolError, match="a pool is already running here"):
            again.start()
        assert pool.run(["condor_q", "-af", "ClusterId"]).stdout == ""
    assert not again.is_running()


def test_a_temporary_pool_takes_its_directory_away(make_pool: MakePool) -> None:
    with make_pool(directory=None, execution_points=()) as pool:
        assert pool.config_file.exists()
    assert not pool.directory.exists()


def test_no_process_is_left_after_stop(make_pool: MakePool) -> None:
    with make_pool() as pool:
        start_runaway_job(pool)
    assert processes_of(pool.directory) == []


def test_no_process_is_left_after_an_exception(make_pool: MakePool) -> None:
    pool = make_pool()

    def fail_half_way() -> None:
        with pool:
            start_runaway_job(pool)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert processes_of(pool.directory) == []


# What a test session does, in a process of its own that can be killed.
OWNER = """\
import sys, time
from pathlib import Path
from condor_advice.gather.events import JobStatus
from condor_advice.lab.pool import Pool
with Pool(Path(sys.argv[1])) as pool:
    pool.wait_for(pool.submit(sys.argv[2]), JobStatus.RUNNING)
    print("ready", flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_process_is_left_when_the_owner_is_killed(
    make_pool: MakePool, ending: signal.Signals
) -> None:
    directory = make_pool().directory  # skips where there can be no pool
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(directory), RUNAWAY_JOB],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    assert any("condor_schedd" in process for process in processes_of(directory))
    owner.send_signal(ending)
    assert owner.wait() != 0
    wait_until_no_process_of(directory)


def test_daemons_shut_down_when_even_the_keeper_is_killed(make_pool: MakePool) -> None:
    with make_pool() as pool:
        keeper = int((pool.directory / "run" / "keeper").read_text())
        os.kill(keeper, signal.SIGKILL)
        wait_until_no_process_of(pool.directory)


def test_the_rest_ends_when_the_master_is_killed(make_pool: MakePool) -> None:
    with make_pool() as pool:
        start_runaway_job(pool)
        masters = [p.split()[0] for p in processes_of(pool.directory) if "condor_master -f" in p]
        os.kill(int(masters[-1]), signal.SIGKILL)
        wait_until_no_process_of(pool.directory)
        assert not pool.is_running()


def test_the_command_starts_runs_and_stops_a_pool_by_hand(
    make_pool: MakePool, tmp_path: Path
) -> None:
    directory = make_pool().directory

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "condor_advice.lab.pool", *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    assert command("status", str(directory)).stdout == "not running\n"
    started = command("start", str(directory), "--execution-points", "2")
    assert started.stdout.startswith(f"export CONDOR_CONFIG={directory}/condor_config\n")
    shown = command("run", str(directory), "condor_status", "-af", "Cpus")
    assert shown.stdout == "32\n32\n"
    assert command("status", str(directory)).returncode == 0
    assert command("stop", str(directory)).returncode == 0
    assert processes_of(directory) == []
    unknown = command("run", str(directory), "condor_q", "-no-such-option")
    assert unknown.returncode == 1
    assert processes_of(directory) == []
