from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from condor_advice.gather import store as store_module
from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.reader import EventColumns, ReaderState, read_block
from condor_advice.gather.sequences import job_sequence
from condor_advice.gather.store import (
    Cursor,
    Gap,
    Store,
    StoreBusy,
    StoreDamaged,
    StoreUnreachable,
    default_store_path,
)

CURSOR = Cursor("/log", "ap1", 1, 2, b"head", 4, 0, b"tail", "{}", None, 1.0)


def blocks(log: bytes, size: int) -> list[EventColumns]:
    state, clock = ReaderState(year=2026), Clock(find_zone("UTC"))
    found, offset = [], 0
    while offset < len(log):
        end = offset + size
        while True:
            final = end >= len(log)
            columns, used = read_block(
                log[offset:end], state, base=offset, clock=clock, final=final
            )
            if used or final:
                break
            end += size
        found.append(columns)
        offset += used
    return found


def fill(path: Path, log: bytes, size: int, name: str = "/log") -> None:
    with Store(path) as store:
        offset = 0
        for columns in blocks(log, size):
            offset += len(columns.data)
            store.append(columns, replace(CURSOR, log=name, offset=offset))


@pytest.fixture
def log(event_log) -> bytes:
    return b"".join(
        path.read_bytes() for path in sorted(event_log("completed.log").parent.glob("*.log"))
    )


@pytest.mark.parametrize("size", [700, 20_000, 10_000_000])
def test_the_store_gives_back_the_log_byte_for_byte(tmp_path, log, size):
    fill(tmp_path / "s", log, size)
    with Store(tmp_path / "s", readonly=True) as store:
        assert b"".join(store.log_text("/log")) == log
        [whole] = blocks(log, len(log))
        assert store.counts_by_type() == whole.counts_by_type()
        stored = [e for piece in store.pieces() for e in piece.columns.events("ap1")]
        assert stored == list(whole.events("ap1"))
        assert store.cursor("/log").offset == len(log)


def test_small_pieces_are_merged_and_jobs_are_still_found(tmp_path, event_log):
    log = event_log("released_and_succeeded.log").read_bytes()
    fill(tmp_path / "s", log, 400)
    with Store(tmp_path / "s", readonly=True) as store:
        assert len(list(store.pieces())) == 1
        [whole] = blocks(log, len(log))
        cluster, proc = int(whole.cluster[0]), int(whole.proc[0])
        sequence = job_sequence(store, cluster, proc)
        expected = [e for e in whole.events("ap1") if e.job.proc == proc]
        assert list(sequence.events) == expected
        assert job_sequence(store, cluster + 999, 0) is None
        [piece] = store.job_pieces(cluster)
        assert len(piece.columns) == len(whole)


def test_a_cluster_is_found_with_its_cluster_events(tmp_path):
    event = (
        b"%03d (%s.000) 2026-11-16 02:01:42 Cluster or job\n" + b"\t" + b"x" * 300_000 + b"\n...\n"
    )
    log = b"".join(
        event % (kind, job.encode())
        for kind, job in ((35, "7.-01"), (0, "7.000"), (0, "6.000"), (36, "7.-01"))
    )
    fill(tmp_path / "s", log, len(log) // 4)
    with Store(tmp_path / "s", readonly=True) as store:
        kinds = {n: [k for p in store.job_pieces(n) for k in p.columns.type] for n in (6, 7, 8)}
    assert kinds == {6: [0], 7: [35, 0, 36], 8: []}


def test_events_oddities_gaps_and_cursor_commit_together_or_not_at_all(tmp_path, log, monkeypatch):
    first, second = blocks(log, len(log) // 2)[:2]
    gap = Gap("/log", 1.0, "a rotation was missed", 10, 2, 3, 5)
    with Store(tmp_path / "s") as store:
        store.append(first, replace(CURSOR, offset=len(first.data)))
        before = store.counts_by_type()

        def fail(*_: object) -> None:
            raise RuntimeError("the process dies here")

        monkeypatch.setattr(Store, "_save_oddities", fail)
        with pytest.raises(RuntimeError):
            store.append(second, replace(CURSOR, offset=len(log)), [gap])
        monkeypatch.undo()
        assert store.counts_by_type() == before
        assert store.gaps() == []
        assert store.cursor("/log").offset == len(first.data)
        store.append(second, replace(CURSOR, offset=len(log)), [gap])
        assert store.gaps() == [gap]


def test_a_full_disk_is_reported_clearly_and_loses_nothing(tmp_path, log):
    first, second = blocks(log, len(log) // 2)[:2]
    with Store(tmp_path / "s") as store:
        store.append(first, replace(CURSOR, offset=len(first.data)))
        [pages] = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(AdviceError, match="disk is full; nothing was lost"):
            for _ in range(50):
                store.append(second, replace(CURSOR, offset=len(log)))
    with Store(tmp_path / "s", readonly=True) as store:
        offset = store.cursor("/log").offset
        assert offset in (len(first.data), len(log))
        assert b"".join(store.log_text("/log"))[: len(first.data)] == first.data


@pytest.mark.parametrize("limit_bytes", [10_000, 60_000, 140_000])
def test_a_quota_is_reported_clearly_whenever_it_is_reached(tmp_path, event_log, limit_bytes):
    """A file size limit acts like a quota, at the first table or later."""
    arguments = [event_log("global_json.log"), "--store", tmp_path / "s"]
    command = [sys.executable, "-m", "condor_advice", "gather", *arguments]
    limited = subprocess.run(
        ["prlimit", f"--fsize={limit_bytes}", *command], capture_output=True, text=True
    )
    assert limited.returncode == 4
    assert re.search(
        r"s: cannot read or write the store .*disk I/O error.*quota.*run the same", limited.stderr
    )
    assert "Traceback" not in limited.stderr
    again = subprocess.run(command, capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (0, "")
    with Store(tmp_path / "s", readonly=True) as store:
        whole = event_log("global_json.log").read_bytes()
        assert b"".join(store.log_text(str(arguments[0]))) == whole


def test_a_disk_without_room_for_the_lock_does_not_keep_a_writer_out(tmp_path, log, monkeypatch):
    full = os.open("/dev/full", os.O_RDWR)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: write(full, data, offset))
    fill(tmp_path / "s", log, len(log))
    os.close(full)
    assert (tmp_path / "s.lock").read_bytes() == b""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"this is no database, but it is long enough to be looked at by SQLite" * 20, "damaged"),
        (b"SQLite format 3\0" + os.urandom(4000), "damaged"),
    ],
)
def test_a_damaged_store_is_refused_with_what_to_do(tmp_path, content, message):
    (tmp_path / "s").write_bytes(content)
    for readonly in (False, True):
        with pytest.raises(StoreDamaged, match=f"s: .*{message}.*move it away") as caught:
            Store(tmp_path / "s", readonly=readonly)
        assert caught.value.exit_status == 4
    assert (tmp_path / "s").read_bytes() == content


