from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.events import JobEventType
from condor_advice.gather.fields import read_fields
from condor_advice.gather.reader import ReaderState, first_year, read_block
from condor_advice.gather.sequences import read_log, sequences
from condor_advice.preprocess.holds.episodes import hold_episodes, is_held, outcome_of
from condor_advice.preprocess.holds.outcomes import Outcome

HOLD = (
    b"012 (7.003.000) 2026-11-16 02:01:42 Job was held.\n"
    b"\tError from slot1@ep1.pool.local: memory usage exceeded request_memory\n"
    b"\tCode 21 Subcode 102\n...\n"
)
RELEASE = b"013 (7.003.000) 2026-11-16 02:05:00 Job was released.\n\tvia condor_release\n...\n"
JSON_HOLD = (
    b'{\n  "MyType": "JobHeldEvent",\n  "Cluster": 7,\n  "Proc": 3,\n  "EventTypeNumber": 12,\n'
    b'  "EventTime": "2026-11-16T02:01:42",\n  "HoldReason": "memory"\n}\n'
)


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        (b"2026-11-16 02:01:42", datetime(2026, 11, 16, 8, 1, 42, tzinfo=UTC)),
        (b"2026-11-16T02:01:42", datetime(2026, 11, 16, 8, 1, 42, tzinfo=UTC)),
        (b"2026-11-16 02:01:42.345", datetime(2026, 11, 16, 8, 1, 42, 345000, tzinfo=UTC)),
        (b"2026-11-16 02:01:42.345678", datetime(2026, 11, 16, 8, 1, 42, 345678, tzinfo=UTC)),
        (b"2026-11-16 02:01:42Z", datetime(2026, 11, 16, 2, 1, 42, tzinfo=UTC)),
        (b"2026-11-16 02:01:42.500Z", datetime(2026, 11, 16, 2, 1, 42, 500000, tzinfo=UTC)),
        (b"11/16 02:01:42", datetime(2026, 11, 16, 8, 1, 42, tzinfo=UTC)),
        (b"11/16 02:01:42.345Z", datetime(2026, 11, 16, 2, 1, 42, 345000, tzinfo=UTC)),
    ],
)
def test_every_form_of_date_becomes_utc(read, stamp, expected):
    columns = read(HOLD.replace(b"2026-11-16 02:01:42", stamp), zone="America/Chicago")
    assert columns.time(0) == expected


def test_a_hold_has_its_job_reason_and_codes(read):
    [event] = read(HOLD).events("ap1")
    assert (event.job.access_point, event.job.cluster, event.job.proc) == ("ap1", 7, 3)
    assert event.type is JobEventType.JOB_HELD
    assert event.ad == {
        "HoldReason": "Error from slot1@ep1.pool.local: memory usage exceeded request_memory",
        "HoldReasonCode": 21,
        "HoldReasonSubCode": 102,
    }


def test_an_unknown_event_number_is_kept_with_its_text(read):
    [event] = read(b"173 (7.000.000) 2026-11-16 02:01:42 Something new\n\tdetail 5\n...\n").events()
    assert int(event.type) == 173
    assert event.type.name == "EVENT_173"
    assert "detail 5" in event.text


@pytest.mark.parametrize(
    ("ids", "cluster", "proc"),
    [
        (b"-01.-01.-01", -1, -1),
        (b"0.2147483647.1", 0, 2147483647),
        (b"2147483647.000.000", 2147483647, 0),
        (b"12345678.12345.000", 12345678, 12345),
    ],
)
def test_odd_job_ids_are_read_as_written(read, ids, cluster, proc):
    columns = read(HOLD.replace(b"7.003.000", ids))
    assert (columns.cluster[0], columns.proc[0]) == (cluster, proc)


def test_a_torn_event_is_read_once_it_is_complete():
    state, clock = ReaderState(), Clock(find_zone("UTC"))
    log = HOLD + RELEASE
    for cut in range(len(HOLD), len(log)):
        columns, consumed = read_block(log[:cut], state, base=0, clock=clock)
        # The newline behind the dots may still be missing when the event is whole.
        assert len(columns) == (2 if log[:cut].endswith(b"\n...") else 1)
        assert consumed == (cut if len(columns) == 2 else len(HOLD))


