"""Whatever breaks around the hook, the job's own result stays the same."""

import asyncio
import builtins
import contextlib
import io
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from condor_checkpoint import AsyncCheckpoint, Checkpoint
from condor_checkpoint import hook as hook_module
from condor_checkpoint.condor import Job, read_ad
from condor_checkpoint.journal import MOST_FALSE_ALARMS, Journal
from condor_checkpoint.policy import Decision, Policy
from condor_checkpoint.sample import Sample, Sampler

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/checkpoint.md").read_text()
GOOD_JOURNAL = {
    "point": 100.0,
    "reached": 120.0,
    "alarm": True,
    "cost": 0.5,
    "restart": 3.0,
    "saves": 4,
    "seconds": 200.0,
    "failures": [{"point": 10.0, "announced": True}],
    "false_alarms": 2,
    "starts": None,
    "closed": "",
    "time": 1.0,
}
DAMAGE = [None, "x", -1, 1e12, float("nan"), float("inf"), 10**400, [], [1, "x", {}], {}, True]


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("not even this")

    __repr__ = __str__


class Bare(BaseException):
    pass


def work(checkpoint):
    """The job: a result that depends on every step, and a poll after each."""
    result = 1
    for step in range(6):
        result = result * 31 + step
        checkpoint.poll()
        if step == 2:
            checkpoint.request()
        if step == 3 and checkpoint.due():
            checkpoint.saved(0.01)
    return result


class NoHook:
    """What the job would do without the hook."""

    def poll(self):
        return False

    def request(self):
        pass

    def due(self):
        return ""


EXPECTED = work(NoHook())


# ---- the directory


@pytest.mark.parametrize("obstacle", ["a file", "unwritable", "a dangling link"])
def test_the_example_of_the_page_runs_without_a_usable_directory(obstacle, tmp_path):
    example = PAGE.partition("```python\n")[2].partition("```")[0]
    place = tmp_path / "job"
    place.mkdir(mode=0o777)
    directory = place / "checkpoints"
    command = [sys.executable, "-c", example]
    if obstacle == "a file":
        directory.write_text("a result of another program")
    elif obstacle == "a dangling link":
        directory.symlink_to(tmp_path / "nowhere/at/all")
        (tmp_path / "nowhere").write_text("")
    else:
        directory.mkdir(mode=0o555)
        if os.getuid() == 0:
            command = as_nobody(command, tmp_path)
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "nothing can be saved in this directory" in done.stderr


def as_nobody(command, tmp_path):
    """Run the command as a user for whom permissions and limits count."""
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    for parent in [tmp_path, *tmp_path.parents][:-2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    # Another user may be unable to read the checkout.
    pyz = tmp_path / "condor_checkpoint.pyz"
    subprocess.run([sys.executable, ROOT / "tools/make_pyz.py", pyz], check=True)
    pyz.chmod(0o755)
    python = next(
        (p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(p).exists()), ""
    )
    if not python:
        pytest.skip("no Python that another user may run")
    switch = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    return [*switch, "env", f"PYTHONPATH={pyz}", python, *command[1:]]


def test_a_job_that_may_not_start_a_thread_runs_on(monkeypatch, capsys):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Checkpoint(lambda reason: None, interval=0.01) as checkpoint:
        assert work(checkpoint) == EXPECTED
    assert "cannot start the watching thread" in capsys.readouterr().err


def test_a_job_at_its_limit_of_processes_runs_on(tmp_path):
    program = """
import resource
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
from condor_checkpoint import Checkpoint
with Checkpoint(lambda reason: print("saved"), interval=0.05) as checkpoint:
    checkpoint.request()
    checkpoint.poll()
print("done")
"""
    command = [sys.executable, "-c", program]
    if os.getuid() == 0:
        command = as_nobody(command, tmp_path)
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "saved\ndone\n"), done.stderr


# ---- files


@pytest.mark.parametrize("key", [*GOOD_JOURNAL])
@pytest.mark.parametrize("value", DAMAGE, ids=lambda value: repr(value)[:12])
def test_a_journal_with_a_damaged_value_is_no_obstacle(key, value, tmp_path):
    (tmp_path / "journal.json").write_text(json.dumps({**GOOD_JOURNAL, key: value}))
    with Checkpoint(lambda reason: None, directory=str(tmp_path), interval=0) as checkpoint:
        assert work(checkpoint) == EXPECTED
        assert checkpoint.journal.false_alarms <= MOST_FALSE_ALARMS
        assert checkpoint.policy.name == "ours"  # the damage did not break the policy


