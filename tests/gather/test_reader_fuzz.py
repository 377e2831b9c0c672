"""Whatever the bytes, and wherever blocks end, the reader gives the same events and never fails."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.fields import read_fields
from condor_advice.gather.layout import Layout
from condor_advice.gather.reader import EventColumns, ReaderState, read_block

LOGS = sorted(Path(__file__).parents[1].joinpath("logs").glob("*.log"))
TEXTS = [path.read_bytes()[:6000] for path in LOGS]
CLOCK = Clock(find_zone("America/Chicago"))
SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def in_blocks(log: bytes, cuts: list[int], ahead: bool = False) -> list[EventColumns]:
    """Read a log as it grows to each of the cuts, and finally to its end.

    With `ahead` what comes behind a cut is there already, and must not be read before its time.
    """
    state, offset, found = ReaderState(year=2026), 0, []
    for end in [*sorted(cut % (len(log) + 1) for cut in cuts), len(log)]:
        final = end == len(log)
        columns, consumed = read_block(
            log[offset:] if ahead else log[offset:end],
            state,
            base=offset,
            clock=CLOCK,
            final=final,
            size=end - offset,
        )
        assert columns.data == log[offset : offset + consumed]
        state = ReaderState.from_json(state.to_json())
        offset += consumed
        found.append(columns)
        if final:
            break
    assert offset == len(log)
    return found


def told(blocks: list[EventColumns]) -> list[tuple[int, int, int, int, int, bytes]]:
    return [
        (
            int(c.type[row]), int(c.cluster[row]), int(c.proc[row]), int(c.time_us[row]),
            c.base + int(c.start[row]), c.data[int(c.start[row]) : int(c.end[row])],
        )
        for c in blocks
        for row in range(len(c))
    ]  # fmt: skip


@SETTINGS
@given(
    log=st.sampled_from(TEXTS),
    cuts=st.lists(st.integers(0, 10_000), max_size=8),
    ahead=st.booleans(),
)
def test_events_do_not_depend_on_where_blocks_end(log, cuts, ahead):
    whole = told(in_blocks(log, []))
    assert told(in_blocks(log, cuts, ahead)) == whole
    assert whole


DAMAGE = [
    *(b"\n", b"...\n", b"\n...\n", b"\r\n", b"\0", b"\xff", b"{\n", b"}\n", b"<c>\n", b"\t"),
    *(b"012 (1.0.0) ", b"999999999999999999999", b"02/30 25:61:61", b"    "),
]
mutations = st.lists(
    st.tuples(
        st.integers(0, 6000),
        st.integers(0, 40),
        st.one_of(st.binary(max_size=12), st.sampled_from(DAMAGE)),
    ),
    max_size=6,
)


@SETTINGS
@given(
    log=st.sampled_from(TEXTS),
    changes=mutations,
    cuts=st.lists(st.integers(0, 9000), max_size=4),
    ahead=st.booleans(),
)
def test_damaged_logs_are_read_to_their_end_with_every_byte_accounted_for(
    log, changes, cuts, ahead
):
    for at, length, instead in changes:
        log = log[:at] + instead + log[at + length :]
    for columns in in_blocks(log, cuts, ahead):
        assert np.all(columns.end >= columns.start)
        assert np.all(columns.end <= len(columns.data))
        for row in range(len(columns)):
            columns.event(row)
        read_fields(columns)


@SETTINGS
@given(st.binary(max_size=3000))
def test_any_bytes_at_all_are_read(data):
    for columns in in_blocks(data, [len(data) // 2]):
        list(columns.events())
        read_fields(columns)


def test_a_block_may_end_at_any_byte_of_any_format():
    for log in TEXTS:
        log = log[:750]
        whole = told(in_blocks(log, []))
        for cut in range(450):  # in JSON the first event closes before that
            for ahead in (False, True):
                assert told(in_blocks(log, [cut], ahead)) == whole, (cut, ahead)


OBJECTS = [text for text in TEXTS if text.startswith((b"{", b"<"))]
OBJECT_DAMAGE = [
    *(
        b"\n",
        b",",
        b'"',
        b"\\",
        b"\\n",
        b"}",
        b"{",
        b"  }\n",
        b"  },\n",
        b"&",
        b"&lt;",
        b"&#10;",
        b"<",
    ),
    *(
        b">",
        b"]]>",
        b"</c></a>\n",
        b'    "A": 1,\n',
        b'  "A": 1,\n',
        b'  "Proc": 7,\n',
        b"0",
        b"00",
    ),
    *(b"-", b".5", b"1e5", b"null", b"true", b"\xc3\xa9", b"\xff", b"\r\n", b"\0", b"    "),
    *(b'    <a n="A"><i>1</i></a>\n', b'        <a n="A"><s></s></a>\n', b'<b v="f"/>', b"[1, 2]"),
]
object_damage = st.lists(
    st.tuples(
        st.integers(0, 6000),
        st.integers(0, 12),
        st.one_of(st.binary(max_size=3), st.sampled_from(OBJECT_DAMAGE)),
    ),
    max_size=5,
)


def nothing_laid_out(
    data: bytes, starts: object, opening: np.ndarray, closing: object, *, xml: bool
) -> Layout:
    """Leave every event to the parsers."""
    at = np.asarray(starts)[opening]
    return Layout(at, np.zeros(len(opening), np.bool_), {})


def values_of(columns: EventColumns) -> list[dict[str, object]]:
    ads: list[dict[str, object]] = [{} for _ in range(len(columns))]
    for name, values in read_fields(columns).values.items():
        for row, value in values:
            ads[row][name] = value
    return ads


@settings(SETTINGS, max_examples=400)
@given(log=st.sampled_from(OBJECTS), changes=object_damage)
def test_the_layout_reader_reads_what_the_parsers_read(log, changes):
    for at, length, instead in changes:
        at %= len(log) + 1
        log = log[:at] + instead + log[at + length :]
    [columns] = in_blocks(log, [])
    with mock.patch("condor_advice.gather.layout.read_layout", nothing_laid_out):
        [parsed] = in_blocks(log, [])
        assert told([columns]) == told([parsed])
        assert columns.oddity_counts == parsed.oddity_counts
        expected = [parsed.ad(row) for row in range(len(parsed))]
    assert [columns.ad(row) for row in range(len(columns))] == expected
    objects = (columns.form != 0).tolist()
    for values, ad, is_object in zip(values_of(columns), expected, objects, strict=True):
        assert repr(values if is_object else {}) == repr({n: ad[n] for n in values}), ad
        assert not is_object or values.keys() == ad.keys()
    columns.keep(np.ones(len(columns), np.bool_))
    assert repr([sorted(ad) for ad in values_of(columns)]) == repr(
        [sorted(ad) if is_object else [] for ad, is_object in zip(expected, objects, strict=True)]
    )