def test_a_damaged_piece_is_refused_and_never_returned_as_a_log(tmp_path, log):
    """SQLite does not check values; our checksum detects a bit flipped by the disk."""
    fill(tmp_path / "s", log, len(log))
    with Store(tmp_path / "s", readonly=True) as store:
        [(text,)] = store.rows("SELECT text FROM pieces")
    whole = (tmp_path / "s").read_bytes()
    page = whole.find(text[-1000:-500])  # a large value lies on many pages, each in one place
    for at in range(page, page + 500, 50):
        damaged = bytearray(whole)
        damaged[at] ^= 16
        (tmp_path / "s").write_bytes(damaged)
        with (
            Store(tmp_path / "s") as store,
            pytest.raises(StoreDamaged, match="s: .*damaged.*move it away"),
        ):
            list(store.log_text("/log"))


def test_another_programs_database_is_not_touched(tmp_path):
    with sqlite3.connect(tmp_path / "s") as db:
        db.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreDamaged, match="not a condor-advice store"):
        Store(tmp_path / "s")


def test_a_store_of_a_newer_version_is_refused(tmp_path, log):
    fill(tmp_path / "s", log, len(log))
    with sqlite3.connect(tmp_path / "s") as db:
        db.execute("PRAGMA user_version = 999")
    with pytest.raises(AdviceError, match="newer condor-advice .schema 999.*upgrade"):
        Store(tmp_path / "s", readonly=True)


def test_an_older_store_is_migrated_by_the_next_writer(tmp_path, log, monkeypatch):
    fill(tmp_path / "s", log, len(log))
    later = [*store_module.MIGRATIONS, "CREATE TABLE later (x);\nCREATE INDEX i ON later (x);\n"]
    monkeypatch.setattr(store_module, "MIGRATIONS", later)
    with pytest.raises(
        AdviceError, match="older than this condor-advice; run .condor-advice gather"
    ):
        Store(tmp_path / "s", readonly=True)
    with Store(tmp_path / "s") as store:
        assert store._db.execute("SELECT count(*) FROM later").fetchone() == (0,)
        assert b"".join(store.log_text("/log")) == log


def test_a_failed_migration_changes_nothing(tmp_path, log, monkeypatch):
    fill(tmp_path / "s", log, len(log))
    broken = [*store_module.MIGRATIONS, "CREATE TABLE later (x);\nCREATE TABLE logs (x);\n"]
    monkeypatch.setattr(store_module, "MIGRATIONS", broken)
    with pytest.raises(AdviceError):
        Store(tmp_path / "s")
    monkeypatch.undo()
    with Store(tmp_path / "s", readonly=True) as store:
        assert b"".join(store.log_text("/log")) == log


def test_no_store_yet_says_how_to_make_one(tmp_path):
    with pytest.raises(
        AdviceError, match="no store yet; create it with .condor-advice gather"
    ) as e:
        Store(tmp_path / "s", readonly=True)
    assert e.value.exit_status == 4