@pytest.mark.parametrize("text", ["", "[]", "3", '"x"', "{", "[" * 100_000, "\0\xff", "{}"])
def test_a_journal_that_is_no_journal_is_no_obstacle(text, tmp_path):
    (tmp_path / "journal.json").write_text(text)
    assert Journal(str(tmp_path / "journal.json"), Job({})).point == 0.0


def test_what_is_good_in_a_damaged_journal_is_used(tmp_path):
    path = tmp_path / "journal.json"
    path.write_text(json.dumps({**GOOD_JOURNAL, "point": "x", "failures": [1, {"point": 5.0}]}))
    journal = Journal(str(path), Job({}))
    assert (journal.point, journal.cost, journal.saves) == (0.0, 0.5, 4)
    assert [failure["point"] for failure in journal.failures] == [5.0, 120.0]


def test_the_journal_can_be_read_by_people(tmp_path):
    with Checkpoint(lambda reason: None, directory=str(tmp_path), interval=0):
        pass
    lines = (tmp_path / "journal.json").read_text().splitlines()
    assert '  "closed": "done",' in lines
    for key in GOOD_JOURNAL:
        assert f"`{key}`" in PAGE


@pytest.mark.parametrize("kind", ["fifo", "directory", "device", "huge", "missing", "socket"])
def test_an_ad_that_is_no_regular_file_is_not_waited_for(kind, tmp_path):
    path = tmp_path / "ad"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(1 << 32)
    elif kind == "socket":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.close()
    begun = time.monotonic()
    assert read_ad(str(path)) == {}
    environ = {"_CONDOR_JOB_AD": str(path), "_CONDOR_CHIRP_CONFIG": str(path)}
    assert Job(environ).chirp({"ChirpX": 1}) is False
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/journal.json").symlink_to(path)
    Checkpoint(directory=str(tmp_path / "checkpoints"), model=str(path))
    assert time.monotonic() - begun < 5.0


