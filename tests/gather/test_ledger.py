"""The ledger of advice and actions, kept so that both can be explained and judged later."""

from __future__ import annotations

import inspect
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from condor_advice.gather import store as store_module
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.ledger import (
    Action,
    Effect,
    GivenAdvice,
    Ledger,
    LedgerUnusable,
    Result,
    ledger_path,
    own_ledger_path,
    past_actions,
    record_advice,
)
from condor_advice.gather.store import Store

ADVICE = GivenAdvice(
    at=1000.5, access_point="ap1", cluster=12, proc=3, hold_number=1, held_at=900.0,
    verdict="RELEASE", p_success=0.8, source="rules", model=None,
    template="file server trouble", owner="alice", code=13, subcode=256,
)  # fmt: skip
ACTION = Action(ADVICE, 1001.0, "release", "condor_release 12.3", "b1", True, 4.5, "/u/a.log")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "CONDOR_ADVICE_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_same_answer_about_the_same_hold_is_one_row_with_a_count(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.advise([ADVICE])
        ledger.advise([replace(ADVICE, at=1100.0, p_success=0.6)])
        ledger.advise([replace(ADVICE, at=1200.0, verdict="FIX")])
        ledger.advise([replace(ADVICE, at=1300.0, held_at=1250.0, hold_number=2)])
        first, changed, next_hold = ledger.given()
    assert (first.at, first.p_success) == (1000.5, 0.6)
    assert changed.verdict == "FIX"
    assert next_hold.hold_number == 2
    db = sqlite3.connect(tmp_path / "ledger")
    assert db.execute("SELECT given, last_at FROM advice ORDER BY id").fetchall() == [
        (2, 1100.0), (1, 1200.0), (1, 1300.0),
    ]  # fmt: skip


def test_recording_advice_keeps_the_store_safe_in_a_power_cut(
    tmp_path: Path,
) -> None:
    Store(tmp_path / "store").close()
    with Ledger(tmp_path / "store") as ledger:
        ledger.advise([ADVICE])
        [synchronous] = ledger._db.execute("PRAGMA synchronous").fetchone()
    assert synchronous >= 1, "at 0 SQLite would take pages for written that are not"


