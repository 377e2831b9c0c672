"""One log and its reader, with one kind of trouble at a time."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rotating_log import RotatingLog, held_event

from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.look import NoSuchLog, UnreadableLog
from condor_advice.gather.reader import ReaderState
from condor_advice.gather.rotation import Fingerprint, LogFile, Position, borne_marks, read_header
from condor_advice.gather.store import Store
from condor_advice.gather.tail import LogTail, cursor_of, position_of, unread_bytes

CLOCK = Clock(find_zone("UTC"))
LONG_AGO = 1_700_000_000

# As HTCondor 25.14 wrote them: when a file is made, and after it was rotated.
TEXT_HEADER = (
    b"008 (-01.-01.-01) 11/16 02:01:50 Global JobLog: ctime=1794794510 id=5.26726.1794794508."
    b"168423.9.1794794510.446397 sequence=9 size=0 events=0 offset=161559 event_off=431 "
    b"max_rotation=40 creator_name=<>                                              \n...\n"
)
JSON_INFO = (
    "Global JobLog: ctime=1794800842 id=5.11135.1794800841.183688.1.1794800842.511173 sequence=1"
    " size=0 events=0 offset=20662 event_off=0 max_rotation=30 creator_name=<>"
)
JSON_INFO_ROTATED = (
    "Global JobLog: ctime=1794800840 id= sequence=0 size=20013 events=0 offset=0 event_off=0"
    " max_rotation=30 creator_name=<>"
)


def json_header(info: str) -> bytes:
    return (
        f'{{\n  "Info": "{info:<256}",\n  "MyType": "GenericEvent",\n  "EventTime": '
        '"2026-11-16T03:47:22.511Z",\n  "EventTypeNumber": 8\n}\n'
    ).encode()


XML_HEADER = (
    b'<c>\n    <a n="Info"><s>Global JobLog: ctime=1794800854 id=5.9318.1794800854.328054.2.1794'
    b"800854.329289 sequence=2 size=20270 events=43 offset=20935 event_off=43 max_rotation=30 cr"
    b'eator_name=&lt;&gt;      </s></a>\n    <a n="MyType"><s>GenericEvent</s></a>\n    <a n="Ev'
    b'entTime"><s>2026-11-16T03:47:35.644</s></a>\n    <a n="EventTypeNumber"><i>8</i></a>\n</c>\n'
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


Follow = Callable[..., LogTail]


@pytest.fixture
def follow(store: Store) -> Iterator[Follow]:
    made: list[LogTail] = []

    def make(log: Path, **settings: object) -> LogTail:
        settings.setdefault("settle_seconds", 0.0)
        made.append(LogTail(log, store, access_point="ap", clock=CLOCK, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for tail in made:
        tail.close()


def held(store: Store) -> list[int]:
    return [
        cluster
        for piece in store.pieces()
        for cluster, kind in zip(piece.columns.cluster, piece.columns.type, strict=True)
        if kind == 12
    ]


def events(*serials: int) -> list[bytes]:
    return [held_event(serial) for serial in serials]


def test_the_header_is_found_in_every_format_and_its_length_is_known() -> None:
    for header, sequence in ((TEXT_HEADER, 9), (json_header(JSON_INFO), 1), (XML_HEADER, 2)):
        found = read_header(header + b"what follows")
        assert found is not None
        assert (found.sequence, found.length) == (sequence, len(header))
        assert read_header(header[:-6]) is None, "a header is believed only when it is whole"
    assert read_header(held_event(1)) is None


def test_a_json_log_is_recognised_although_rotation_wipes_its_header(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    job = b'{\n  "MyType": "JobHeldEvent",\n  "Cluster": %d,\n  "Proc": 0,\n  "EventTypeNumber"'
    job += b': 12,\n  "EventTime": "2026-11-16T03:47:%02d"\n}\n'
    log, rotated = tmp_path / "EventLog", tmp_path / "EventLog.1"
    log.write_bytes(json_header(JSON_INFO) + job % (1, 1))
    follow(log).advance()
    log.write_bytes(json_header(JSON_INFO_ROTATED) + job % (1, 1) + job % (2, 2))
    log.rename(rotated)
    log.write_bytes(json_header(JSON_INFO.replace("842 id=5", "843 id=6")) + job % (3, 3))
    follow(log).advance()
    assert held(store) == [1, 2, 3]
    assert store.gaps() == []


def test_hundreds_of_rotations_are_told_apart_quickly() -> None:
    files = [
        LogFile(f"log.{rank}", rank, 1, rank, 9000, 0.0, b"%09d" % rank * 300)
        for rank in range(2000)
    ]
    marks = [file.fingerprint() for file in files[::2]]
    marks += [replace(mark, inode=mark.inode + 1) for mark in marks[:3]]  # a copy bears it, too
    start = time.process_time()
    borne = borne_marks(files, marks)
    assert time.process_time() - start < 1.0
    for file, found in list(zip(files, borne, strict=True))[:20]:
        assert set(found) == {mark for mark in marks if file.bears(mark)}
    assert [len(found) for found in borne[:8]] == [2, 0, 2, 0, 2, 0, 1, 0]


@pytest.mark.parametrize("max_rotations", [1, 3])
@pytest.mark.parametrize("header", [True, False])
def test_the_first_run_reads_the_rotations_oldest_first(
    tmp_path: Path, store: Store, follow: Follow, max_rotations: int, header: bool
) -> None:
    log = RotatingLog(tmp_path / "EventLog", header=header, max_rotations=max_rotations)
    serial = 0
    for _ in range(max_rotations):
        log.write(events(serial, serial + 1))
        serial += 2
        log.rotate()
    log.write(events(serial))
    follow(log.path).advance()
    assert held(store) == list(range(serial + 1))
    assert store.gaps() == []


def test_rotations_while_nobody_read_are_caught_up(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = RotatingLog(tmp_path / "EventLog", max_rotations=5)
    log.write(events(1, 2))
    follow(log.path).advance()
    log.write(events(3))
    for serial in range(4, 9):
        log.rotate()
        log.write(events(serial))
    follow(log.path).advance()
    assert held(store) == list(range(1, 9))
    assert store.gaps() == []


def test_a_missed_rotation_is_a_gap_with_its_bytes_and_events(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = RotatingLog(tmp_path / "EventLog", max_rotations=2)
    log.write(events(1, 2))
    follow(log.path).advance()
    read_to = log.size
    log.write(events(3))
    lost = len(held_event(3))
    log.rotate()
    log.write(events(4, 5))
    lost += log.size
    for serial in (6, 7, 8):
        log.rotate()
        log.write(events(serial))
    follow(log.path).advance()
    assert held(store) == [1, 2, 6, 7, 8]
    [gap] = store.gaps()
    assert (gap.bytes_lost, gap.events_lost) == (lost, 3)
    assert (gap.after_sequence, gap.before_sequence) == (1, 3)
    assert gap.reason == (
        f"the file that had been read to byte {read_to} is gone, and no rotation holds the "
        "rest of it"
    )


def test_a_missed_rotation_without_headers_is_a_gap_of_unknown_size(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = RotatingLog(tmp_path / "job.log", header=False, max_rotations=1)
    log.write(events(1))
    follow(log.path).advance()
    for serial in (2, 3, 4):
        log.rotate()
        log.write(events(serial))
    follow(log.path).advance()
    assert held(store) == [1, 3, 4]
    [gap] = store.gaps()
    assert (gap.bytes_lost, gap.events_lost) == (None, None)


def test_an_event_appended_after_the_rotation_is_read(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = RotatingLog(tmp_path / "EventLog")
    log.write(events(1))
    tail = follow(log.path, settle_seconds=1000.0)
    tail.advance()
    straggler = log.rotate(keep_old_fd=True)
    log.write(events(3))
    assert 0 < (tail.advance().wait or 0) <= 1000.0, "the rotated file is not complete yet"
    assert held(store) == [1]
    os.write(straggler, held_event(2))
    os.close(straggler)
    tail.advance()
    os.utime(log.rotated(1), (LONG_AGO, LONG_AGO))
    assert tail.advance().wait is None
    assert held(store) == [1, 2, 3]


def test_an_event_appended_long_after_the_rotation_is_read_too(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = RotatingLog(tmp_path / "EventLog")
    log.write(events(1))
    tail = follow(log.path)
    tail.advance()
    straggler = log.rotate(keep_old_fd=True)
    log.write(events(2))
    tail.advance()
    assert held(store) == [1, 2]
    os.write(straggler, held_event(3)[:20])
    tail.advance()
    os.write(straggler, held_event(3)[20:])
    assert tail.advance().events == 1
    os.write(straggler, held_event(4))
    log.rotate()
    log.write(events(5))
    follow(log.path).advance()  # somebody else, who knows only the store
    assert held(store) == [1, 2, 3, 4, 5]
    assert store.gaps() == []
    os.close(straggler)


def test_the_unfinished_event_at_the_end_of_a_rotated_file_is_an_oddity(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = RotatingLog(tmp_path / "EventLog", header=False)
    log.write(events(1))
    log.write_part(held_event(2)[:30])
    tail = follow(log.path)
    tail.advance()
    assert store.logs()[0].oddities == {}, "it may still grow"
    log.rotate()
    log.write(events(3))
    tail.advance()
    assert [c for c in held(store) if c != 2] == [1, 3]
    [oddity] = store.oddities(str(log.path))
    assert oddity.offset == len(held_event(1))


def test_copy_and_truncate_finishes_the_copy(tmp_path: Path, store: Store, follow: Follow) -> None:
    log = RotatingLog(tmp_path / "EventLog", header=False, max_rotations=3)
    log.write(events(1, 2))
    tail = follow(log.path)
    tail.advance()
    log.write(events(3))
    log.copy_and_truncate()
    log.write(events(4, 5, 6, 7))  # grown past the old place already
    tail.advance()
    assert held(store) == [1, 2, 3, 4, 5, 6, 7]
    assert store.gaps() == []


def test_a_file_truncated_and_grown_again_is_detected(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = RotatingLog(tmp_path / "EventLog", header=False)
    log.write(events(1, 2))
    tail = follow(log.path)
    tail.advance()
    log.truncate()
    log.write(events(3, 4, 5))
    tail.advance()
    assert held(store) == [1, 2, 3, 4, 5]
    [gap] = store.gaps()
    assert "was truncated" in gap.reason


def test_a_deleted_log_that_is_held_open_is_read_to_its_end(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = RotatingLog(tmp_path / "EventLog", header=False)
    log.write(events(1))
    tail = follow(log.path)
    tail.advance()
    log.write(events(2))
    log.delete_and_recreate()
    log.write(events(3))
    tail.advance()
    assert held(store) == [1, 2, 3]
    assert store.gaps() == []


def test_a_deleted_log_that_stays_quiet_is_closed_to_free_its_disk_space(
    tmp_path: Path, store: Store, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RotatingLog(tmp_path / "EventLog", header=False)
    log.write(events(1))
    tail = follow(log.path)
    tail.advance()
    log.path.unlink()
    log.write(events(2))  # its writer has it open
    tail.advance()
    assert held(store) == [1, 2]
    assert tail._held, "it may still grow"
    monkeypatch.setattr("condor_advice.gather.tail.DELETED_SECONDS", 0.0)
    tail.advance()
    assert not tail._held
    with pytest.raises(
        NoSuchLog, match="the file no longer exists; the events already read are kept"
    ):
        tail.advance()
    log.open()
    log.write(events(3))
    follow(log.path).advance()
    assert held(store) == [1, 2, 3]
    assert store.gaps() == []


def test_a_log_deleted_while_nobody_read_is_a_gap(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = RotatingLog(tmp_path / "EventLog", header=False)
    log.write(events(1))
    follow(log.path).advance()
    log.write(events(2))
    log.delete_and_recreate()
    log.write(events(3))
    tail = follow(log.path)
    tail.advance()
    assert held(store) == [1, 3]
    assert [gap.bytes_lost for gap in store.gaps()] == [None]
    assert tail.gaps == store.gaps()


def test_a_copy_of_the_log_is_neither_read_twice_nor_instead_of_the_log(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = RotatingLog(tmp_path / "EventLog", header=False)
    log.write(events(1, 2))
    shutil.copyfile(log.path, f"{log.path}.1")
    tail = follow(log.path)
    tail.advance()
    log.write(events(3))
    tail.advance()
    follow(log.path).advance()
    assert held(store) == [1, 2, 3]
    assert store.gaps() == []


def test_dates_without_a_year_continue_past_new_year_across_a_rotation(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    old, new = tmp_path / "EventLog.old", tmp_path / "EventLog"
    old.write_bytes(b"012 (1.000.000) 12/31 23:59:58 Job was held.\n...\n")
    new.write_bytes(b"012 (2.000.000) 01/01 00:00:02 Job was held.\n...\n")
    os.utime(old, (1_798_761_598, 1_798_761_598))  # 2026-12-31 23:59:58
    os.utime(new, (1_798_761_602, 1_798_761_602))
    follow(new).advance()
    times = [
        piece.columns.time(row) for piece in store.pieces() for row in range(len(piece.columns))
    ]
    assert [f"{time:%Y-%m-%d}" for time in times] == ["2026-12-31", "2027-01-01"]


def test_an_event_larger_than_a_block_is_read_completely(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = RotatingLog(tmp_path / "EventLog", header=False)
    log.write([held_event(1), held_event(2, padding=500), held_event(3)])
    assert follow(log.path, block_bytes=512).advance().events == 3
    assert held(store) == [1, 2, 3]


def test_unread_bytes_count_the_rest_of_all_files(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = RotatingLog(tmp_path / "EventLog", header=False)
    log.write(events(1))
    tail = follow(log.path)
    tail.advance()
    log.write(events(2))
    log.rotate()
    log.write(events(3, 4))
    assert tail.unread_bytes() == sum(len(held_event(n)) for n in (2, 3, 4))
    tail.advance()
    assert tail.unread_bytes() == 0
    assert unread_bytes(str(log.path), None) == sum(len(held_event(n)) for n in (1, 2, 3, 4))


def test_unreadable_logs_are_reported(tmp_path: Path, follow: Follow) -> None:
    with pytest.raises(NoSuchLog, match=r"job\.log: no such file; check the name"):
        follow(tmp_path / "job.log").advance()
    with pytest.raises(UnreadableLog, match="is a directory; name the event log itself"):
        follow(tmp_path).advance()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(UnreadableLog, match="is not a regular file"):
        follow(fifo).advance()
    for name, content in (("binary", os.urandom(5000)), ("prose", b"Dear all,\nhello.\n")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UnreadableLog, match="no HTCondor job event in its first"):
            follow(tmp_path / name).advance()


def test_an_empty_log_is_no_error_and_a_torn_first_event_is_waited_for(
    tmp_path: Path, store: Store, follow: Follow
) -> None:
    log = tmp_path / "EventLog"
    log.touch()
    tail = follow(log)
    assert tail.advance().events == 0
    log.write_bytes(held_event(1)[:20])
    assert tail.advance().events == 0
    log.write_bytes(held_event(1))
    assert tail.advance().events == 1
    assert held(store) == [1]


def test_a_short_fingerprint_needs_the_inode_too() -> None:
    def file(head: bytes, inode: int) -> LogFile:
        return LogFile("EventLog", 0, 1, inode, len(head), 0.0, head)

    short, long = b"012 (1.0.0) ...\n", held_event(1)
    assert not file(short, 2).bears(file(short, 1).fingerprint(complete=True))
    assert file(short, 1).bears(file(short, 1).fingerprint(complete=True))
    assert file(long + held_event(2), 2).bears(file(long, 1).fingerprint())


def test_an_endless_line_costs_no_event_after_it(
    tmp_path: Path, store: Store, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an event that fills a block of the largest size is given up."""
    monkeypatch.setattr("condor_advice.gather.tail.MAX_EVENT_BYTES", 1 << 16)
    for endless in (b"x" * 100_000, b"\n" + held_event(9)[:-30] + b"x" * 50_000 + b"\n...\n"):
        log = tmp_path / f"log{len(endless)}"
        log.write_bytes(held_event(0) + endless + b"\n" + b"".join(events(*range(10, 1000))))
        follow(log, block_bytes=1 << 12).advance()
        [found] = [one for one in store.logs() if one.cursor.log == str(log)]
        assert found.events_by_type[12] >= 991
        assert found.oddities.get("torn", 0) == 0


@pytest.mark.parametrize("inode", [1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_64_bit_inode_is_kept_and_recognised(store: Store, inode: int) -> None:
    """GlusterFS and others use the highest bit too, but SQLite's integers are signed."""
    mark = Fingerprint(device=5, inode=inode, start=0, length=512, digest="00" * 12)
    position = Position(mark=mark, offset=600, header=None, events=7, done=(mark,))
    store.append(None, cursor_of("/log", "ap", position, ReaderState()))
    cursor = store.cursor("/log")
    assert cursor is not None
    assert position_of(cursor) == position