def test_an_unwritable_path_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AdviceError, match="cannot be written .*name another with --store"):
        Store(tmp_path / "file" / "s")


def test_a_directory_is_not_a_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path, ".", "/"):
        for readonly in (False, True):
            with pytest.raises(StoreUnreachable, match="is a directory; name a file"):
                Store(path, readonly=readonly)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status"], "s: cannot open the store (Permission denied); check"),
        (["1.0"], "no answer from HTCondor"),
    ],
)
def test_a_store_in_an_unreadable_directory_is_reported(tmp_path, log, arguments, said):
    fill(tmp_path / "closed" / "s", log, len(log))
    (tmp_path / "closed").chmod(0)
    command = [sys.executable, "-m", "condor_advice", *arguments]
    if os.geteuid() == 0:
        drop = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}", *command]
    settings = {"CONDOR_ADVICE_STORE": str(tmp_path / "closed" / "s"), "CONDOR_CONFIG": "ONLY_ENV"}
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | settings)
    (tmp_path / "closed").chmod(0o700)
    assert result.returncode == 4
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_writing_to_a_deleted_store_is_an_error(tmp_path, log):
    first, second = blocks(log, len(log) // 2)[:2]
    with Store(tmp_path / "s") as store:
        store.append(first, replace(CURSOR, offset=len(first.data)))
        for name in ("s", "s-wal", "s-shm"):
            (tmp_path / name).unlink()
        with pytest.raises(StoreUnreachable, match="deleted or replaced while .*start .* again"):
            store.append(second, replace(CURSOR, offset=len(log)))


def test_a_link_in_place_of_the_lock_is_refused_and_its_target_kept(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "s.lock").symlink_to(precious)
    with pytest.raises(StoreUnreachable, match=r"s\.lock: .* symbolic link; .* remove it"):
        Store(tmp_path / "s")
    (tmp_path / "s.lock").unlink()
    os.link(precious, tmp_path / "s.lock")
    with pytest.raises(StoreUnreachable, match=r"s\.lock: .* not a regular file of its own"):
        Store(tmp_path / "s")
    assert precious.read_text() == "kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_strangers_lock_is_refused_and_the_store_owners_is_used(tmp_path):
    Store(tmp_path / "s").close()
    os.chown(tmp_path / "s.lock", 65534, 65534)
    with pytest.raises(StoreUnreachable, match="belongs to user 65534; .* remove it"):
        Store(tmp_path / "s")
    os.chown(tmp_path / "s", 65534, 65534)
    Store(tmp_path / "s").close()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_link_to_a_store_is_followed_only_where_nobody_else_can_put_one(tmp_path, readonly):
    Store(tmp_path / "s").close()
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    (shared / "link").symlink_to(tmp_path / "s")
    Store(shared / "link", readonly=readonly).close()
    shared.chmod(0o1777)
    with pytest.raises(StoreUnreachable, match="symbolic link in a directory that others .*chmod"):
        Store(shared / "link", readonly=readonly)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_strangers_store_in_a_directory_open_to_all_is_refused(tmp_path):
    Store(tmp_path / "s").close()
    os.chown(tmp_path / "s", 65534, 65534)
    tmp_path.chmod(0o1777)
    with pytest.raises(StoreUnreachable, match="belongs to user 65534, in a directory that others"):
        Store(tmp_path / "s", readonly=True)


def test_the_second_writer_is_told_who_holds_the_store(tmp_path):
    program = (
        "import sys, time\nfrom condor_advice.gather.store import Store\n"
        "with Store(sys.argv[1]):\n    print('open', flush=True)\n    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreBusy, match=f"process {holder.pid} on .* is writing"):
            Store(tmp_path / "s", wait=0.2)
        with Store(tmp_path / "s", readonly=True) as reader:  # readers are never in the way
            assert reader.counts_by_type() == {}
        holder.kill()
    Store(tmp_path / "s", wait=5).close()  # the kernel has freed the lock


def test_readers_see_whole_transactions_while_one_writes(tmp_path, log):
    parts = blocks(log, 5000)
    with Store(tmp_path / "s") as writer, Store(tmp_path / "s", readonly=True) as reader:
        offset = 0
        for columns in parts:
            offset += len(columns.data)
            writer.append(columns, replace(CURSOR, offset=offset))
            assert reader.cursor("/log").offset == offset
            assert sum(len(text) for text in reader.log_text("/log")) == offset


def test_the_store_is_private_and_found_where_xdg_says(tmp_path, monkeypatch):
    monkeypatch.delenv("CONDOR_ADVICE_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = default_store_path()
    assert path == tmp_path / "condor-advice" / "store.sqlite"
    Store(path).close()
    assert {entry.stat().st_mode & 0o777 for entry in path.parent.iterdir()} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("CONDOR_ADVICE_STORE", "/elsewhere")
    assert default_store_path() == Path("/elsewhere")
