"""Any program, wrapped: signals, streams and status pass through, and saves are made."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WRAPPER = [sys.executable, "-m", "condor_checkpoint"]


def run(*words, timeout=30, **settings):
    return subprocess.run(
        [*WRAPPER, *words], capture_output=True, text=True, timeout=timeout, check=False, **settings
    )


def shell(script, *options, **settings):
    return run("run", *options, "--interval", "0.2", "--", "sh", "-c", script, **settings)


@pytest.mark.parametrize("status", [0, 1, 7, 85, 255])
def test_the_exit_status_passes_through(status):
    assert shell(f"exit {status}", "--signal", "USR1").returncode == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_death_by_a_signal_passes_through(number):
    assert shell(f"kill -{int(number)} $$", "--signal", "USR1").returncode == -number


def test_streams_pass_through_byte_for_byte():
    data = bytes(range(256)) * 1000
    done = subprocess.run(
        [*WRAPPER, "run", "--signal", "USR1", "--", "sh", "-c", "cat; echo error >&2"],
        input=data,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == data
    assert done.stderr == b"error\n"


def test_a_program_that_is_not_there_is_named_as_a_shell_would():
    done = run("run", "--signal", "USR1", "--", "/nonexistent")
    assert done.returncode == 127
    assert "/nonexistent: No such file or directory" in done.stderr


def test_wrong_usage_is_status_2():
    assert run("run", "--signal", "USR1").returncode == 2
    assert run("run", "--", "true").returncode == 2
    assert run("run", "--signal", "NOPE", "--", "true").returncode == 2


def test_the_save_signal_arrives_by_the_period():
    script = "trap 'echo saved' USR1; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; done"
    done = shell(script, "--signal", "USR1", "--period", "1")
    assert 1 <= done.stdout.count("saved") <= 4


def test_the_save_command_runs_with_the_reason_and_the_process(tmp_path):
    done = shell(
        "sleep 2.5",
        "--command",
        f'echo "$CONDOR_CHECKPOINT_REASON $CONDOR_CHECKPOINT_PID" >> {tmp_path}/saves',
        "--period",
        "1",
    )
    assert done.returncode == 0
    reason, pid = (tmp_path / "saves").read_text().splitlines()[0].split()
    assert reason == "period"
    assert pid.isdigit()


def test_a_command_that_fails_is_one_line_and_the_program_goes_on():
    done = shell("sleep 2.5; echo end", "--command", "exit 3", "--period", "1")
    assert done.stdout == "end\n"
    assert done.returncode == 0
    assert "the save (period) failed: SaveFailed: exit 3: exit status 3" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_command_that_hangs_is_ended_with_all_its_processes(tmp_path):
    begun = time.monotonic()
    done = shell(
        "sleep 2.5; echo end",
        "--command",
        f"sleep 1000 & echo $! > {tmp_path}/pid; wait",
        "--period",
        "1",
        "--save-timeout",
        "0.5",
    )
    assert done.stdout == "end\n"
    assert time.monotonic() - begun < 15
    assert "not done after 0.5 s" in done.stderr
    status = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    # Gone, or a zombie where nobody collects orphans.
    assert not status.exists() or status.read_text().split()[2] == "Z"


def test_sigterm_saves_first_and_is_then_passed_on(tmp_path):
    script = (
        "trap 'echo saved; touch state' USR1; trap 'echo ended; exit 3' TERM; "
        "echo ready; while :; do sleep 0.1; done"
    )
    with subprocess.Popen(
        [*WRAPPER, "run", "--signal", "USR1", "--wait-for", "state", "--", "sh", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "saved\nended\n"
    assert process.returncode == 3


def test_other_signals_are_passed_on():
    script = "trap 'echo got; exit 4' USR2; echo ready; while :; do sleep 0.1; done"
    with subprocess.Popen(
        [*WRAPPER, "run", "--signal", "USR1", "--", "sh", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGUSR2)
        assert process.stdout.read() == "got\n"
    assert process.returncode == 4


def test_exit_after_ends_the_program_with_the_code():
    done = shell("exec sleep 60", "--command", "true", "--period", "1", "--exit-after", "85")
    assert done.returncode == 85


def test_the_program_has_no_signal_blocked():
    done = shell("grep SigBlk /proc/self/status", "--signal", "USR1")
    assert int(done.stdout.split()[1], 16) == 0


def test_a_recording_is_samples_and_an_end(tmp_path):
    out = tmp_path / "usage.jsonl"
    done = run(
        "record", "--interval", "0.1", "--out", str(out), "--", "sh", "-c", "sleep 1; exit 5"
    )
    assert done.returncode == 5
    *samples, end = map(json.loads, out.read_text().splitlines())
    assert len(samples) >= 5
    assert all(sample["memory"] > 0 for sample in samples)
    assert end["exit"] == 5


def test_a_recording_that_cannot_be_written_does_not_stop_the_program():
    done = run("record", "--out", "/nonexistent/x", "--", "echo", "hello")
    assert done.stdout == "hello\n"
    assert done.returncode == 0
    assert "the program runs on without saves" in done.stderr


def test_one_sample_can_be_looked_at():
    done = run("sample")
    assert json.loads(done.stdout)["memory"] > 0


LISTENER = """
import signal, sys, time
signal.signal(signal.SIG{name}, lambda *_: (print("got", flush=True), sys.exit(4)))
print("ready", flush=True)
time.sleep(60)
"""


def wrapped(program, *options, **settings):
    words = ["run", *options, "--interval", "0.2", "--", sys.executable, "-c", program]
    return subprocess.Popen([*WRAPPER, *words], stdout=subprocess.PIPE, text=True, **settings)


@pytest.mark.parametrize("name", ["XCPU", "VTALRM", "PROF", "PWR", "TSTP", "IO", "RTMIN"])
def test_signals_of_limits_timers_power_and_terminals_are_passed_on(name):
    with wrapped(LISTENER.format(name=name), "--signal", "USR1") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert process.stdout.read() == "got\n"
    assert process.returncode == 4


def test_a_program_that_is_stopped_goes_on_upon_sigcont():
    program = "import time\nprint('ready', flush=True)\ntime.sleep(1)\nprint('end')"
    with wrapped(program, "--signal", "USR1") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTSTP)
        time.sleep(1.5)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.read() == "end\n"
    assert process.returncode == 0


def test_a_save_does_not_hold_up_other_signals(tmp_path):
    command = f"touch {tmp_path}/saving; sleep 3"
    begun = time.monotonic()
    with wrapped(LISTENER.format(name="USR2"), "--command", command, "--period", "0") as process:
        assert process.stdout.readline() == "ready\n"
        while not (tmp_path / "saving").exists():
            assert time.monotonic() - begun < 10.0
            time.sleep(0.05)
        begun = time.monotonic()
        process.send_signal(signal.SIGUSR2)
        assert process.stdout.readline() == "got\n"
        assert time.monotonic() - begun < 2.0
    assert process.returncode == 4


@pytest.mark.parametrize("saving", [False, True])
def test_a_wrapper_that_is_killed_leaves_no_child_behind(saving, tmp_path):
    program = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    command = f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 60"
    period = "0" if saving else "1000"
    with wrapped(program, "--command", command, "--period", period) as process:
        pids = [int(process.stdout.readline())]
        until = time.monotonic() + 10
        while saving and len(pids) < 2 and time.monotonic() < until:
            if (tmp_path / "pid").exists():
                pids.append(int((tmp_path / "pid").read_text()))
            time.sleep(0.05)
        process.kill()
    assert len(pids) == 1 + saving
    for pid in pids:
        status = Path(f"/proc/{pid}/stat")
        until = time.monotonic() + 5
        while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < until, f"process {pid} is still there"
            time.sleep(0.05)


COPY = 'cp -r work "$CONDOR_CHECKPOINT_PATH"'
RESTORE = 'rm -rf work && cp -r "$CONDOR_CHECKPOINT_PATH" work'
COUNT = "mkdir -p work; n=$(cat work/n 2>/dev/null || echo 0); echo at $n; "
COUNT += (
    "while [ $n -lt {n} ]; do sleep 0.1; n=$((n + 1)); echo $n > work/m; mv work/m work/n; done"
)


def test_what_a_command_writes_becomes_a_numbered_checkpoint_and_is_restored(tmp_path):
    directory = ["--directory", "checkpoints"]
    options = [*directory, "--command", COPY, "--restore", RESTORE, "--period", "1"]
    done = shell(COUNT.format(n=55), *options, cwd=tmp_path)
    assert done.stdout == "at 0\n"
    kept = sorted(path.name for path in (tmp_path / "checkpoints").glob("checkpoint-*"))
    assert len(kept) == 2
    assert kept[0] > "checkpoint-000001"  # so the third save did not nest into the first
    saved = int((tmp_path / "checkpoints" / kept[-1] / "n").read_text())
    (tmp_path / "work/n").write_text("999")  # what is in the scratch directory does not count
    done = shell(COUNT.format(n=60), *options, cwd=tmp_path)
    assert done.stdout == f"at {saved}\n"


def test_a_command_that_fails_halfway_leaves_the_checkpoint_before_it(tmp_path):
    checkpoint = tmp_path / "checkpoints/checkpoint-000007"
    checkpoint.mkdir(parents=True)
    (checkpoint / "n").write_text("7")
    half = 'mkdir "$CONDOR_CHECKPOINT_PATH"; echo half > "$CONDOR_CHECKPOINT_PATH/n"; exit 1'
    options = ["--directory", "checkpoints", "--command", half, "--period", "1"]
    shell("sleep 2.5", *options, cwd=tmp_path)
    assert (checkpoint / "n").read_text() == "7"
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["checkpoint-000007", "journal.json"]


def test_a_checkpoint_that_cannot_be_restored_is_named_and_the_one_before_is_used(tmp_path):
    for number in (1, 2):
        path = tmp_path / f"checkpoints/checkpoint-00000{number}"
        path.mkdir(parents=True)
        (path / "n").write_text(str(number))
    restore = 'test "$(cat "$CONDOR_CHECKPOINT_PATH/n")" = 1 && ' + RESTORE
    options = ["--directory", "checkpoints", "--command", COPY, "--restore", restore]
    done = shell(COUNT.format(n=3), *options, cwd=tmp_path)
    assert done.stdout == "at 1\n"
    assert "checkpoint-000002: cannot be read" in done.stderr


def test_the_directories_of_checkpoints_exist_before_the_first_save(tmp_path):
    # Otherwise HTCondor holds a job that ends before its first save: it cannot transfer them.
    done = shell(
        "ls -d a b/c",
        "--signal",
        "USR1",
        "--directory",
        "a",
        "--wait-for",
        "b/c/state",
        cwd=tmp_path,
    )
    assert done.stdout == "a\nb/c\n"


def test_the_program_and_its_children_stand_still_while_the_command_runs(tmp_path):
    states = "ps -o stat= --pid $CONDOR_CHECKPOINT_PID --ppid $CONDOR_CHECKPOINT_PID"
    done = shell(
        "sleep 2; sleep 1; echo end",
        *("--pause", "--period", "1", "--command", f"{states} >> {tmp_path}/states"),
    )
    assert (done.returncode, done.stdout) == (0, "end\n")
    assert {state[0] for state in (tmp_path / "states").read_text().split()} == {"T"}