@pytest.mark.parametrize(
    ("name", "log", "events", "oddities"),
    [
        ("a missing closing line", HOLD[:-4] + RELEASE, 2, {"unclosed": 1}),
        ("a stray closing line", HOLD + b"...\n" + RELEASE, 2, {"stray_closing": 1}),
        ("CRLF", (HOLD + RELEASE).replace(b"\n", b"\r\n"), 2, {"crlf": 1}),
        ("a byte order mark", b"\xef\xbb\xbf" + HOLD, 1, {"bom": 1}),
        ("NULs as a crash leaves them", HOLD + bytes(512) + RELEASE, 2, {"nul": 1}),
        ("bytes that are no UTF-8", HOLD.replace(b"memory", b"m\xe9moire"), 1, {"not_utf8": 1}),
        (
            "conflict markers",
            b"<<<<<<< HEAD\n" + HOLD + b"=======\n" + RELEASE + b">>>>>>> other\n",
            2,
            {"conflict_marker": 3},
        ),
        ("an event written twice", HOLD + HOLD, 2, {"duplicate": 1}),
        ("a log that was doubled", HOLD * 80, 80, {"duplicate": 79}),
        ("foreign lines", b"# my log\n" + HOLD + b"done!\n", 1, {"foreign": 2}),
        ("a torn end", HOLD + RELEASE[:-20], 2, {"torn": 1}),
        ("a date that is none", HOLD.replace(b"11-16", b"13-46") + HOLD, 1, {"foreign": 3}),
        ("an empty body", b"012 (7.3.0) 2026-11-16 02:01:42 Job was held.\n...\n", 1, {}),
        ("a header without words", b"008 (7.3.0) 2026-11-16 02:01:42\n...\n", 1, {}),
        ("nothing at all", b"", 0, {}),
    ],
)
def test_broken_input_is_skipped_and_counted(read, name, log, events, oddities):
    columns = read(log)
    counts = dict(columns.oddity_counts)
    if name == "a date that is none":
        counts.pop("stray_closing")
        oddities = {"foreign": counts["foreign"]}
    assert (len(columns), counts) == (events, oddities)
    assert all(0 <= oddity.offset < max(1, len(log)) for oddity in columns.oddities)
    assert columns.data == log


def test_an_oddity_is_reported_where_it_is(read):
    columns = read(HOLD + b"what is this\n" + RELEASE)
    [oddity] = columns.oddities
    assert (oddity.offset, oddity.kind, oddity.excerpt) == (len(HOLD), "foreign", "what is this")


def test_a_reason_may_have_several_lines(read):
    log = HOLD.replace(b"request_memory\n", b"request_memory\n\tsecond line\n")
    assert next(read(log).events()).ad["HoldReason"].endswith("request_memory\nsecond line")


@pytest.mark.parametrize(
    "event",
    [
        b"000 (7.003.000) 2026-11-16 02:01:42 Job submitted from host: <1>\n\t[DAGManJobId=%b]\n",
        b"005 (7.003.000) 2026-11-16 02:01:42 Job terminated.\n"
        b"\t(1) Normal termination (return value %b)\n",
        b"006 (7.003.000) 2026-11-16 02:01:42 Image size of job updated: %b\n",
        b"012 (7.003.000) 2026-11-16 02:01:42 Job was held.\n\tx\n\tCode %b Subcode 1\n",
        b"028 (7.003.000) 2026-11-16 02:01:42 Job ad information event triggered.\nCpus = %b\n",
    ],
)
def test_a_number_of_any_length_stops_no_reader(read, event):
    [found] = read(event % (b"9" * 5000) + b"...\n").events("")
    assert found.job.cluster == 7


