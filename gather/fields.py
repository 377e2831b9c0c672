"""Read the fields of a block's events as columns, for millions of events at once.

`EventColumns.ad(row)` reads one event in plain Python and is the reference. This module reads the
same fields of all text events of a block with NumPy. A field has values only for the events that
have it, so each column comes with its rows. Lines in an unusual layout go to the reference reader
one by one. The layouts of JSON and XML events are known already; their attributes become columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.bodies import (
    HEADER_ATTRIBUTES,
    column_ends,
    parse_resource,
    resource_name,
)
from condor_advice.gather.classads import ASSIGNMENT
from condor_advice.gather.layout import BOOLEAN, INTEGER, REAL, Attribute
from condor_advice.gather.reader import TEXT, EventColumns
from condor_advice.gather.words import (
    BlockWords,
    Int64s,
    Words,
    blanks,
    byte_of,
    digits,
    equal_groups,
    first_of,
    pair,
    right_aligned,
    signed_in,
    sum_of,
    word,
    word_in,
)

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Numbers:
    """A numeric field: the events that have it, and its values there."""

    rows: Int64s
    values: Floats


@dataclass(frozen=True, slots=True)
class Texts:
    """A text field: the events that have it, and where its bytes are in the block."""

    rows: Int64s
    start: Int64s
    end: Int64s
    data: bytes = field(repr=False)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield (row, text)."""
        for row, start, end in zip(
            self.rows.tolist(), self.start.tolist(), self.end.tolist(), strict=True
        ):
            words = self.data[start:end].decode("utf-8", "replace")
            if "\n" in words:  # HTCondor indents the further lines of a reason
                words = "\n".join(line.strip() for line in words.splitlines())
            yield row, words.strip()


@dataclass(slots=True)
class Values:
    """An attribute of JSON and XML events: the events that have it, and its values there.

    Values are decoded on access.
    """

    data: bytes = field(repr=False)
    laid_out: list[tuple[Int64s, Attribute]] = field(default_factory=list)  # with their rows
    parsed: list[tuple[int, Any]] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Yield (row, value), not in log order."""
        from condor_advice.gather.objects import parse_value

        for rows, attribute in self.laid_out:
            extents = attribute.start.tolist(), attribute.end.tolist()
            for row, start, end in zip(rows.tolist(), *extents, strict=True):
                yield row, parse_value(self.data[start:end])
        yield from self.parsed

    def numbers(self) -> Numbers:
        """Return the values that are numbers or booleans."""
        chosen = [np.isin(attribute.kind, _NUMERIC) for _, attribute in self.laid_out]
        parsed = [(row, value) for row, value in self.parsed if isinstance(value, int | float)]
        rows = [rows[which] for (rows, _), which in zip(self.laid_out, chosen, strict=True)]
        values = [a.number[which] for (_, a), which in zip(self.laid_out, chosen, strict=True)]
        return Numbers(
            np.concatenate((*rows, np.array([row for row, _ in parsed], np.int64))),
            np.concatenate((*values, np.array([value for _, value in parsed], np.float64))),
        )


@dataclass(slots=True)
class Fields:
    """All fields of a block, by HTCondor's names.

    CPU times are in seconds, split into user and system: `RunRemoteUsageUsr` and so on.
    Attributes of 028 events are ClassAd text, with strings in quotes. Attributes of JSON and XML
    events are all in `values`.
    """

    count: int
    numbers: dict[str, Numbers] = field(default_factory=dict)
    texts: dict[str, Texts] = field(default_factory=dict)
    attributes: dict[str, Texts] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=dict)

    def dense(self, name: str) -> Floats:
        """Return a numeric field with one value per event, NaN where an event has none."""
        values = np.full(self.count, np.nan)
        if name in self.numbers:
            column = self.numbers[name]
            values[column.rows] = column.values
        return values


def read_fields(columns: EventColumns) -> Fields:
    """Read the fields of all events of a block."""
    text = columns.form == TEXT
    fields = _FieldReader(columns).read() if text.any() else Fields(len(columns))
    if not text.all():
        fields.values = _object_values(columns)
    return fields


def _object_values(columns: EventColumns) -> dict[str, Values]:
    """Return the attributes of JSON and XML events, by name."""
    values: dict[str, Values] = {}
    left = columns.form != TEXT
    for layout in columns.layouts():
        rows = np.searchsorted(columns.start, layout.start)
        # Some of these events may be beyond the end of the block, or have no job or time.
        known = np.append(columns.start, -1)[rows] == layout.start
        left[rows[layout.good & known]] = False
        for name, attribute in layout.attributes.items():
            if name not in HEADER_ATTRIBUTES:
                if not known.all():
                    kept = known[attribute.event]
                    attribute = Attribute(*(column[kept] for column in attribute))
                column = values.setdefault(name, Values(columns.source))
                column.laid_out.append((rows[attribute.event], attribute))
    for row in np.flatnonzero(left).tolist():
        for name, value in columns.ad(row).items():
            values.setdefault(name, Values(columns.source)).parsed.append((row, value))
    return values


_NUMERIC = (INTEGER, REAL, BOOLEAN)
_NO_TEXT = 999  # used as the type of JSON and XML events
_SENT, _RECEIVED = 83, 82  # S and R
_BLANK, _COLON, _POINT, _QUOTE = 32, 58, 46, 34
_TAB, _EQUALS = 9, 61
_NAME_WORDS, _MOST_NAME_WORDS = 4, 8  # for `Name = `; longer names are read one by one
_RESOURCES = ("Cpus", "Disk", "GPUs", "Memory")
# The rows of a terminated job's resource table, by their first eight bytes.
_TABLE = {
    "Cpus": b"Cpus    ",
    "Disk": b"Disk (KB",
    "GPUs": b"GPUs    ",
    "Memory": b"Memory (",
    "TimeExecute": b"TimeExec",
    "TimeSlotBusy": b"TimeSlot",
}
_COLUMNS = ("Usage", "Request", "Allocated")


def _titles(resource: str) -> list[str]:
    """Return HTCondor's names for the columns of one resource."""
    return [resource + "Usage", "Request" + resource, resource]


