"""The `gather` and `status` commands, run as separate processes."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rotating_log import RotatingLog, held_event

from condor_advice.gather.store import Store, StoreUnreachable
from condor_advice.gather.watch import Watcher, is_remote

PATIENCE_SECONDS = 60.0


def advice(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "condor_advice", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def status(store: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(advice("status", "--json", "--store", store).stdout)
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def follow(store: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "condor_advice", "gather", "--follow"]
        command += ["--store", str(store), *map(str, arguments)]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_until_stored(store: Path, events: int) -> float:
    """Wait until the store has this many events; return how long that took."""
    start = time.monotonic()
    while (waited := time.monotonic() - start) < PATIENCE_SECONDS:
        # It is not there yet, or is being made at this moment.
        with suppress(StoreUnreachable), Store(store, readonly=True) as reading:
            if sum(reading.counts_by_type().values()) >= events:
                return waited
        time.sleep(0.02)
    raise AssertionError(f"{events} events were not stored in {PATIENCE_SECONDS} s")


def test_logs_of_every_form_are_gathered_and_their_holds_worked_out(
    event_log: Callable[[str], Path], store: Path
) -> None:
    logs = sorted(event_log("completed.log").parent.glob("*.log"))
    result = advice("gather", *logs, "--store", store)
    assert (result.returncode, result.stderr) == (0, "")
    with Store(store, readonly=True) as reading:
        holds = reading.counts_by_type()[12]
        assert reading.rows("SELECT count(*) FROM kept_episodes") == [(holds,)]


def test_each_wrong_file_is_named_and_the_others_are_read(tmp_path: Path, store: Path) -> None:
    good, prose = tmp_path / "good.log", tmp_path / "prose.txt"
    good.write_bytes(held_event(1) + held_event(2))
    prose.write_text("Dear all,\nthe pool is down.\n")
    result = advice("gather", prose, tmp_path, tmp_path / "none.log", good, "--store", store)
    assert result.returncode == 1
    assert result.stdout == f"{good}: 2 new events\n"
    errors = result.stderr.splitlines()
    assert len(errors) == 3
    assert errors[0].startswith(
        f"condor-advice: {prose}: no HTCondor job event in its first 28 bytes"
    )
    assert errors[1] == f"condor-advice: {tmp_path}: is a directory; name the event log itself"
    assert errors[2].startswith(f"condor-advice: {tmp_path / 'none.log'}: no such file;")
    found = status(store)
    assert (found["events"], found["events_by_type"]) == (2, {"012": 2})
    assert [log["log"] for log in found["logs"]] == [str(good)]


def test_a_failing_disk_stops_one_log_and_no_other(tmp_path: Path, store: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(held_event(1))
    failing = Path("/proc/self/mem")  # a regular file whose first bytes cannot be read
    result = advice("gather", failing, log, "--store", store)
    assert result.returncode == 1
    assert result.stdout == f"{log}: 1 new events\n"
    assert result.stderr == f"condor-advice: {failing}: cannot read the log: Input/output error\n"


def test_a_log_may_have_the_longest_possible_name(tmp_path: Path, store: Path) -> None:
    log = tmp_path / ("x" * 255)
    log.write_bytes(held_event(1))
    result = advice("gather", log, "--store", store)
    assert (result.returncode, result.stdout) == (0, f"{log}: 1 new events\n")


def test_a_name_that_is_not_utf8_stops_one_log_and_no_other(tmp_path: Path, store: Path) -> None:
    strange, log = os.fsencode(tmp_path) + b"/caf\xe9.log", tmp_path / "[b] log\n"
    for path in (strange, log):
        Path(os.fsdecode(path)).write_bytes(held_event(1))
    result = advice("gather", os.fsdecode(strange), log, "--store", store)
    assert result.returncode == 1
    # A line break in a name would forge a line.
    assert result.stdout == f"{tmp_path}/[b] log : 1 new events\n"
    assert "its name is not UTF-8, so the store cannot keep it; gather it" in result.stderr
    link = tmp_path / "link"
    link.symlink_to(os.fsdecode(strange))
    assert advice("gather", link, "--store", store).stdout == f"{link}: 1 new events\n"


def test_status_shows_a_store_by_its_name_whatever_that_is(tmp_path: Path) -> None:
    store = tmp_path / "[/b] [red]s"
    (tmp_path / "log").write_bytes(held_event(1))
    advice("gather", tmp_path / "log", "--store", store)
    assert advice("status", "--store", store).stdout.startswith(f"{store}: 1 events from 1 log(s)")


def test_a_log_without_permission_says_who_can_read_it(tmp_path: Path, store: Path) -> None:
    log = tmp_path / "EventLog"
    log.write_bytes(held_event(1))
    log.chmod(0)
    command = [sys.executable, "-m", "condor_advice", "gather", str(log), "--store", str(store)]
    if os.geteuid() == 0:
        # Root may read everything, unless it gives up that right.
        drop = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}", *command]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith(f"condor-advice: {log}: permission denied; run as a user who")


def test_naming_the_rotations_too_reads_nothing_twice(tmp_path: Path, store: Path) -> None:
    log = RotatingLog(tmp_path / "EventLog", header=False)
    for serial in range(3):
        log.write([held_event(serial)])
        log.rotate()
    named = sorted(tmp_path.glob("EventLog*"))
    assert len(named) == 4
    result = advice("gather", *named, "--store", store, "--json")
    assert result.returncode == 0, result.stderr
    expected = {"log": str(log.path), "events": 3, "gaps": [], "error": None}
    assert [json.loads(line) for line in result.stdout.splitlines()] == [expected]


def test_logs_that_only_look_like_rotations_can_be_read_as_they_are(
    tmp_path: Path, store: Path
) -> None:
    logs = [tmp_path / name for name in ("job.log", "job.log.1", "job.log.2")]
    for serial, log in enumerate(logs):
        log.write_bytes(held_event(serial))
    result = advice("gather", *logs, "--no-rotations", "--store", store)
    assert result.stdout.splitlines() == [f"{log}: 1 new events" for log in logs]


def test_status_shows_how_far_each_log_is_read_its_oddities_and_its_gaps(
    tmp_path: Path, store: Path
) -> None:
    log = RotatingLog(tmp_path / "EventLog", max_rotations=1)
    log.write([held_event(1)])
    assert advice("gather", log.path, "--store", store, "--access-point", "ap7").returncode == 0
    for serial in (2, 3, 4):
        log.rotate()
        log.write([held_event(serial)])
    log.write_part(b"what is this?\n")
    result = advice("gather", log.path, "--store", store, "--access-point", "ap7")
    assert "events are missing: the file that had been read to byte" in result.stderr
    log.write([held_event(5)])
    found = status(store)
    # Three holds were read, and the headers of three of the four files.
    assert found["events_by_type"] == {"008": 3, "012": 3}
    [one] = found["logs"]
    assert (one["access_point"], one["sequence"]) == ("ap7", 4)
    assert one["unread_bytes"] == len(held_event(5))
    assert (one["read_to"], one["size"]) == (log.size - len(held_event(5)), log.size)
    assert one["lag_seconds"] > 0
    [gap] = found["gaps"]
    assert (gap["after_sequence"], gap["before_sequence"], gap["events_lost"]) == (1, 3, 1)
    [oddity] = found["oddities"]
    assert (oddity["log"], oddity["excerpt"]) == (str(log.path), "what is this?")
    assert oddity["offset"] == one["read_to"] - len(b"what is this?\n")
    text = advice("status", "--store", store).stdout
    assert "6 events from 1 log(s)" in text
    assert f"{len(held_event(5))} bytes unread" in text
    assert "what is this?" in text
    assert "between files 1 and 3" in text


def test_without_a_store_status_says_how_to_make_one(tmp_path: Path) -> None:
    result = advice("status", "--store", tmp_path / "none.sqlite")
    assert result.returncode == 4
    assert "condor-advice gather LOG" in result.stderr


@pytest.mark.parametrize("damage", ["no JSON {", "[]", "{}", '{"reader": "[1, 2, 3, 4]"}'])
def test_a_damaged_cursor_is_reported(tmp_path: Path, store: Path, damage: str) -> None:
    (tmp_path / "job.log").write_bytes(held_event(1))
    assert advice("gather", tmp_path / "job.log", "--store", store).returncode == 0
    with sqlite3.connect(store) as db:
        db.execute("UPDATE logs SET state = ?", (damage,))
    result = advice("gather", tmp_path / "job.log", "--store", store)
    assert (result.returncode, "Traceback" in result.stderr) == (4, False)
    shown = advice("status", "--store", store)
    assert shown.returncode == 0, "other logs are shown"
    for text in (result.stderr, shown.stdout):
        said = " ".join(text.split())
        assert "its cursor in the store is damaged" in said
        assert "move the store away and gather the logs again" in said


@pytest.mark.parametrize("how", [[], ["--poll"]], ids=["inotify", "polling"])
def test_several_logs_are_followed_at_once_as_they_grow_rotate_and_appear(
    tmp_path: Path, store: Path, follow: Callable[..., subprocess.Popen[str]], how: list[str]
) -> None:
    logs = [RotatingLog(tmp_path / name, header=False) for name in ("a.log", "b.log")]
    late = tmp_path / "late.log"
    process = follow(*(log.path for log in logs), late, *how)
    serial = 0
    for _ in range(3):
        for log in logs:
            log.write([held_event(serial)])
            serial += 1
    wait_until_stored(store, serial)
    logs[0].rotate()
    logs[0].write([held_event(serial)])
    late.write_bytes(held_event(serial + 1))
    serial += 2
    wait_until_stored(store, serial)
    # What is not yet in the store's own file counts as well.
    assert status(store)["store_bytes"] > os.path.getsize(store)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert errors == (
        f"condor-advice: {late}: no such file; check the name, or wait until HTCondor writes it\n"
    )
    assert output.splitlines() == [
        f"{logs[0].path}: 4 new events",
        f"{logs[1].path}: 3 new events",
        f"{late}: 1 new events",
    ]
    assert status(store)["gaps"] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_following_after_the_current_transaction(
    tmp_path: Path,
    store: Path,
    follow: Callable[..., subprocess.Popen[str]],
    number: signal.Signals,
) -> None:
    log = tmp_path / "EventLog"
    log.write_bytes(b"".join(map(held_event, range(20))))
    process = follow(log)
    wait_until_stored(store, 20)
    start = time.monotonic()
    process.send_signal(number)
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert time.monotonic() - start < 5
    assert (process.returncode, output, errors) == (0, f"{log}: 20 new events\n", "")


def test_more_logs_can_be_followed_than_files_can_be_open(
    tmp_path: Path, store: Path, follow: Callable[..., subprocess.Popen[str]]
) -> None:
    logs = [tmp_path / f"{number}.log" for number in range(100)]
    for log in logs:
        log.write_bytes(held_event(1))
    process = follow(*logs)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (64, 64))  # before it looks at any
    wait_until_stored(store, len(logs))
    for log in logs:
        with log.open("ab") as file:
            file.write(held_event(2))
    wait_until_stored(store, 2 * len(logs))
    process.terminate()
    assert process.communicate()[1] == ""
    assert process.returncode == 0


def test_an_idle_follower_uses_nearly_no_cpu(
    tmp_path: Path, store: Path, follow: Callable[..., subprocess.Popen[str]]
) -> None:
    log = tmp_path / "EventLog"
    log.write_bytes(held_event(1))
    process = follow(log)
    wait_until_stored(store, 1)
    time.sleep(1.0)
    before = cpu_seconds(process.pid)
    time.sleep(6.0)  # the safety net looks once in this time
    assert cpu_seconds(process.pid) - before < 0.06  # one percent


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_second_writer_is_told_who_holds_the_store(
    tmp_path: Path, store: Path, follow: Callable[..., subprocess.Popen[str]]
) -> None:
    log = tmp_path / "EventLog"
    log.write_bytes(held_event(1))
    process = follow(log)
    wait_until_stored(store, 1)
    result = advice("gather", log, "--store", store)
    assert result.returncode == 4
    assert f"process {process.pid} on " in result.stderr
    assert status(store)["events"] == 1, "readers are not kept out"


def test_a_progress_bar_is_for_terminals_only(tmp_path: Path, store: Path) -> None:
    log = tmp_path / "EventLog"
    log.write_bytes(b"".join(held_event(n, padding=300) for n in range(7000)))
    assert log.stat().st_size > 20 << 20
    piped = advice("gather", log, "--store", tmp_path / "other.sqlite")
    assert (piped.returncode, piped.stderr) == (0, "")
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "condor_advice", "gather", str(log), "--store", str(store)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(controller, 65536):
            shown += chunk
    except OSError:
        pass  # how a terminal says that nobody is left on the other side
    output, _ = process.communicate()
    os.close(controller)
    assert (process.returncode, output) == (0, f"{log}: 7,000 new events\n".encode())
    assert b"reading" in shown
    assert b"100%" in shown or b"MB" in shown


def test_remote_file_systems_are_polled() -> None:
    mounts = ["/dev/vda1 / ext4 rw 0 0", "server:/home /home nfs4 rw 0 0", "x /mnt/a\\040b cifs"]
    assert is_remote("/home/alice/job.log", mounts)
    assert is_remote("/mnt/a b/job.log", mounts)
    assert not is_remote("/homework/job.log", mounts)


def test_the_watcher_works_where_more_than_a_thousand_files_are_open(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("this account may not open as many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    log = tmp_path / "EventLog"
    log.touch()
    opened = [os.open(log, os.O_RDONLY) for _ in range(1100)]
    try:
        with Watcher([str(log)]) as watcher:
            watcher.wait(0)
            log.write_bytes(b"x")
            watcher.wait()
            watcher.wake()
            watcher.wait()
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_watcher_returns_at_once_when_a_log_grows_or_is_replaced(tmp_path: Path) -> None:
    log = tmp_path / "EventLog"
    log.touch()
    with Watcher([str(log)]) as watcher:
        if watcher.polling:
            pytest.skip("this machine has no inotify")
        watcher.wait(0)
        for change in (lambda: log.write_bytes(b"x"), lambda: log.rename(tmp_path / "EventLog.1")):
            change()
            start = time.monotonic()
            watcher.wait()
            assert time.monotonic() - start < 2
            watcher.wait(0)
        start = time.monotonic()
        (tmp_path / "unrelated").touch()
        watcher.wait(0.7)
        assert time.monotonic() - start > 0.6