def test_text_json_and_xml_may_be_mixed_in_one_file(read, event_log):
    log = b"".join(
        event_log(name).read_bytes()
        for name in ("missing_input.log", "global_json.log", "global_xml.log")
    )
    columns = read(log)
    assert set(columns.form.tolist()) == {0, 1, 2}
    assert not columns.oddity_counts
    parts = [read(event_log(n).read_bytes()) for n in ("global_json.log", "global_xml.log")]
    assert len(columns) == sum(map(len, parts)) + len(
        read(event_log("missing_input.log").read_bytes())
    )


def test_a_broken_json_event_is_an_oddity(read, event_log):
    log = event_log("global_json.log").read_bytes()
    whole = len(read(log))
    columns = read(log.replace(b'"Cluster":', b'"Cluster"', 1))
    assert len(columns) == whole - 1
    assert columns.oddity_counts["malformed"] == 1


@pytest.mark.parametrize(
    ("wrong", "instead"),
    [
        (b'"EventTime": "2026-11-16T02:01:42"', b'"EventTime": "2026-13-45T02:01:42"'),
        (b'"EventTime": "2026-11-16T02:01:42"', b'"EventTime": "0000-01-01T02:01:42"'),
        (b'"Cluster": 7', b'"Cluster": 4294967303'),
        (b'"Cluster": 7', b'"Cluster": 1' + b"0" * 30),
        (b'"Proc": 3', b'"Proc": Infinity'),
        (b'"EventTypeNumber": 12', b'"EventTypeNumber": 5000'),
        (b'"EventTypeNumber": 12', b'"EventTypeNumber": -1'),
        (b'"Proc": 3', b'"Proc": ' + b"[" * 100_000 + b"]" * 100_000),
    ],
)
def test_an_invalid_json_event_is_an_oddity_and_stops_nothing(read, wrong, instead):
    assert wrong in JSON_HOLD
    columns = read(JSON_HOLD + JSON_HOLD.replace(wrong, instead) + HOLD, zone="America/Chicago")
    assert columns.cluster.tolist() == [7, 7]
    assert columns.oddity_counts["malformed"] == 1


def test_an_xml_event_nested_too_deeply_is_an_oddity(read):
    deep = b'<a n="x"><c>' * 100_000 + b"</c></a>" * 100_000
    columns = read(b"<c>\n" + deep + b"\n</c>\n" + HOLD)
    assert len(columns) == 1
    assert columns.oddity_counts["malformed"] == 1


def test_a_nested_ad_of_an_xml_event_keeps_its_attributes_to_itself(read):
    log = (
        b'<c>\n    <a n="EventTypeNumber"><i>0</i></a>\n    <a n="Cluster"><i>7</i></a>\n'
        b'    <a n="Proc"><i>3</i></a>\n    <a n="EventTime"><s>2026-11-16T02:01:42</s></a>\n'
        b'    <a n="StructuredNotes"><c>\n        <a n="Cluster"><i>9</i></a>\n    </c></a>\n</c>\n'
    )
    for text in (log, log.replace(b"        <a", b"\t<a")):  # as HTCondor has it, and otherwise
        columns = read(text)
        assert columns.cluster.tolist() == [7]
        assert columns.ad(0) == {"StructuredNotes": {"Cluster": 9}}
        [(row, value)] = read_fields(columns).values["StructuredNotes"]
        assert (row, value) == (0, {"Cluster": 9})


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (b"2026-11-16", b"0000-01-01"),
        (b"2026-11-16", b"9999-12-31"),
        (b"(7.003.", b"(4294967303.003."),
        (b"(7.003.", b"(7.4294967299."),
    ],
)
def test_an_invalid_date_or_job_id_opens_no_event(read, right, wrong):
    """An id of more than 32 bits would otherwise pass for another job's."""
    columns = read(RELEASE + HOLD.replace(right, wrong) + RELEASE, zone="America/Chicago")
    assert columns.type.tolist() == [13, 13]
    assert columns.oddity_counts["foreign"] == 3


