"""Read job event logs: blocks of bytes in, columns of events out.

HTCondor writes an event as text (a header line, a body, a line `...`), as JSON or as XML, and one
file may contain all three. The first and last line of an event begin in the first column in every
format. So a block is split at its newlines once, and all else works on whole columns of line
starts. Single events are handled in Python only if a caller asks for one, or if a JSON or XML
event is not in HTCondor's own layout.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from condor_advice.gather.bodies import Ad, parse_body
from condor_advice.gather.clock import FIRST_YEAR, LAST_YEAR, Clock, days_since_1970
from condor_advice.gather.events import MAX_ID, JobEvent, JobEventType, JobId
from condor_advice.gather.words import (
    PADDING,
    BlockWords,
    Int64s,
    Words,
    byte_of,
    digits,
    pad,
    pair,
    signed_in,
    word,
    word_in,
)

if TYPE_CHECKING:
    from condor_advice.gather.layout import Layout

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

# How much of a log is decoded at once.
BLOCK_BYTES = 4 << 20
# The formats in which HTCondor writes an event.
TEXT, JSON, XML = 0, 1, 2
# All oddities are counted, but only this many per block are kept with their offset: a binary file
# that happens to contain an event would otherwise fill the store with them.
MAX_ODDITIES = 50
EXCERPT_BYTES = 60
# If a date without a year is earlier than the one before by more than this, a new year has begun.
DISORDER_DAYS = 2

_LARGE_BYTES = 8 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_BEFORE_MONTH = np.array([0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334])
YEARLESS_HEADER = re.compile(rb"\n\d{3} \(-?\d+\.-?\d+\.-?\d+\) (\d\d)/(\d\d) ")
_LOW_DIGIT = np.uint64(15)
# `MM?DD?HH` and `:MM:SS`: each mask selects the bits that must match the shape.
_DATE_MASK = word(b"\xf0\xf0\xff\xf0\xf0\0\xf0\xf0")
_ISO_SHAPE, _YEARLESS_SHAPE = word(b"00-00\x0000"), word(b"00/00\x0000")
_TIME_MASK, _TIME_SHAPE = word(b"\xff\xf0\xf0\xff\xf0\xf0"), word(b":00:00")
_OPENING_MASK, _OPENING_SHAPE = word(b"\xf0\xf0\xf0\xff\xff"), word(b"000 (")
_PROC_MASK, _PROC_SHAPE = word(b"\xf0\xf0\xf0\xff\xf0\xf0\xf0\xff"), word(b"000.000)")


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something in a log that is not as HTCondor writes it, and where it is."""

    offset: int  # byte offset in the file
    kind: str
    excerpt: str


@dataclass(slots=True)
class ReaderState:
    """What reading a block requires from the blocks before it."""

    year: int | None = None  # of the last date without a year, or of the next one
    day_of_year: int | None = None  # of that date
    last_utc: int | None = None  # UTC second of the last event; resolves the repeated hour

    def to_json(self) -> str:
        """Serialise for the store's cursor."""
        return json.dumps([self.year, self.day_of_year, self.last_utc])

    @classmethod
    def from_json(cls, text: str) -> ReaderState:
        """Return the state that `to_json` wrote."""
        return cls(*json.loads(text))


class Frame(NamedTuple):
    """The lines of a block, and which lines open and close its events."""

    starts: Int64s  # of each line; one more element, past the end of the last line
    first: Bytes  # the first byte of each line
    opening: Int64s  # the line that opens each event
    closing: Int64s  # the line that closes it