def test_a_chirp_proxy_that_does_not_answer_costs_one_wait(tmp_path, monkeypatch):
    monkeypatch.setattr("condor_checkpoint.condor.CHIRP_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = tmp_path / "chirp"
        config.write_text(f"127.0.0.1 {server.getsockname()[1]} cookie")
        job = Job({"_CONDOR_CHIRP_CONFIG": str(config)})
        begun = time.monotonic()
        for _ in range(10):
            assert job.chirp({"ChirpX": 1}) is False
        assert time.monotonic() - begun < 1.0


# ---- settings and callbacks


@pytest.mark.parametrize(
    "settings",
    [
        {"policy": "nonsense"},
        {"policy": 7},
        {"period": "soon"},
        {"period": -1.0},
        {"mtbf": "long"},
        {"mtbf": 0.0},
        {"cost": float("nan")},
        {"interval": None},
        {"interval": -3},
        {"signals": signal.SIGTERM},
        {"signals": (signal.SIGKILL, 4000, "x")},
        {"exit_after": "85"},
        {"exit_after": 1e300},
        {"save_timeout": -1.0},
        {"save_timeout": "x"},
        {"directory": 3.5},
        {"directory": "\0"},
        {"model": 3},
        {"sampler": "x"},
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_named_and_replaced(settings, capsys):
    with Checkpoint(lambda reason: None, **settings) as checkpoint:
        assert work(checkpoint) == EXPECTED
    assert capsys.readouterr().err.startswith("condor_checkpoint: ")


ERRORS = [
    SystemExit(3),
    Bare("bare"),
    Unprintable(),
    GeneratorExit(),
    MemoryError(),
    RecursionError(),
    StopIteration(),
    asyncio.CancelledError(),
    OSError(28, "No space left on device"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_save_raises_is_a_failed_save(error, capsys):
    def save(reason):
        raise error

    with Checkpoint(save, period=0.0, interval=0) as checkpoint:
        assert work(checkpoint) == EXPECTED
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith(f"condor_checkpoint: the save (period) failed: {type(error).__name__}")


def test_an_exit_from_an_asynchronous_save_does_not_end_the_job(capsys):
    async def save(reason):
        await asyncio.sleep(0)
        raise SystemExit(3)

    async def main():
        async with AsyncCheckpoint(save, period=0.0, interval=0) as checkpoint:
            await checkpoint.apoll()
        return "done"

    assert asyncio.run(main()) == "done"
    assert "failed: SystemExit: 3" in capsys.readouterr().err


def test_cancelling_a_task_that_saves_still_cancels_it():
    async def main():
        async with AsyncCheckpoint(
            lambda reason: asyncio.sleep(60), period=0.0, interval=0
        ) as checkpoint:
            task = asyncio.ensure_future(checkpoint.apoll())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_ctrl_c_during_a_save_reaches_the_program():
    def save(reason):
        signal.raise_signal(signal.SIGINT)

    with (
        pytest.raises(KeyboardInterrupt),
        Checkpoint(save, period=0.0, interval=0) as checkpoint,
    ):
        checkpoint.poll()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_what_a_signal_handler_of_the_program_raises_reaches_the_program(number):
    def stop(signum, frame):
        raise SystemExit(9)

    def save(reason):
        with contextlib.suppress(Exception):
            os.kill(os.getpid(), number)
            time.sleep(1)

    old = signal.signal(number, stop)
    try:
        with (
            pytest.raises(SystemExit, match="9"),
            Checkpoint(save, period=0.0, interval=0) as checkpoint,
        ):
            checkpoint.poll()
    finally:
        signal.signal(number, old)


def test_a_save_that_is_also_a_signal_handler_may_fail():
    def save(*args):
        raise ValueError("no")

    old = signal.signal(signal.SIGUSR1, save)
    try:
        with Checkpoint(save, period=0.0, interval=0) as checkpoint:
            assert work(checkpoint) == EXPECTED
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_a_coroutine_where_none_is_awaited_is_a_failed_save(capsys):
    async def save(reason):
        raise AssertionError("never runs")

    with Checkpoint(save, period=0.0, interval=0) as checkpoint:
        assert not checkpoint.poll()
    assert "use AsyncCheckpoint" in capsys.readouterr().err


def test_samples_go_on_when_the_one_who_wants_them_fails(capsys):
    def on_sample(sample):
        raise Unprintable

    with Checkpoint(lambda reason: None, interval=0.01, on_sample=on_sample) as checkpoint:
        time.sleep(0.3)
        assert len(checkpoint.risk.samples) > 3
    assert capsys.readouterr().err.count("is not called again") == 1


# ---- everything at once

CASES = 10_000
# Every system call and file operation of the hook, by where it is looked up.
CALLS = [
    *((os, name) for name in ("open", "read", "fstat", "close", "listdir", "makedirs")),
    *((os, name) for name in ("replace", "remove", "fsync", "scandir", "statvfs", "access")),
    (os.path, "realpath"),
    (builtins, "open"),
    (json, "loads"),
    (json, "dumps"),
    (socket, "create_connection"),
    (signal, "signal"),
    (signal, "getsignal"),
    (signal, "setitimer"),
    (signal, "getitimer"),
    (threading.Thread, "start"),
    (threading.Thread, "join"),
    (hook_module.pkgutil, "get_data"),
]
CALL_FAULTS = [
    *((OSError, number, os.strerror(number)) for number in (2, 4, 5, 11, 13, 17, 24, 28, 30, 122)),
    (ValueError, "bad"),
    (RuntimeError, "can't start new thread"),
    (MemoryError,),
]
# Only the program's own code raises these.
CALLBACK_FAULTS = [*CALL_FAULTS, (Unprintable,), (SystemExit, 3), (Bare, "bare")]


class Chaos:
    """Faults drawn from one seed: in calls, in files, in callbacks."""

    def __init__(self, seed, directory):
        self.random = random.Random(seed)
        self.directory = directory
        self.share = self.random.choice([0.0, 0.02, 0.1, 0.5, 1.0])
        self.active = False

    def fault(self, faults=CALLBACK_FAULTS):
        if self.active and self.random.random() < self.share:
            kind, *words = self.random.choice(faults)
            raise kind(*words)

    def garbage(self):
        draw = self.random
        return draw.choice(
            [
                "",
                draw.choice(DAMAGE).__repr__(),
                json.dumps({**GOOD_JOURNAL, draw.choice([*GOOD_JOURNAL]): draw.choice(DAMAGE)}),
                f"Memory = {draw.choice(DAMAGE)!r}\nRequestDisk = {'9' * 500}\n",
                "SuccessCheckpointExitCode = 1e300\nAllowedJobDuration = -1\nTimeToLive = nan\n",
                "127.0.0.1 1 cookie",
                "".join(chr(draw.randrange(1, 256)) for _ in range(40)),
            ]
        )

    def save(self, reason):
        self.fault()

    def sample(self):
        draw = self.random
        value = draw.choice([None, 0.0, 1e9, -1.0, float("nan"), "x", float("inf")])
        return draw.choice([None, Sample(0.0, 0.0), Sample(1.0, 1.0, memory=value, end=value)])

    def settings(self):
        draw = self.random
        choices = {
            "directory": [None, self.directory, self.directory, "/proc/x"],
            "period": ["auto", 0.0, None, draw.choice(DAMAGE)],
            "policy": ["ours", "young", "either", ChaosPolicy(self), draw.choice(DAMAGE)],
            "interval": [0] * 30 + [0.001, draw.choice(DAMAGE)],
            "cost": [5.0, 0.0, draw.choice(DAMAGE)],
            "mtbf": [None, 1e5, draw.choice(DAMAGE)],
            "exit_after": [None, "auto"],
            "save_timeout": [None, 5.0, draw.choice(DAMAGE)],
            "model": [None] * 20 + ["auto", f"{self.directory}/ad"],
            "sampler": [None, ChaosSampler(self)],
            "on_sample": [None, lambda sample: self.fault()],
            "threaded": [False] * 9 + [True],
        }
        return {name: draw.choice(values) for name, values in choices.items()}

    def fill(self):
        for name in ("journal.json", "ad", "machine", "chirp"):
            Path(self.directory, name).write_text(self.garbage())
        return {
            "_CONDOR_JOB_AD": f"{self.directory}/ad",
            "_CONDOR_MACHINE_AD": f"{self.directory}/machine",
            "_CONDOR_CHIRP_CONFIG": f"{self.directory}/chirp",
            "_CONDOR_SCRATCH_DIR": self.directory,
        }


class ChaosPolicy(Policy):
    def __init__(self, chaos):
        self.chaos = chaos

    def decide(self, situation):
        self.chaos.fault()
        draw = self.chaos.random
        return draw.choice([None, Decision(0.0, "x"), Decision(float("nan"), ""), (1, 2, 3, 4), 7])

    def alarm_ended(self, came_true):
        self.chaos.fault()


class ChaosSampler(Sampler):
    def __init__(self, chaos):
        super().__init__(Job({}))
        self.chaos = chaos

    def take(self):
        self.chaos.fault()
        return self.chaos.sample()


@pytest.fixture
def in_memory():
    """A directory in memory where there is one: tens of thousands of renames wait for a disk."""
    memory = "/dev/shm"
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as directory:
        yield directory


def test_no_fault_changes_the_result_of_the_job(in_memory, monkeypatch):
    chaos = Chaos(0, in_memory)

    close = os.close

    def breaking(function):
        def call(*args, **kwargs):
            try:
                chaos.fault(CALL_FAULTS)
            except BaseException:
                if function is close:  # a close that reports an error has closed all the same
                    close(*args)
                raise
            return function(*args, **kwargs)

        return call

    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for owner, name in CALLS:
        monkeypatch.setattr(owner, name, breaking(getattr(owner, name)))
    for seed in range(CASES):
        chaos = Chaos(seed, in_memory)
        settings = chaos.settings()
        with monkeypatch.context() as patch:
            for name, value in chaos.fill().items():
                patch.setenv(name, value)
            chaos.active = True
            try:
                with Checkpoint(chaos.save, **settings) as checkpoint:
                    result = work(checkpoint)
            except BaseException as error:
                raise AssertionError(f"seed {seed}: {type(error).__name__}") from error
            finally:
                chaos.active = False
        assert result == EXPECTED, f"seed {seed}"
        checkpoint._restore_handlers()  # for cases in which the fault was in restoring them
        sys.stderr.seek(0)
        sys.stderr.truncate()
    assert signal.getsignal(signal.SIGTERM) is handler