def test_a_torn_event_does_not_swallow_the_next_ones(read):
    """HTCondor continues writing after a crash in the middle of an event."""
    for torn in (JSON_HOLD[:60] + b"\n", b'<c>\n    <a n="Info"><s>Global\n'):
        for log in (JSON_HOLD + torn + JSON_HOLD, HOLD + torn + HOLD):
            columns = read(log, final=False)
            assert (len(columns), columns.size) == (2, len(log))
            assert columns.oddity_counts["malformed"] == 1
    columns = read(RELEASE[:-4] + JSON_HOLD, final=False)
    assert columns.type.tolist() == [13, 12]
    assert columns.oddity_counts == {"unclosed": 1}


# Dates without a year.


def yearless(*stamps: str) -> bytes:
    return b"".join(
        b"006 (7.000.000) %s Image size of job updated: 1\n...\n" % stamp.encode()
        for stamp in stamps
    )


def write(path: Path, data: bytes, modified: datetime) -> Path:
    path.write_bytes(data)
    os.utime(path, (modified.timestamp(), modified.timestamp()))
    return path


def test_a_log_without_years_that_crosses_new_year_comes_out_right(tmp_path):
    log = yearless("12/30 10:00:00", "12/31 23:59:59", "01/01 00:00:01", "03/05 12:00:00")
    path = write(tmp_path / "log", log, datetime(2024, 3, 5, 12, 1, tzinfo=UTC))
    columns = read_log(path, Clock(find_zone("UTC")))
    assert [columns.time(row).year for row in range(4)] == [2023, 2023, 2024, 2024]


def test_a_late_event_of_new_years_eve_does_not_change_the_year(tmp_path):
    log = yearless("12/31 23:59:59", "01/01 00:00:01", "12/31 23:59:58", "01/01 00:00:02")
    path = write(tmp_path / "log", log, datetime(2024, 1, 1, 1, tzinfo=UTC))
    columns = read_log(path, Clock(find_zone("UTC")))
    assert [columns.time(row).year for row in range(4)] == [2023, 2024, 2023, 2024]


def test_a_long_log_without_years_spans_several(tmp_path):
    day = datetime(2021, 6, 1)
    stamps = [(day + timedelta(days=3 * n)).strftime("%m/%d %H:%M:%S") for n in range(400)]
    path = write(tmp_path / "log", yearless(*stamps), day + timedelta(days=1198))
    columns = read_log(path, Clock(find_zone("UTC")))
    assert columns.time(0) == day.replace(tzinfo=UTC)
    assert columns.time(399) == (day + timedelta(days=1197)).replace(tzinfo=UTC)
    with path.open("rb") as file:
        modified = datetime(2024, 9, 11, tzinfo=UTC)
        assert first_year(file.fileno(), path.stat().st_size, modified) == 2021


def test_some_dates_of_a_large_log_without_years_give_the_first_year(tmp_path):
    day = datetime(2021, 6, 1)
    stamps = [(day + timedelta(minutes=12 * n)).strftime("%m/%d %H:%M:%S") for n in range(150_000)]
    path = write(tmp_path / "log", yearless(*stamps), day + timedelta(days=1250))
    size = path.stat().st_size
    assert size > 8 << 20
    with path.open("rb") as file:
        assert first_year(file.fileno(), size, day + timedelta(days=1250)) == 2021


def test_dates_that_lose_their_year_within_a_log_continue_from_the_last():
    """The date format was changed back, and the log is read long after."""
    state, clock = ReaderState(), Clock(find_zone("UTC"))
    read_block(HOLD.replace(b"2026", b"2019"), state, base=0, clock=clock)
    columns, _ = read_block(
        yearless("11/17 12:00:00", "01/02 12:00:00"), state, base=0, clock=clock
    )
    assert [columns.time(row).year for row in range(2)] == [2019, 2020]


def test_the_year_is_carried_from_block_to_block():
    state, clock = ReaderState(year=2023), Clock(find_zone("UTC"))
    years = []
    for stamp in ("12/31 10:00:00", "01/01 10:00:00", "06/01 10:00:00", "02/01 10:00:00"):
        state = ReaderState.from_json(state.to_json())
        columns, _ = read_block(yearless(stamp), state, base=0, clock=clock)
        years.append(columns.time(0).year)
    assert years == [2023, 2024, 2024, 2025]