@dataclass(slots=True)
class EventColumns:
    """The events of one block, in log order, as columns.

    `data` are the bytes that the block consumed: the first `size` bytes of `source`, which may be
    longer, so that no copy is needed. `start` and `end` delimit each event in it, without its
    closing line; `head` is where the text after the time stamp begins.
    """

    source: bytes = field(repr=False)
    size: int
    base: int  # the offset of `data` in its file
    type: npt.NDArray[np.int16]
    cluster: npt.NDArray[np.int32]
    proc: npt.NDArray[np.int32]
    time_us: Int64s  # microseconds since 1970, UTC
    form: Bytes  # TEXT, JSON or XML
    start: Int64s
    head: Int64s
    end: Int64s
    oddities: list[Oddity] = field(default_factory=list)
    oddity_counts: Counter[str] = field(default_factory=Counter)
    # Kept from the reader for `fields.py`; computed again if absent.
    _frame: Frame | None = field(default=None, repr=False)
    _layouts: list[Layout] | None = field(default=None, repr=False)  # of JSON and XML events
    _ads: dict[int, Ad] = field(default_factory=dict, repr=False)  # of such events, by start

    def __len__(self) -> int:
        return len(self.type)

    @property
    def data(self) -> bytes:
        """The bytes that the block consumed."""
        return self.source[: self.size]

    def text(self, row: int) -> str:
        """Return one event as it stands in the log, without its closing line."""
        return self.source[int(self.start[row]) : int(self.end[row])].decode("utf-8", "replace")

    def time(self, row: int) -> datetime:
        """Return one event's time, in UTC."""
        return _EPOCH + timedelta(microseconds=int(self.time_us[row]))

    def ad(self, row: int) -> dict[str, Any]:
        """Return one event's attributes, under HTCondor's names."""
        form, start = int(self.form[row]), int(self.start[row])
        if form == TEXT:
            # Everything before `head` is ASCII, so byte and character offsets agree.
            return parse_body(int(self.type[row]), self.text(row)[int(self.head[row]) - start :])
        return self._object_ad(start, int(self.end[row]), form).copy()

    def layouts(self) -> list[Layout]:
        """Return where the attributes of JSON and XML events are."""
        if self._layouts is None:
            from condor_advice.gather.layout import read_layout

            lines = self.frame()
            self._layouts = []
            for form in (JSON, XML):
                rows = np.flatnonzero((self.form == form) & (lines.closing < len(lines.first)))
                extents = lines.opening[rows], lines.closing[rows]
                layout = read_layout(self.padded(), lines.starts, *extents, xml=form == XML)
                self._layouts.append(layout)
        return self._layouts

    def _object_ad(self, start: int, end: int, form: int) -> Ad:
        ad = self._ads.get(start)
        if ad is None:
            from condor_advice.gather.objects import PARSERS, drop_header

            ad = self._ads[start] = drop_header(PARSERS[form](self.source[start:end]))
        return ad

    def event(self, row: int, access_point: str = "") -> JobEvent:
        """Return one event."""
        job = JobId(access_point, int(self.cluster[row]), int(self.proc[row]))
        kind = JobEventType(int(self.type[row]))
        return JobEvent(job, kind, self.time(row), self.ad(row), self.text(row))

    def events(self, access_point: str = "") -> Iterator[JobEvent]:
        """Yield the events one by one, in log order."""
        return (self.event(row, access_point) for row in range(len(self)))

    def frame(self) -> Frame:
        """Return where lines start, and which lines open and close each event."""
        if self._frame is None:
            breaks = np.flatnonzero(np.frombuffer(self.source, np.uint8, self.size) == 10)
            starts = np.concatenate(([0], breaks + 1, [self.size + 1]))
            first = np.frombuffer(self.padded(), np.uint8)[starts[:-1]]
            opening, closing = (np.searchsorted(starts, at) for at in (self.start, self.end))
            self._frame = Frame(starts, first, opening, closing)
        return self._frame

    def padded(self) -> bytes:
        """Return the bytes with padding after them, for loading words near the end."""
        if len(self.source) - self.size < PADDING:
            self.source = pad(self.source)  # only once, for all callers
        return self.source

    def keep(self, rows: Bools) -> None:
        """Keep only these events; the bytes stay."""
        self._frame = self._layouts = None
        for name in ("type", "cluster", "proc", "time_us", "form", "start", "head", "end"):
            setattr(self, name, getattr(self, name)[rows])

    def counts_by_type(self) -> dict[int, int]:
        """Return the number of events of each type."""
        kinds, counts = np.unique(self.type, return_counts=True)
        return dict(zip(kinds.tolist(), counts.tolist(), strict=True))