_TITLES = [title for resource in _TABLE for title in _titles(resource)]
_NO_PLACE = np.int16(-1)
_THREE = np.arange(3, dtype=np.int16)[:, None]
_USAGES = {
    "RunRemoteUsage": b"Run Remo",
    "RunLocalUsage": b"Run Loca",
    "TotalRemoteUsage": b"Total Re",
    "TotalLocalUsage": b"Total Lo",
}
_SIZES = {
    "MemoryUsage": b"MemoryUs",
    "ResidentSetSize": b"Resident",
    "ProportionalSetSize": b"Proporti",
}
_PROPERTIES = {name: b"\t" + name.encode() + b" = " for name in _RESOURCES}


_DAYS_MASK = word(b"\xff\xff\xff\xff\xff\xff\xf0\xff")
_USER_DAYS, _SYSTEM_DAYS = word(b"\t\tUsr 0 "), word(b", Sys 0 ")
_CELL_MASK, _CELL_SHAPE = word(b"\0\xff\xff"), word(b"\0: ")
_GAP_MASK, _GAP_SHAPE = word(b"\0\0\0\0\xff\xff"), word(b"\0\0\0\0  ")
_BLANKS = word(b" " * 8)
# A cell such as `    0.25`, with its point removed: `     025`.
_BEFORE_POINT, _BEHIND_POINT = word(b"\0" + b"\xff" * 5), word(b"\0" * 6 + b"\xff" * 2)
_BLANK_FIRST = word(b" ")


def _kinds(*kinds: int) -> Bools:
    """Return a boolean table over all event numbers, true for these."""
    table = np.zeros(1000, np.bool_)
    table[list(kinds)] = True
    return table


_HAS_REASON = _kinds(7, 9, 12, 13, 21, 22, 24)  # as the first line of its body
_HAS_CODES = _kinds(12, 21)
_HAS_TERMINATION = _kinds(4, 5, 15, 16)