# The clock.


def local(*times: str) -> bytes:
    return yearless(*(f"2026-11-01 {time}" for time in times))


def test_the_repeated_autumn_hour_comes_out_in_order(read):
    log = local("00:59:00", "01:30:00", "01:59:59", "01:00:01", "01:30:00", "02:00:00")
    columns = read(log, zone="America/Chicago")
    utc = [columns.time(row).strftime("%H:%M:%S") for row in range(len(columns))]
    assert utc == ["05:59:00", "06:30:00", "06:59:59", "07:00:01", "07:30:00", "08:00:00"]


def test_the_repeated_hour_is_resolved_across_blocks():
    state, clock = ReaderState(), Clock(find_zone("America/Chicago"))
    utc = []
    for time in ("01:50:00", "01:10:00", "01:55:00", "02:05:00"):
        state = ReaderState.from_json(state.to_json())
        columns, _ = read_block(local(time), state, base=0, clock=clock)
        utc.append(columns.time(0).strftime("%H:%M"))
    assert utc == ["06:50", "07:10", "07:55", "08:05"]


def test_slight_disorder_in_the_repeated_hour_is_not_a_clock_change(read):
    columns = read(local("01:30:10", "01:30:08", "01:30:11"), zone="America/Chicago")
    assert [columns.time(row).hour for row in range(3)] == [6, 6, 6]


@pytest.mark.parametrize("name", [":/usr/share/zoneinfo/America/Chicago", ":America/Chicago"])
def test_the_zone_may_be_set_as_a_file_or_a_name(read, monkeypatch, name):
    monkeypatch.setenv("TZ", name)
    columns = read(HOLD, zone=None)
    assert columns.time(0) == datetime(2026, 11, 16, 8, 1, 42, tzinfo=UTC)


def test_an_unknown_zone_is_refused_with_advice():
    with pytest.raises(AdviceError, match="Mars/Olympus.*America/Chicago"):
        find_zone("Mars/Olympus")


# Files that are no logs.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.write_bytes(b""), "is empty"),
        (lambda p: p.write_bytes(os.urandom(20000)), "holds no HTCondor job event"),
        (lambda p: p.mkdir(), "Is a directory"),
        (lambda p: None, "No such file"),
    ],
)
def test_a_file_that_is_no_log_is_refused_with_what_to_do(tmp_path, make, message):
    make(tmp_path / "log")
    with pytest.raises(AdviceError, match=f"log: .*{message}.*; name"):
        read_log(tmp_path / "log", Clock(find_zone("UTC")))


# From events to episodes.


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("released_and_succeeded.log", [Outcome.SUCCEEDED] * 3),
        ("released_and_held_again.log", [Outcome.HELD_SAME, Outcome.NEVER_RELEASED]),
        ("removed_while_held.log", [Outcome.NEVER_RELEASED]),
        ("completed.log", []),
    ],
)
def test_episodes_of_real_logs_have_their_outcomes(read, event_log, name, outcomes):
    found = sequences(read(event_log(name).read_bytes()).events())
    assert [outcome_of(e) for s in found for e in hold_episodes(s)] == outcomes
    assert any(map(is_held, found)) == (name == "released_and_held_again.log")


def test_an_event_in_two_logs_counts_once_and_a_resubmitted_id_is_another_job(read):
    twice = [*read(HOLD + RELEASE).events("ap"), *read(HOLD + RELEASE).events("ap")]
    [sequence] = sequences(twice)
    assert len(sequence.events) == 2
    submit = b"000 (7.003.000) 2026-11-%d 02:00:00 Job submitted from host: <1.2.3.4>\n...\n"
    lives = sequences(read(submit % 15 + HOLD + submit % 20).events("ap"))
    assert [len(life.events) for life in lives] == [2, 1]