def read_block(
    data: bytes,
    state: ReaderState,
    *,
    base: int,
    clock: Clock,
    final: bool = False,
    size: int | None = None,
) -> tuple[EventColumns, int]:
    """Decode the complete events in `data`, which begins at byte `base` of its file.

    With `size`, only this many bytes are decoded. If at least PADDING arbitrary bytes follow
    them in `data`, the block need not be copied.

    Returns the events and the number of bytes consumed. An incomplete event or line at the end is
    not consumed; it is left for the next call, when the log has grown. With `final` nothing
    follows: an incomplete event is an oddity, and everything is consumed. `state` is updated to
    the end of the consumed bytes.
    """
    return _Block(data, len(data) if size is None else size, state, base, clock, final).read()


def first_year(fd: int, size: int, modified: datetime) -> int:
    """Return the year of the first date in a file whose dates have no year.

    The last event is the newest and cannot be later than the file's modification time. Each
    step back in the dates before it is a New Year. In a large file one date per 64 KB is enough,
    since that does not span a year.
    """
    dates: list[tuple[int, int]] = []
    step = 1 << 16
    for offset in range(0, max(size, 1), step):
        # Start at the newline before the chunk and read past its end: a header may span the edge.
        chunk = os.pread(fd, step + 64, offset - 1) if offset else b"\n" + os.pread(fd, step, 0)
        if size > _LARGE_BYTES and offset + step < size:
            first = YEARLESS_HEADER.search(chunk)
            headers = [first.groups()] if first else []
        else:
            headers = YEARLESS_HEADER.findall(chunk)
        dates += [(int(month), int(day)) for month, day in headers]
    if not dates:
        return modified.year
    # Allow one day more: the writer's time zone may be ahead of ours.
    latest = modified + timedelta(days=1)
    year = latest.year - (dates[-1] > (latest.month, latest.day))
    valid = [date for date in dates if 1 <= date[0] <= 12]
    of_year = np.array([_DAYS_BEFORE_MONTH[month] + day for month, day in valid])
    return int(year - _new_years(np.diff(of_year)).sum())


class _Headers(NamedTuple):
    """The lines that open an event, as columns, in log order."""

    line: Int64s  # index of the line
    type: Int64s
    cluster: Int64s
    proc: Int64s
    time_us: Int64s
    head: Int64s
    form: Int64s