def _begins(loaded: Words, text: bytes) -> Bools:
    """Return which words begin with `text`, up to eight bytes."""
    mask = word(b"\xff" * len(text))
    begins: Bools = (loaded & mask) == word(text)
    return begins


class _FieldReader:
    """One call of `read_fields`; its steps share the block's body lines."""

    def __init__(self, columns: EventColumns) -> None:
        self.columns = columns
        padded = columns.padded()
        self.bytes = np.frombuffer(padded, np.uint8)
        self.words = BlockWords(padded)
        self.has_cr = b"\r" in padded
        self.fields = Fields(len(columns))
        self.asked: list[tuple[str, Int64s, Int64s]] = []  # numbers to read: name, rows, positions
        self.asked_codes: list[tuple[str, Int64s, Int64s]] = []  # and those followed by a subcode
        self.head = columns.head
        self.starts, self.first, self.opening, self.closing = columns.frame()
        text = columns.form == TEXT
        self.kind = np.where(text, columns.type, _NO_TEXT)
        # For each line of the block, the event opened last; -1 before the first.
        before = int(self.opening[0]) if len(columns) else len(self.first)
        until = np.append(self.opening[1:], len(self.first))[: len(columns)]
        spans = np.append(before, until - self.opening)
        self.row = np.repeat(np.arange(-1, len(columns)), spans)
        # The usual case: all events are text, and each begins where the one before ends.
        self.whole = (
            before == 0
            and bool(text.all())
            and np.array_equal(self.closing[:-1] + 1, self.opening[1:])
        )

    def _tabbed(self) -> Int64s:
        """Return the lines of bodies that begin with a tab."""
        lines = np.flatnonzero(self.first == _TAB)
        if len(lines) and self.whole and lines[-1] < self.closing[-1]:
            return lines  # lines that open or close an event never begin with a tab
        return self._inside(lines)

    def _inside(self, lines: Int64s) -> Int64s:
        """Keep the lines that are in the body of a text event."""
        lines = lines[self.row[lines] >= 0]
        row = self.row[lines]
        inside = (lines > self.opening[row]) & (lines < self.closing[row])
        kept: Int64s = lines[inside & (self.kind[row] != _NO_TEXT)]
        return kept

    def _kinds(self, lines: Int64s) -> Int64s:
        """Return the types of the events that lines belong to."""
        kinds: Int64s = self.kind[self.row[lines]]
        return kinds

    def _ends(self, lines: Int64s) -> Int64s:
        """Return where lines end, without their line terminators."""
        ends: Int64s = self.starts[lines + 1] - 1
        if self.has_cr:
            ends -= self.bytes[ends - 1] == 13
        return ends

    def read(self) -> Fields:
        """Read all groups of fields, each from the lines that look like it."""
        self._headers()
        tabbed = self._tabbed()
        second = self.bytes[self.starts[tabbed] + 1]

        def with_second(chosen: Bools) -> Int64s:
            lines: Int64s = tabbed[np.flatnonzero(chosen)]
            return lines

        self._numbers(with_second((second >= 48) & (second <= 57)))
        self._cpu_times(with_second((second == _TAB) | (second == 85)))
        self._resources(with_second(second == _BLANK))
        self._terminations(with_second(second == 40))
        self._named(with_second(second >= 65))
        self._reasons()
        if (self.kind == 28).any():
            self._attributes(self._inside(np.flatnonzero(self.kind[self.row] == 28)))
        self._answer()
        return self.fields

    # Header lines.

    def _headers(self) -> None:
        self._header_host("SubmitHost", 0, 19)  # "Job submitted from host: "
        self._header_host("ExecuteHost", 1, 17)  # "Job executing on host: "
        image = self._header_lines(6, b"Image si")
        self._number("Size", image, self.head[image] + 27)
        evicted = self._header_lines(4, b"Job was ")
        at = self.head[evicted] + 16
        coded = _begins(self.words[at], b" Code ")
        self._code_pair("Reason", evicted[coded], at[coded] + 6)
        failed = self._header_lines(21, b"Error fr")
        self._error_hosts(failed)
        self._transfers(self._header_lines(40, b""))

    def _header_lines(self, kind: int, text: bytes) -> Int64s:
        rows = np.flatnonzero(self.kind == kind)
        return rows[_begins(self.words[self.head[rows]], text)] if text else rows

    def _header_host(self, name: str, kind: int, at: int) -> None:
        rows = self._header_lines(kind, b"")
        rows = rows[_begins(self.words[self.head[rows] + at], b"host: ")]
        self._text(name, rows, self.head[rows] + at + 6, self._ends(self.opening[rows]))

    def _error_hosts(self, rows: Int64s) -> None:
        """Read `Error from starter on HOST:`; other daemons are rare and left out."""
        usual = _begins(self.words[self.head[rows] + 11], b"starter ")
        rows = rows[usual]
        end = self._ends(self.opening[rows])
        end = end - (self.bytes[end - 1] == _COLON)
        self._text("ExecuteHost", rows, self.head[rows] + 22, end)

    def _transfers(self, rows: Int64s) -> None:
        """Read `Started transferring input files` and similar lines."""
        head = self.words.fetch(self.head[rows], 4)
        kinds = np.zeros(len(rows))
        for base, text, at in ((1, b"Entered ", 26), (2, b"Started ", 21), (3, b"Finished", 22)):
            these = np.flatnonzero(head[0] == word(text))
            direction = byte_of(head[at // 8][these], at % 8)
            # i for input, o for output.
            kinds[these] = (direction == 105) * base + (direction == 111) * (base + 3)
        known = np.flatnonzero(kinds)
        self._add("Type", rows[known], kinds[known])

    # Body lines.

    def _numbers(self, lines: Int64s) -> None:
        """Read `\\t123  -  Run Bytes Sent By Job` and similar lines."""
        at = self.starts[lines] + 1
        value, count = digits(self.words, at)
        at += count
        behind = self.words.fetch(at, 3)
        dashed = _begins(behind[0], b"  -  ")
        if not dashed.all():
            lines, value, behind = lines[dashed], value[dashed], behind[:, dashed]
        label, row = word_in(behind, 5), self.row[lines]
        for name, text in _SIZES.items():
            these = np.flatnonzero(label == word(text))
            self._add(name, row[these], value[these])
        for prefix, text, skip in (("", b"Run Byte", 15), ("Total", b"Total By", 17)):
            these = np.flatnonzero(label == word(text))
            direction = byte_of(behind[skip // 8][these], skip % 8)
            for letter, name in ((_SENT, "SentBytes"), (_RECEIVED, "ReceivedBytes")):
                chosen = these[direction == letter]
                self._add(prefix + name, row[chosen], value[chosen])

    def _cpu_times(self, lines: Int64s) -> None:
        """Read `Usr 0 00:01:02, Sys 0 00:00:03  -  Run Remote Usage`."""
        loaded = self.words.fetch(self.starts[lines], 6)
        days, more = loaded[0], loaded[2]
        # Nearly always two tabs and less than ten days.
        usual = ((days & _DAYS_MASK) == _USER_DAYS) & ((more & _DAYS_MASK) == _SYSTEM_DAYS)
        user, system = _seconds(loaded[1], days), _seconds(loaded[3], more)
        label, row = word_in(loaded, 37), self.row[lines]
        odd = np.flatnonzero(~usual)
        if len(odd):
            label[odd], user[odd], system[odd] = self._odd_cpu_times(lines[odd])
        for name, text in _USAGES.items():
            these = np.flatnonzero(label == word(text))
            self._add(name + "Usr", row[these], user[these])
            self._add(name + "Sys", row[these], system[these])

    def _odd_cpu_times(self, lines: Int64s) -> tuple[Words, Int64s, Int64s]:
        """Read such lines with one tab or ten days and more: label, user and system time."""
        at = self.starts[lines] + 1
        at += self.bytes[at] == 9
        fits = _begins(self.words[at], b"Usr ")
        user, at = self._clock(at + 4)
        system, at = self._clock(at + 6)  # past ", Sys "
        return np.where(fits, self.words[at + 5], 0), user, system

    def _clock(self, at: Int64s) -> tuple[Int64s, Int64s]:
        """Read `days HH:MM:SS` into seconds."""
        days, count = digits(self.words, at)
        at = at + count + 1
        return _seconds(self.words[at]) + days * 86400, at + 8

    def _resources(self, lines: Int64s) -> None:
        """Read the rows of the table of partitionable resources.

        `\\t   Memory (MB)          :       66       64        64 `: the colon and the right
        ends of the cells are at fixed places unless a name or a number is wider.
        """
        kind = self._kinds(lines)
        lines = lines[(kind == 4) | (kind == 5)]
        at = self.starts[lines]
        loaded = self.words.fetch(at, 7)
        width = self._ends(lines) - at
        usual = (loaded[3] & _CELL_MASK) == _CELL_SHAPE  # bytes 25 and 26
        usual &= byte_of(loaded[4], 3) == _BLANK
        usual &= (loaded[5] & _GAP_MASK) == _GAP_SHAPE  # bytes 44 and 45
        usual &= (width >= 44) & ((width <= 54) | (byte_of(loaded[6], 6) <= _BLANK))
        if not usual.all():
            self._odd_tables(lines[~usual])
            lines, at, width = lines[usual], at[usual], width[usual]
            loaded = loaded[:, usual]
        # Usage, request and allocation of all rows at once, and which cells are filled.
        cells = np.stack((word_in(loaded, 27), word_in(loaded, 36), word_in(loaded, 46)))
        hundredths = np.flatnonzero(byte_of(cells[0], 5) == _POINT)
        whole, part = cells[0, hundredths] << np.uint64(8), cells[0, hundredths]
        cells[0, hundredths] = (whole & _BEFORE_POINT) | (part & _BEHIND_POINT) | _BLANK_FIRST
        numbers, filled = right_aligned(cells)
        filled[2] &= width >= 54
        values = numbers.astype(np.float64)
        values[0, hundredths] /= 100
        odd = np.flatnonzero(~filled[0] & (cells[0] != _BLANKS))
        if len(odd):
            values[0, odd], filled[0, odd], fits = self._cells(at[odd] + 27, at[odd] + 35)
            if not fits.all():
                filled[:, odd[~fits]] = False
                self._odd_tables(lines[odd[~fits]])
        self._add_rows(lines, word_in(loaded, 4), values, filled)

    def _add_rows(self, lines: Int64s, name: Words, values: Floats, filled: Bools) -> None:
        """Add the cells of table rows, which begin with `name`; axes: (column, row)."""
        places = np.full(len(lines), _NO_PLACE, np.int16)
        for place, text in enumerate(_TABLE.values()):
            places[name == word(text)] = 3 * place
        titles = [*_TITLES]
        other = np.flatnonzero(places == _NO_PLACE)
        if len(other):  # custom resources
            loaded = self.words.fetch(self.starts[lines[other]], _MOST_NAME_WORDS)
            for group in equal_groups(sum_of(loaded, first_of(loaded, _COLON))):
                resource = resource_name(self._line(lines[other[group[0]]]))
                if resource:
                    places[other[group]] = len(titles)
                    titles += _titles(resource)
        # Find the column and resource of each cell, then sort the cells by these.
        none = np.int16(len(titles))
        places[places == _NO_PLACE] = none
        places = np.where(filled & (places < none), places + _THREE, none)
        order = np.argsort(places, axis=None, kind="stable")
        row, values = np.tile(self.row[lines], 3)[order], values.ravel()[order]
        ends = np.cumsum(np.bincount(places.ravel(), minlength=none)).tolist()
        for title, first, end in zip(titles, (0, *ends), ends, strict=False):
            self._add(title, row[first:end], values[first:end])

    def _odd_tables(self, lines: Int64s) -> None:
        """Read rows with cells at other places, as given by the table's headline."""
        tabbed = self._tabbed()
        heads = tabbed[self.words[self.starts[tabbed]] == word(b"\tPartiti")]
        head = np.append(heads, -1)[np.searchsorted(heads, lines) - 1]
        under = (head >= 0) & (head < lines) & (self.row[head] == self.row[lines])
        lines, head = lines[under], head[under]
        if not len(lines):
            return
        colon = first_of(self.words.fetch(self.starts[lines], _MOST_NAME_WORDS), _COLON)
        loaded = self.words.fetch(self.starts[head], _MOST_NAME_WORDS)
        layout = sum_of(loaded, self._ends(head) - self.starts[head])
        for group in equal_groups(layout ^ colon.view(np.uint64)):
            self._table(lines[group], self._line(head[group[0]]), int(colon[group[0]]))

    def _table(self, lines: Int64s, headline: str, colon: int) -> None:
        """Read rows with the same colon position, under equal headlines."""
        at, until = self.starts[lines], self._ends(lines)
        left = colon + 1
        values, filled, fits = np.zeros((3, len(at))), np.zeros((3, len(at)), np.bool_), at > -1
        # A long name makes a row wider than its headline.
        wider = colon - headline.index(":")
        for place, (title, end) in enumerate(column_ends(headline)[:3]):
            right = np.minimum(at + end + wider, until)
            values[place], filled[place], alone = self._cells(at + left, right)
            fits &= alone & (title == _COLUMNS[place])
            left = end + wider
        self._add_rows(lines[fits], self.words[at[fits] + 4], values[:, fits], filled[:, fits])
        for line in lines[~fits].tolist():
            row = self.row[line : line + 1]
            for name, value in parse_resource(self._line(line), headline).items():
                if isinstance(value, int | float) and not name.startswith("Assigned"):
                    self._add(name, row, np.array([value]))

    def _line(self, line: int) -> str:
        start, end = self.starts[line], self.starts[line + 1] - 1
        return self.columns.source[start:end].decode("utf-8", "replace")

    def _cells(self, at: Int64s, until: Int64s) -> tuple[Floats, Bools, Bools]:
        """Read the number between two positions of a row.

        Also return which rows have a number there, and which have nothing else there.
        """
        for _ in range(2):  # a cell may be wider than a word
            at = at + blanks(self.words[at])
        value, count = digits(self.words, at)
        values, end = value.astype(np.float64), at + count
        point = np.flatnonzero((self.bytes[end] == _POINT) & (count > 0))
        if len(point):
            part, places = digits(self.words, end[point] + 1)
            values[point] += part / 10.0**places
            end[point] += 1 + places
        empty = at >= until
        filled = (count > 0) & ~empty
        alone = (end <= until) & (end + blanks(self.words[end]) >= until)
        return values, filled, empty | (filled & alone)

    def _terminations(self, lines: Int64s) -> None:
        """Read `(1) Normal termination (return value 0)` and `(0) Abnormal termination ...`."""
        lines = lines[_HAS_TERMINATION[self._kinds(lines)]]
        at, row = self.starts[lines], self.row[lines]
        word_at = self.words[at + 1]
        normal = word_at == word(b"(1) Norm")
        abnormal = word_at == word(b"(0) Abno")
        self._number("ReturnValue", row[normal], at[normal] + 38)
        self._number("TerminatedBySignal", row[abnormal], at[abnormal] + 34)
        either = normal | abnormal
        self._add("TerminatedNormally", row[either], normal[either])
        requeued = (word_at == word(b"(0) Job ")) & (self.words[at + 9] == word(b"terminat"))
        self._add("TerminatedAndRequeued", row[requeued], np.ones(int(requeued.sum())))
        # A requeued job's reason is on the line after its termination.
        evicted = either & (self._kinds(lines) == 4)
        reason, row = lines[evicted] + 1, row[evicted]
        inside = reason < self.closing[row]
        reason, row = reason[inside], row[inside]
        self._text("Reason", row, self.starts[reason], self._ends(reason))

    def _code_pair(self, name: str, row: Int64s, at: Int64s) -> None:
        if len(row):
            self.asked_codes.append((name, row, at))

    def _named(self, lines: Int64s) -> None:
        """Read labelled lines, such as `\\tSlotName: ` and `\\tCode 21 Subcode 102`."""
        load, kind = self.words[self.starts[lines]], self._kinds(lines)
        self.code_lines = lines[_begins(load, b"\tCode ") & _HAS_CODES[kind]]
        coded = self.row[self.code_lines]
        self._code_pair("HoldReason", coded, self.starts[self.code_lines] + 6)
        slot = lines[load == word(b"\tSlotNam")]
        self._text("SlotName", self.row[slot], self.starts[slot] + 11, self._ends(slot))
        reason = lines[(load == word(b"\tReason:")) & (kind == 4)]
        self._text("Reason", self.row[reason], self.starts[reason] + 9, self._ends(reason))
        host = lines[(load == word(b"\tTransfe")) & (kind == 40)]
        skip = 23 + 2 * (self.bytes[self.starts[host] + 14] == 102)  # f for "from host"
        self._text("Host", self.row[host], self.starts[host] + skip, self._ends(host))
        queue = lines[load == word(b"\tSeconds")]
        self._number("QueueingDelay", self.row[queue], self.starts[queue] + 25)
        suspended = lines[(load == word(b"\tNumber ")) & (kind == 10)]
        self._number("NumberOfPIDs", self.row[suspended], self.starts[suspended] + 42)
        running = np.flatnonzero(kind == 1)
        load, lines = load[running], lines[running]
        for name, text in _PROPERTIES.items():
            these = lines[load == word(text[:8])]
            self._number(name, self.row[these], self.starts[these] + len(text))

    def _reasons(self) -> None:
        """Read reasons: the first line of a body, and what follows up to the codes."""
        codes = np.zeros(len(self.columns) + 1, np.int64)
        codes[self.row[self.code_lines]] = self.starts[self.code_lines]
        lines = self._first_lines(_HAS_REASON[self.kind])
        row, kind = self.row[lines], self._kinds(lines)
        start, end = self.starts[lines], self._ends(lines)
        coded = codes[row]
        # A hold reason or remote error may have several lines; the codes end it.
        last = np.where(coded > 0, coded - 1, self.columns.end[row] - 1)
        end = np.where((kind == 12) | (kind == 21), np.maximum(last, start), end)
        empty = (coded == start) | (end <= start + 1)
        number = (self.bytes[start + 1] >= 48) & (self.bytes[start + 1] <= 57)
        none = self.words[start + 1] == word(b"Reason u")  # "Reason unspecified"
        kept = ~empty & ~((kind == 7) & number) & ~((kind == 12) & none)
        for kinds, name in ((7, "Message"), (12, "HoldReason"), (21, "ErrorMsg")):
            these = kept & (kind == kinds)
            self._text(name, row[these], start[these], end[these])
        these = kept & ((kind == 9) | (kind == 13) | (kind == 24))
        self._text("Reason", row[these], start[these], end[these])
        these = kept & (kind == 22)
        self._text("DisconnectReason", row[these], start[these], end[these])
        notes = self._first_lines(self.kind == 0)
        self._text("LogNotes", self.row[notes], self.starts[notes], self._ends(notes))

    def _first_lines(self, wanted: Bools) -> Int64s:
        """Return the first body line of each wanted event that has a body."""
        wanted = wanted & (self.closing - self.opening > 1)
        first: Int64s = self.opening[wanted] + 1
        return first

    def _attributes(self, lines: Int64s, words: int = _NAME_WORDS) -> None:
        """Read the `Name = value` lines of 028 events, by name."""
        loaded = self.words.fetch(self.starts[lines], words)
        size = first_of(loaded, _EQUALS) + len("= ")  # of everything before the value
        long = size > 8 * words
        if long.any():
            if words < _MOST_NAME_WORDS:
                self._attributes(lines[long], _MOST_NAME_WORDS)
            else:
                self._odd_attributes(lines[long])
            lines, size, loaded = lines[~long], size[~long], loaded[:, ~long]
        for group in equal_groups(sum_of(loaded, size)):
            these, before = lines[group], int(size[group[0]])
            start = self.starts[these]
            front = self.columns.source[int(start[0]) : int(start[0]) + before]
            name = front[:-3].decode("ascii", "replace")
            if front.endswith(b" = ") and name.isidentifier():
                places = self.row[these], start + before, self._ends(these)
                self._extend(self.fields.attributes, name, *places)
            else:
                self._odd_attributes(these)

    def _odd_attributes(self, lines: Int64s) -> None:
        """Read such lines with other spacing or unusual names one by one."""
        starts, ends, rows = self.starts[lines], self._ends(lines), self.row[lines]
        for row, start, end in zip(rows, starts, ends, strict=True):
            line = self.columns.source[start:end].decode("utf-8", "replace")
            if match := ASSIGNMENT.match(line):
                value = start + len(line[: match.start(2)].encode())
                places = (np.array([place]) for place in (row, value, end))
                self._extend(self.fields.attributes, match[1], *places)

    # Values.

    def _signed(self, at: Int64s) -> tuple[Int64s, Int64s]:
        value, _, after = signed_in(self.words[at], self.words, at)
        return value, after

    def _number(self, name: str, row: Int64s, at: Int64s) -> None:
        """Request the number at each position; those of a block are read together."""
        if len(row):
            self.asked.append((name, row, at))

    def _answer(self) -> None:
        for name, row, after in self._read_asked(self.asked_codes, "Code"):
            self._number(name + "SubCode", row, after + 9)  # past " Subcode "
        self._read_asked(self.asked)

    def _read_asked(
        self, asked: list[tuple[str, Int64s, Int64s]], suffix: str = ""
    ) -> list[tuple[str, Int64s, Int64s]]:
        """Read the requested numbers of several fields at once; return fields and their ends."""
        if not asked:
            return []
        at = np.concatenate([places for _, _, places in asked])
        value, after = self._signed(at)
        values, some = value.astype(np.float64), after > at
        ends, first = [], 0
        for name, row, places in asked:
            these = slice(first, first + len(places))
            first = these.stop
            ends.append((name, row, after[these]))
            if some[these].all():
                self._add(name + suffix, row, values[these])
            else:
                self._add(name + suffix, row[some[these]], values[these][some[these]])
        return ends

    def _add(self, name: str, row: Int64s, values: npt.NDArray[Any]) -> None:
        if not len(row):
            return
        column = Numbers(row, values.astype(np.float64, copy=False))
        if name in self.fields.numbers:
            old = self.fields.numbers[name]
            column = Numbers(np.append(old.rows, row), np.append(old.values, column.values))
        self.fields.numbers[name] = column

    def _text(self, name: str, row: Int64s, start: Int64s, end: Int64s) -> None:
        if len(row):
            self._extend(self.fields.texts, name, row, start, end)

    def _extend(
        self, texts: dict[str, Texts], name: str, row: Int64s, start: Int64s, end: Int64s
    ) -> None:
        if name in texts:
            old = texts[name]
            row, start, end = (
                np.append(a, b) for a, b in ((old.rows, row), (old.start, start), (old.end, end))
            )
        texts[name] = Texts(row, start, end, self.columns.source)


def _seconds(clock: Words, days: Words | None = None) -> Int64s:
    """Read `HH:MM:SS`, and one digit of days in the seventh byte of another word."""
    seconds = pair(clock, 0)
    if days is not None:
        seconds += (byte_of(days, 6) & np.uint64(15)).view(np.int64) * 24
    seconds *= 60
    seconds += pair(clock, 3)
    seconds *= 60
    seconds += pair(clock, 6)
    return seconds