def test_an_action_is_written_before_it_happens_and_completed_after(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        [begun] = ledger.begin([ACTION])
        with Ledger(tmp_path / "ledger", readonly=True) as reader:
            [seen] = reader.actions()
        assert seen == begun
        assert (seen.result, seen.effect) == (Result.INTENDED, Effect.WAITING)
        done = replace(
            begun, result=Result.DONE, message="ok", effect=Effect.HELD_AGAIN, effect_at=1500.0
        )
        ledger.finish([done])
        assert ledger.actions() == [done]
        assert ledger.actions(since=1002.0) == []
    assert done.advice.job.cluster == 12


def test_since_and_until_limit_what_is_read(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.advise([replace(ADVICE, cluster=n, at=float(n)) for n in range(10)])
        assert [one.cluster for one in ledger.given(since=3, until=6)] == [3, 4, 5]


def test_the_ledger_is_kept_in_a_writable_store_and_the_store_still_works(
    tmp_path: Path, home: Path
) -> None:
    store = tmp_path / "store.sqlite"
    assert ledger_path(store) == own_ledger_path()
    Store(store).close()
    assert ledger_path(store) == store
    record_advice([ADVICE], store)
    with Store(store, readonly=True) as again:
        assert again.counts_by_type() == {}
    with Ledger(store, readonly=True) as ledger:
        [given] = ledger.given()
    assert replace(given, id=None) == ADVICE
    assert not own_ledger_path().exists()


def test_the_collector_and_advice_do_not_lock_each_other_out(tmp_path: Path) -> None:
    """A collector holds the store's writer lock for days; the ledger does not need it."""
    path = tmp_path / "store.sqlite"
    with Store(path):
        record_advice([ADVICE], path)
    with Ledger(path, readonly=True) as ledger:
        assert len(ledger.given()) == 1


def test_advice_neither_fails_nor_waits_because_of_the_ledger(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    Store(store).close()
    record_advice([ADVICE], store)
    busy = sqlite3.connect(store, isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    record_advice([replace(ADVICE, cluster=99)], store)
    assert time.monotonic() - began < 1.0
    busy.execute("ROLLBACK")
    busy.close()
    own = own_ledger_path()
    own.parent.mkdir(parents=True)
    own.write_bytes(b"this is no SQLite file, it is much rather a poem" * 40)
    record_advice([ADVICE], tmp_path / "nowhere.sqlite")


def test_no_action_is_begun_that_cannot_be_recorded(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"this is no SQLite file, it is much rather a poem" * 40)
    with pytest.raises(
        LedgerUnusable, match="ledger of actions is damaged.*move it away"
    ) as caught:
        Ledger(path)
    assert caught.value.exit_status == 4
    with Ledger(tmp_path / "new") as ledger:
        ledger._db.execute("UPDATE ledger_schema SET version = 99")
    with pytest.raises(AdviceError, match="newer condor-advice"):
        Ledger(tmp_path / "new")


def test_a_link_to_a_ledger_in_a_directory_open_to_all_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "ledger").symlink_to(target)
    with pytest.raises(LedgerUnusable, match="symbolic link in a directory that others .*chmod"):
        Ledger(shared / "ledger")
    assert not target.exists()


def test_a_users_own_ledger_is_private(home: Path) -> None:
    record_advice([ADVICE])
    assert own_ledger_path().is_relative_to(home)
    assert os.stat(own_ledger_path()).st_mode & 0o077 == 0


def test_a_store_in_somebody_elses_directory_is_read_whether_or_not_anybody_writes(
    tmp_path: Path,
) -> None:
    """Root can write anywhere, so another user opens the file as the code does."""
    directory = tmp_path / "shared"
    directory.mkdir()
    path = directory / "store.sqlite"
    Store(path).close()
    record_advice([ADVICE], path)
    path.chmod(0o444)
    directory.chmod(0o555)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    reader = inspect.getsource(store_module.open_readonly)
    code = (
        "import sqlite3\nfrom pathlib import Path\n"
        f"{reader}\n"
        f"db = open_readonly(Path({str(path)!r}), 1.0)\n"
        "print(db.execute('SELECT count(*) FROM advice').fetchone()[0])\n"
    )
    python = shutil.which("python3", path="/usr/bin:/bin")
    if os.geteuid() == 0 and python:
        for above in [directory, *directory.parents]:
            if above.stat().st_uid == 0 and above != Path("/"):
                above.chmod(above.stat().st_mode | 0o055)
        command = [*nobody, python, "-c", f"from __future__ import annotations\n{code}"]
    else:
        command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_actions_are_found_wherever_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store.sqlite"
    monkeypatch.setenv("CONDOR_ADVICE_STORE", str(store))
    with Ledger(own_ledger_path()) as own:
        own.begin([ACTION])
    Store(store).close()
    assert [path for path, _ in past_actions()] == [own_ledger_path()]
    with Ledger(ledger_path()) as shared:
        shared.begin([replace(ACTION, at=500.0)])
    assert [path for path, _ in past_actions()] == [store, own_ledger_path()]


def test_other_peoples_actions_are_shown_only_to_those_who_name_their_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store.sqlite"
    monkeypatch.setenv("CONDOR_ADVICE_STORE", str(store))
    Store(store).close()
    with Ledger(store) as theirs:
        theirs.begin([ACTION])
    with Ledger(own_ledger_path()) as own:
        own.begin([replace(ACTION, at=2000.0)])
    may_write = os.access
    monkeypatch.setattr(
        os, "access",
        lambda path, mode: may_write(path, mode) and not (mode == os.W_OK and path == store),
    )  # fmt: skip
    assert [path for path, _ in past_actions()] == [own_ledger_path()]
    assert [path for path, _ in past_actions(store)] == [store, own_ledger_path()]


def test_many_processes_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    code = (
        "import sys; from dataclasses import replace\n"
        "from condor_advice.gather.ledger import *\n"
        "given = GivenAdvice(1., 'ap', 1, 0, 1, 1., 'FIX', .1, 'rules', None, 't', 'o')\n"
        "for n in range(25):\n"
        "    with Ledger(sys.argv[1]) as ledger:\n"
        "        ledger.begin([Action(replace(given, cluster=int(sys.argv[2]), proc=n), 1.,"
        " 'release', 'c', 'b')])\n"
    )
    path = tmp_path / "ledger"
    argv = [sys.executable, "-c", code, str(path)]
    children = [subprocess.Popen([*argv, str(n)]) for n in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    with Ledger(path, readonly=True) as ledger:
        assert len({(a.advice.cluster, a.advice.proc) for a in ledger.actions()}) == 75


def test_a_killed_writer_leaves_whole_transactions(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path) as ledger:
        ledger.begin([ACTION])
    code = (
        "import os, sys; from condor_advice.gather.ledger import *\n"
        "ledger = Ledger(sys.argv[1])\n"
        "ledger._db.execute('BEGIN IMMEDIATE')\n"
        "ledger._db.execute(\"UPDATE actions SET result = 'done'\")\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == -9
    with Ledger(path) as ledger:
        assert [a.result for a in ledger.actions()] == [Result.INTENDED]
        ledger.begin([ACTION])


def test_threads_that_read_while_one_writes_see_no_error(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path) as ledger:
        ledger.begin([ACTION])
    stop = threading.Event()
    errors: list[Exception] = []

    def read() -> None:
        while not stop.is_set():
            try:
                with Ledger(path, readonly=True) as reader:
                    reader.actions()
            except AdviceError as error:
                errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    with Ledger(path) as ledger:
        for n in range(30):
            ledger.begin([replace(ACTION, at=float(n))])
    stop.set()
    thread.join()
    assert errors == []