class _Block:
    """One call of `read_block`; its steps share the block's lines."""

    def __init__(
        self, data: bytes, size: int, state: ReaderState, base: int, clock: Clock, final: bool
    ) -> None:
        self.data = data if len(data) - size >= PADDING else pad(data[:size])
        self.size, self.state, self.base = size, state, base
        self.clock, self.final = clock, final
        self.bytes = np.frombuffer(self.data, np.uint8)
        self.words = BlockWords(self.data)
        self.notes: list[tuple[int, str]] = []  # position and kind of each oddity
        self.uncited: dict[str, int] = {}  # number of further oddities, by kind
        self.layouts: list[Layout] = []
        self.ads: dict[int, Ad] = {}  # of JSON and XML events in another layout, by start
        self.years: tuple[Int64s, Int64s, Int64s] | None = None
        self.has_cr = False

    def read(self) -> tuple[EventColumns, int]:
        """Find the lines that open and close events, and pair them."""
        self.bounds = self._line_bounds()
        self.starts = self.bounds[:-1]
        self.first = first = self.bytes[self.starts]
        headers = self._text_headers(np.flatnonzero((first >= 48) & (first <= 57)))
        dots = self._closing_dots(np.flatnonzero(first == 46))
        ends = self._ends(headers.line, dots)
        openers = np.flatnonzero((first == 123) | (first == 60))  # { and <
        if len(openers):
            headers, ends = self._with_objects(headers, ends, openers)
        return self._assemble(headers, ends, dots)

    def _line_bounds(self) -> Int64s:
        """Return the start of each line, and one element more, past the end of the last line.

        A NUL also ends a line; a crash may leave a run of them.
        """
        view = self.bytes[: self.size]
        begins = np.empty(self.size + 2, np.bool_)
        begins[0] = begins[-1] = True
        np.equal(view, 10, out=begins[1:-1])
        nul = self.data.find(0, 0, self.size)
        if nul >= 0:
            self.notes.append((nul, "nul"))
            begins[1:-1] |= view == 0
        bounds = np.flatnonzero(begins)
        if self.base == 0 and self.data.startswith(b"\xef\xbb\xbf", 0, self.size):
            self.notes.append((0, "bom"))
            bounds[0] = 3
        return bounds

    def _text_headers(self, lines: Int64s) -> _Headers:
        """Decode `NNN (cluster.proc.subproc) date time text`; drop other lines."""
        at = self.starts[lines]
        front = self.words.fetch(at, 2)
        shaped = (front[0] & _OPENING_MASK) == _OPENING_SHAPE
        if not shaped.all():
            lines, at, front = lines[shaped], at[shaped], front[:, shaped]
        opening, number = front[0], word_in(front, 5)
        kind = (opening & _LOW_DIGIT).view(np.int64) * 100 + pair(opening, 1)
        cluster, count, at = signed_in(number, self.words, at + 5)  # -01 where there is no job
        good = (count > 0) & (self.bytes[at] == 46) & (np.abs(cluster) <= MAX_ID)
        at += 1
        proc, rest, fits = self._procs(at)
        time_us, head = self._times(rest, at + 9, good & fits)
        good = time_us != _NO_TIME
        headers = _Headers(lines, kind, cluster, proc, time_us, head, np.zeros_like(lines))
        return headers if good.all() else _Headers(*(column[good] for column in headers))

    def _procs(self, at: Int64s) -> tuple[Int64s, Words, Bools]:
        """Read `proc.subproc) `: return the proc, the words from it on, and whether it matches.

        Where the numbers do not have three digits each, `at` is moved and the words are fetched
        again, so that the date is at the same place in all of them.
        """
        loaded = self.words.fetch(at, 4)
        fits = (loaded[0] & _PROC_MASK) == _PROC_SHAPE
        proc = (loaded[0] & _LOW_DIGIT).view(np.int64) * 100 + pair(loaded[0], 1)
        odd = np.flatnonzero(~fits)
        if len(odd):
            proc[odd], fits[odd], at[odd] = self._odd_procs(at[odd])
            loaded[:, odd] = self.words.fetch(at[odd], 4)
        return proc, loaded, fits & (byte_of(loaded[1], 0) == 32)

    def _odd_procs(self, at: Int64s) -> tuple[Int64s, Bools, Int64s]:
        """Read such numbers of any length; return positions eight bytes before their end."""
        proc, count, at = signed_in(self.words[at], self.words, at)
        fits = (count > 0) & (self.bytes[at] == 46) & (np.abs(proc) <= MAX_ID)
        _, count, at = signed_in(self.words[at + 1], self.words, at + 1)
        fits &= (count > 0) & (self.bytes[at] == 41)
        return proc, fits, at + 1 - 8

    def _times(self, loaded: Words, at: Int64s, good: Bools) -> tuple[Int64s, Int64s]:
        """Read the time stamps: return UTC microseconds (or _NO_TIME), and where the text begins.

        `2026-11-16 02:01:34`, or `11/16 02:01:34` without a year. A fraction of a second may
        follow, and then `Z` for UTC. The stamps are at byte 9 of `loaded`.
        """
        front = word_in(loaded, 9)
        iso = byte_of(front, 4) == 45
        date, time = word_in(loaded, 14), word_in(loaded, 22)  # the formats agree from the month on
        end = at + 19
        if not iso.all():
            date, time = np.where(iso, date, front), np.where(iso, time, word_in(loaded, 17))
            end -= np.where(iso, 0, 5)
        shape = np.where(iso, _ISO_SHAPE, _YEARLESS_SHAPE)
        blank = byte_of(date, 5)
        good = good & ((date & _DATE_MASK) == shape) & ((time & _TIME_MASK) == _TIME_SHAPE)
        good &= (blank == 32) | (blank == 84)
        # Dates are equal within an hour: decode one of each run, and repeat it.
        fresh = np.flatnonzero((date[1:] != date[:-1]) | (front[1:] != front[:-1])) + 1
        runs = np.concatenate(([0], fresh))[: len(at)]
        lengths = np.append(runs[1:], len(at)) - runs
        good, seconds = self._hours(date[runs], front[runs], iso[runs], good, lengths)
        minute, second = pair(time, 1), pair(time, 4)
        good &= (minute <= 59) & (second <= 60)
        minute *= 60
        seconds += minute
        seconds += second
        micros, behind = None, byte_of(time, 6)
        fraction = np.flatnonzero(behind == 46)
        if len(fraction):
            value, count = digits(self.words, end[fraction] + 1)
            micros = np.zeros_like(at)
            micros[fraction] = value * 1_000_000 // 10**count
            end[fraction] += 1 + count
            behind = self.bytes[end].astype(np.uint64)
        utc = behind == 90
        if utc.any():
            end += utc
            behind = self.bytes[end].astype(np.uint64)
        good &= (behind == 32) | (behind == 10) | (behind == 13) | (behind == 0)
        local = good & ~utc
        if local.all():
            seconds = self.clock.to_utc(seconds, self.state.last_utc)
        elif local.any():
            seconds[local] = self.clock.to_utc(seconds[local], self.state.last_utc)
        time_us = seconds * 1_000_000
        if micros is not None:
            time_us += micros
        time_us[~good] = _NO_TIME
        end += behind == 32  # a header may also end right after its time
        return time_us, end

    def _hours(
        self, date: Words, front: Words, iso: Bools, good: Bools, lengths: Int64s
    ) -> tuple[Bools, Int64s]:
        """Decode one date and hour per run of equal ones; return seconds since 1970 per event."""
        month, day, hour = pair(date, 0), pair(date, 3), pair(date, 6)
        year = pair(front, 0) * 100 + pair(front, 2)
        fits = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (hour <= 23)
        fits &= ~iso | ((year >= FIRST_YEAR) & (year <= LAST_YEAR))
        good = good & np.repeat(fits, lengths)
        # A run counts for the years only if at least one of its lines is a header.
        real = np.logical_or.reduceat(good, np.cumsum(lengths) - lengths) if len(good) else good
        self._fill_years(year, month, day, ~iso & real & fits, np.cumsum(lengths))
        return good, np.repeat(days_since_1970(year, month, day) * 86400 + hour * 3600, lengths)

    def _fill_years(
        self, year: Int64s, month: Int64s, day: Int64s, yearless: Bools, until: Int64s
    ) -> None:
        """Fill in the year of dates without one: where dates step back, a new year begins."""
        rows = np.flatnonzero(yearless)
        if not len(rows):
            return
        of_year = _DAYS_BEFORE_MONTH[month[rows]] + day[rows]
        before = of_year[0] if self.state.day_of_year is None else self.state.day_of_year
        first = self.state.year or self._year_before()
        year[rows] = first + np.cumsum(_new_years(np.diff(of_year, prepend=before)))
        self.years = until[rows], year[rows], of_year

    def _year_before(self) -> int:
        """Return the year of the last event, for a log whose dates stop having a year."""
        if self.state.last_utc is None:
            return datetime.now(UTC).year
        return datetime.fromtimestamp(self.state.last_utc, UTC).year

    def _closing_dots(self, lines: Int64s) -> Int64s:
        """Keep the lines that are `...` and nothing else."""
        loaded = self.words[self.starts[lines]]
        behind = (loaded >> np.uint64(24)) & np.uint64(255)
        self.has_cr = bool((behind == 13).any())
        alone = (behind == 10) | (behind == 13) | (behind == 0)
        closing: Int64s = lines[((loaded & word(b"\xff\xff\xff")) == word(b"...")) & alone]
        return closing

    def _ends(self, lines: Int64s, closers: Int64s) -> Int64s:
        """Return, for each opening line, the line that ends its event.

        That is the next closing line, or the next opening line if the closing line is missing;
        past the last line if there is neither.
        """
        never = len(self.starts)
        n = len(lines)
        if n and n - len(closers) in (0, 1) and _alternate(lines, closers):
            return closers if len(closers) == n else np.append(closers, never)  # the usual case
        index = np.searchsorted(closers, lines)
        closing = np.append(closers, never)[index]
        ends: Int64s = np.minimum(closing, np.append(lines[1:], never))
        return ends

    def _with_objects(
        self, headers: _Headers, ends: Int64s, lines: Int64s
    ) -> tuple[_Headers, Int64s]:
        """Add the events that are JSON (`{` to `}`) or XML (`<c>` to `</c>`).

        `lines` are those that begin with `{` or `<`.
        """
        never = len(self.starts)
        is_json = self._equal(lines, b"{")
        opens = is_json | self._equal(lines, b"<c>")
        openers, form = lines[opens], np.where(is_json, JSON, XML)[opens]
        if not len(openers):
            return headers, ends
        closers = np.flatnonzero(self.first == _CLOSING_BRACE)
        json_end = _next(closers[self._equal(closers, b"}")], openers, never)
        xml_end = _next(lines[self._equal(lines, b"</c>")], openers, never)
        end = np.where(form == JSON, json_end, xml_end)
        # The closing line is missing if another event opens first.
        limit = np.minimum(np.append(openers[1:], never), _next(headers.line, openers, never))
        closed = end < limit
        # An opening line inside a closed text event belongs to that event.
        text_end = np.append(ends, -1)[np.searchsorted(headers.line, openers) - 1]
        alone = (openers >= text_end) | (text_end == never)
        cut_off = alone & ~closed & (limit == never)  # only the last one can be
        broken = alone & ~closed & ~cut_off
        self.notes += [(at, "malformed") for at in self.starts[openers[broken]].tolist()]
        whole = alone & (closed | cut_off) if self.final else alone & closed
        end[cut_off] = never
        added = np.empty((8, 0), np.int64)
        if whole.any():
            added = self._objects(openers[whole], end[whole], form[whole])
        if not self.final and cut_off.any():
            waiting = [openers[-1], -1, 0, 0, 0, self.starts[openers[-1]], form[-1], never]
            added = np.column_stack((added, waiting))
        columns = [np.append(a, b) for a, b in zip((*headers, ends), added, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        *merged, ends = (column[order] for column in columns)
        headers = _Headers(*merged)
        # A text event without its closing line ends where a complete object opens.
        openings = np.where(ends == never, never, headers.line)
        return headers, np.minimum(ends, np.append(openings[1:], never))

    def _objects(self, line: Int64s, end: Int64s, form: Int64s) -> Int64s:
        """Read JSON and XML events; return the columns of `_Headers`, and the closing lines."""
        from condor_advice.gather.layout import read_layout
        from condor_advice.gather.objects import layout_headers

        parts, rest = [], []
        for current in (JSON, XML):
            rows = np.flatnonzero((form == current) & (end < len(self.starts)))
            if not len(rows):
                continue
            xml = current == XML
            layout = read_layout(self.data, self.bounds, line[rows], end[rows], xml=xml)
            head = layout_headers(layout, self.words, xml=xml)
            self.layouts.append(layout)
            parts.append((rows[head.good], *(column[head.good] for column in head)))
            rest.append(rows[~head.good])
        rest.append(np.flatnonzero(end == len(self.starts)))
        others = np.concatenate(rest)
        if len(others):
            parts.append(self._parse_objects(others, line, end, form))
        merged = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(merged[0], kind="stable")
        rows, kind, cluster, proc, times, local, _ = (column[order] for column in merged)
        if local.any():
            utc = self.clock.to_utc(times[local] // 1_000_000, self.state.last_utc)
            times[local] = utc * 1_000_000 + times[local] % 1_000_000
        start = self.starts[line[rows]]
        columns = (line[rows], kind, cluster, proc, times, start, form[rows], end[rows])
        added: Int64s = np.stack(columns)
        return added

    def _parse_objects(
        self, rows: Int64s, line: Int64s, end: Int64s, form: Int64s
    ) -> tuple[npt.NDArray[Any], ...]:
        """Parse events in other layouts one by one; return the rows and headers of those valid."""
        from condor_advice.gather.objects import NOT_AN_EVENT, PARSERS, take_headers

        start = self.starts[line]
        stop = np.minimum(self.bounds[end] + _CLOSING_BYTES[form], self.size)
        ads, parsed = [], []
        for row in rows.tolist():
            begin = int(start[row])
            try:
                ads.append(PARSERS[int(form[row])](self.data[begin : int(stop[row])]))
            except NOT_AN_EVENT:
                self.notes.append((begin, "malformed"))
            else:
                parsed.append(row)
        kept = np.array(parsed, np.int64)
        head = take_headers(ads)
        self.notes += [(at, "malformed") for at in start[kept[~head.good]].tolist()]
        self.ads = dict(zip(start[kept].tolist(), ads, strict=True))
        return kept[head.good], *(column[head.good] for column in head)

    def _assemble(self, headers: _Headers, ends: Int64s, dots: Int64s) -> tuple[EventColumns, int]:
        """Drop incomplete events, note oddities, and build the columns."""
        starts, size = self.starts, self.size
        unfinished = ends == len(starts)
        consumed = size
        if self.final:
            at = starts[headers.line[unfinished]].tolist()
            self.notes += [(position, "torn") for position in at]
        elif unfinished.any():
            row = int(np.argmax(unfinished))
            consumed = int(starts[headers.line[row]])
            headers, ends = _Headers(*(column[:row] for column in headers)), ends[:row]
        elif int(starts[-1]) < size and len(starts) - 1 not in (*ends[-1:], *dots[-1:]):
            consumed = int(starts[-1])  # an incomplete line that does not close an event
        start = starts[headers.line]
        # A closing brace is part of its event; a closing `...` is not.
        end = self.bounds[ends] + _CLOSING_BYTES[headers.form]
        self._note_framing(headers, ends, dots, consumed)
        self._note_bytes(consumed)
        columns = EventColumns(
            source=self.data,
            size=consumed,
            base=self.base,
            type=headers.type.astype(np.int16),
            cluster=headers.cluster.astype(np.int32),
            proc=headers.proc.astype(np.int32),
            time_us=headers.time_us,
            form=headers.form.astype(np.uint8),
            start=start,
            head=headers.head,
            end=np.minimum(end, consumed),
        )
        kept = len(starts)
        if consumed < size and len(columns):
            kept = int(np.searchsorted(starts, consumed)) + 1
            self.bounds[kept] = consumed + 1
        columns._ads, columns._layouts = self.ads, self.layouts
        columns._frame = Frame(self.bounds[: kept + 1], self.first[:kept], headers.line, ends)
        self._note_duplicates(columns)
        self._keep_oddities(columns, consumed)
        if len(columns):
            self.state.last_utc = int(columns.time_us[-1] // 1_000_000)
        if self.years is not None:
            # The run of dates that contains the last complete event.
            until, years, of_year = self.years
            run = min(int(np.searchsorted(until, len(columns))), len(years) - 1)
            self.state.year, self.state.day_of_year = int(years[run]), int(of_year[run])
        return columns, consumed

    def _note_framing(self, headers: _Headers, ends: Int64s, dots: Int64s, consumed: int) -> None:
        """Note events without a closing line, and lines outside any event."""
        starts = self.starts
        last = int(np.searchsorted(starts, consumed))  # the number of consumed lines
        alternate = len(dots) == len(ends) and np.array_equal(ends, dots)
        if alternate and int((ends - headers.line).sum()) + len(ends) >= last:
            return  # every line belongs to an event, and every event is closed
        text = headers.form == TEXT
        index = np.searchsorted(dots, ends)
        closed = np.append(dots, -1)[np.minimum(index, len(dots))] == ends
        for row in np.flatnonzero(text & ~closed & (ends < len(starts))):
            self.notes.append((int(starts[headers.line[row]]), "unclosed"))
        covered = int((np.minimum(ends, last) - headers.line).sum())
        # `covered` does not include closing lines, so add them.
        if covered + int(closed.sum()) + int((~text).sum()) >= last:
            return
        inside = np.zeros(last + 1, np.int64)
        inside[headers.line] += 1
        np.add.at(inside, np.minimum(ends + (closed | ~text), last), -1)
        outside = np.flatnonzero(np.cumsum(inside[:-1]) == 0)
        for line in outside[self._line_lengths(outside) > 0].tolist():
            content = self._line(line)
            if content.strip() and not content.startswith(_XML_FRAME):
                self.notes.append((int(starts[line]), _foreign_kind(content)))

    def _note_bytes(self, consumed: int) -> None:
        if self.has_cr:
            self.notes.append((self.data.find(b"\r"), "crlf"))
        if self.bytes.max() > 127:
            try:
                self.data[:consumed].decode("utf-8")
            except UnicodeDecodeError as error:
                self.notes.append((error.start, "not_utf8"))

    def _note_duplicates(self, columns: EventColumns) -> None:
        """Note events that are exact duplicates of another in this block; keep them."""
        length = columns.end - columns.start
        mixed = columns.time_us * 31 + columns.type
        mixed = (mixed * 1_000_003 + columns.cluster) * 1_000_003 + columns.proc
        mixed = (mixed * 4099 + length) * _MIX
        # Few events share sixteen bits of the hash, and of these few share the next sixteen.
        rows = np.arange(len(mixed))
        for shift in (48, 32, 16):
            rows = rows[_sharing((mixed[rows] >> shift) & 0xFFFF)]
        seen: set[bytes] = set()
        repeated = []
        extents = zip(columns.start[rows].tolist(), columns.end[rows].tolist(), strict=True)
        for start, end in extents:
            text = self.data[start:end]
            if text in seen:
                repeated.append(start)
            else:
                seen.add(text)
        self.notes += [(start, "duplicate") for start in repeated[:MAX_ODDITIES]]
        if len(repeated) > MAX_ODDITIES:  # a log that was doubled
            self.uncited["duplicate"] = len(repeated) - MAX_ODDITIES

    def _keep_oddities(self, columns: EventColumns, consumed: int) -> None:
        notes = sorted(note for note in self.notes if note[0] < max(consumed, 1))
        columns.oddity_counts = Counter(kind for _, kind in notes)
        columns.oddity_counts.update(self.uncited)
        for at, kind in notes[:MAX_ODDITIES]:
            excerpt = self.data[at : at + EXCERPT_BYTES].split(b"\n", 1)[0]
            words = excerpt.decode("utf-8", "replace").strip("\r\0")
            columns.oddities.append(Oddity(self.base + at, kind, words))

    def _line(self, line: int) -> bytes:
        return self.data[self.starts[line] : self._line_end(line)].rstrip(b"\r\n\0")

    def _line_end(self, line: int) -> int:
        return int(self.starts[line + 1]) if line + 1 < len(self.starts) else self.size

    def _line_lengths(self, lines: npt.NDArray[np.intp]) -> Int64s:
        return self.bounds[lines + 1] - self.starts[lines] - 1

    def _equal(self, lines: Int64s, content: bytes) -> Bools:
        """Return which lines consist of `content`, up to eight bytes."""
        lengths = self._line_lengths(lines)
        ends = self.starts[lines] + lengths
        lengths -= (lengths > 0) & (self.bytes[ends - 1] == 13)
        loaded = self.words[self.starts[lines]] & word(b"\xff" * len(content))
        equal: Bools = (lengths == len(content)) & (loaded == word(content))
        return equal


_MIX = np.int64(0x1E3779B97F4A7C15)  # odd: spreads differences over the high bits
_CLOSING_BYTES = np.array([0, len(b"}"), len(b"</c>")])  # by form
_NO_TIME = np.iinfo(np.int64).min
_CLOSING_BRACE = 125
# The lines around the events of an XML log.
_XML_FRAME = (b"<?xml", b"<!DOCTYPE", b"<classads>", b"</classads>")


def _sharing(values: Int64s) -> npt.NDArray[np.intp]:
    """Return the indices of 16-bit values that occur more than once."""
    places = np.arange(len(values), dtype=np.int32)
    last = np.empty(1 << 16, np.int32)
    last[values] = places  # one of several equal values wins; the others then differ from it
    shared = np.zeros(1 << 16, np.bool_)
    shared[values[np.flatnonzero(last[values] != places)]] = True
    return np.flatnonzero(shared[values])


def _next(places: Int64s, at: Int64s, none: int) -> Int64s:
    """Return, for each line, the first of `places` at or after it; `none` if there is none."""
    following: Int64s = np.append(places, none)[np.searchsorted(places, at)]
    return following


def _alternate(lines: Int64s, closers: Int64s) -> bool:
    """Return whether opening and closing lines alternate; the last may be open."""
    count = len(closers)
    return bool((closers > lines[:count]).all() and (closers[: len(lines) - 1] < lines[1:]).all())


def _foreign_kind(line: bytes) -> str:
    if line == b"...":
        return "stray_closing"
    if line.startswith((b"<<<<<<<", b"=======", b">>>>>>>")):
        return "conflict_marker"
    return "foreign"


def _new_years(steps: Int64s) -> Int64s:
    """Return +1 where dates enter a new year, and -1 where a late event goes back to the old."""
    late = steps > 365 - DISORDER_DAYS
    return (steps < -DISORDER_DAYS).astype(np.int64) - late.astype(np.int64)
