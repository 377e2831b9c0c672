"""Read JSON and XML events in HTCondor's own layout, one attribute per line, with NumPy.

An event that passes every check here is well-formed, and the columns say where its attributes
are. Any other event (escapes, non-ASCII bytes, an ad within a nested ad, another layout) is left
to a parser, which decides whether it is an event at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from condor_advice.gather.words import (
    BlockWords,
    Int64s,
    Words,
    blanks,
    byte_of,
    digits,
    equal_groups,
    first_of,
    signed_in,
    sum_of,
    word,
)

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

# What a line is: an attribute with a value of some kind, or the end of a nested ad.
_OTHER, STRING, INTEGER, REAL, BOOLEAN, NULL, NESTED, _CLOSER = range(8)
_NAME_WORDS = 4
_MAX_DIGITS = 15  # a float holds these exactly
_QUOTE, _BRACE, _CLOSING_BRACE, _COMMA, _BACKSLASH = 34, 123, 125, 44, 92
_LESS, _GREATER, _AMPERSAND, _NEWLINE, _POINT, _ZERO = 60, 62, 38, 10, 46, 48
_JSON_REAL = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_XML_REAL = re.compile(rb"-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_ENTITIES = (b"&lt;", b"&gt;", b"&amp;", b"&quot;", b"&apos;")


class Attribute(NamedTuple):
    """One attribute: the events that have it, and its values."""

    event: Int64s
    kind: Bytes
    start: Int64s  # of the value as written, with its quotes or tags
    end: Int64s
    number: Floats  # of integers, reals and booleans


@dataclass(frozen=True, slots=True)
class Layout:
    """The events in HTCondor's layout, and their attributes outside of nested ads."""

    start: Int64s  # where each event begins
    good: Bools  # whether it is in that layout
    attributes: dict[str, Attribute]


class _Lines(NamedTuple):
    """The lines inside events, as columns."""

    event: Int64s
    at: Int64s
    end: Int64s
    last: Bools  # the last line of its event


class _Parts(NamedTuple):
    """The parts of each line, as columns."""

    kind: Bytes
    deep: Bools  # inside a nested ad
    name: Words  # the words of the name
    name_at: Int64s
    length: Int64s  # of the name
    start: Int64s
    end: Int64s
    number: Floats
    fits: Bools


def read_layout(
    data: bytes, starts: Int64s, opening: Int64s, closing: Int64s, *, xml: bool
) -> Layout:
    """Read the events between opening and closing lines, either all JSON or all XML.

    `data` is padded; `starts` are the starts of its lines.
    """
    if not len(opening):
        return Layout(opening, np.zeros(0, np.bool_), {})
    counts = closing - opening - 1
    event = np.repeat(np.arange(len(opening)), counts)
    line = np.arange(len(event)) + np.repeat(opening + 1 - (np.cumsum(counts) - counts), counts)
    last = np.zeros(len(event), np.bool_)
    last[np.cumsum(counts)[counts > 0] - 1] = True
    lines = _Lines(event, starts[line], starts[line + 1] - 1, last)
    view, words = np.frombuffer(data, np.uint8), BlockWords(data)
    begin, until = starts[opening], starts[closing]
    if xml:
        parts = _xml_parts(data, view, words, lines)
        fits = parts.fits & _xml_counts(view, words, begin, until, parts, lines)[event]
    else:
        parts = _json_parts(data, view, words, lines)
        fits = parts.fits & _json_counts(data, view, begin, until, parts, lines)[event]
    fits &= _nesting(parts, lines)
    good = counts > 0
    good[event[~fits]] = False
    good &= _clean(view, begin, until, closing - opening)
    attributes = _attributes(data, parts, lines, good)
    # HTCondor writes no attribute twice. If one does occur twice, leave the event to a parser.
    twice = [a.event[1:][a.event[1:] == a.event[:-1]] for a in attributes.values()]
    if any(map(len, twice)):
        good[np.concatenate(twice)] = False
        attributes = _attributes(data, parts, lines, good)
    return Layout(begin, good, attributes)


def _nesting(parts: _Parts, lines: _Lines) -> Bools:
    """Return which lines have the nesting depth that the line before implies."""
    closer, nested = parts.kind == _CLOSER, parts.kind == NESTED
    after = nested | (parts.deep & ~closer)  # a nested ad is open after the line
    before = np.empty_like(after)
    before[:1], before[1:] = False, after[:-1] & ~lines.last[:-1]
    fits: Bools = np.where(closer, before & ~parts.deep, parts.deep == before)
    fits &= ~(parts.deep & nested) & ~(after & lines.last)
    return fits


def _clean(view: Bytes, begin: Int64s, until: Int64s, lines: Int64s) -> Bools:
    """Return which events consist of printable ASCII and a newline after each line."""
    first, size = int(begin[0]), int(until[-1])
    odd = np.flatnonzero((view[first:size] - np.uint8(32)) > 94) + first
    newlines = np.searchsorted(odd, until) - np.searchsorted(odd, begin)
    clean: Bools = (newlines == lines) & (view[until - 1] == _NEWLINE)
    if len(others := odd[view[odd] != _NEWLINE]):
        clean &= np.searchsorted(others, until) == np.searchsorted(others, begin)
    return clean


def _count(view: Bytes, byte: int, begin: Int64s, until: Int64s) -> Int64s:
    """Return how often each event contains a byte."""
    places = np.flatnonzero(view[: int(until[-1])] == byte)
    return np.searchsorted(places, until) - np.searchsorted(places, begin)


def _sum(lines: _Lines, each: npt.NDArray[np.generic], events: int) -> Int64s:
    return np.bincount(lines.event, each, events).astype(np.int64)


def _json_parts(data: bytes, view: Bytes, words: BlockWords, lines: _Lines) -> _Parts:
    """Split lines of the form `  "Name": value,`."""
    at, line_end = lines.at, lines.end
    indent = blanks(words[at])
    name_at = at + indent + 1
    name = words.fetch(name_at, _NAME_WORDS)
    length = first_of(name, _QUOTE)
    start = name_at + length + 3
    comma = view[line_end - 1] == _COMMA
    end = line_end - comma
    loaded = words[start]
    first = byte_of(loaded, 0)
    size = end - start
    kind = np.zeros(len(at), np.uint8)
    kind[(first == _QUOTE) & (view[end - 1] == _QUOTE) & (size > 1)] = STRING
    kind[(first == _BRACE) & (size == 1) & ~comma] = NESTED
    number = np.zeros(len(at))
    four = loaded & word(b"\xff" * 4)
    kind[(size == 4) & (four == word(b"null"))] = NULL
    true = (size == 4) & (four == word(b"true"))
    kind[true | ((size == 5) & ((loaded & word(b"\xff" * 5)) == word(b"false")))] = BOOLEAN
    number[true] = 1
    _integers(view, words, kind, number, start, end, leading_zeros=False)
    _reals(data, view, words, _JSON_REAL, kind, number, start, end)
    fits = (view[name_at - 1] == _QUOTE) & (indent > 0)
    fits &= (words[name_at + length] & word(b"\xff" * 3)) == word(b'": ')
    closer = (view[at + indent] == _CLOSING_BRACE) & (end == name_at)
    kind[closer] = _CLOSER
    fits |= closer
    fits &= (kind != _OTHER) & ((indent == 2) | ((indent == 4) & ~closer))
    # A comma follows unless the ad ends after the line.
    ends = lines.last.copy()
    ends[:-1] |= closer[1:]
    fits &= (comma != ends) | (kind == NESTED)
    return _Parts(kind, indent == 4, name, name_at, length, start, end, number, fits)


def _json_counts(
    data: bytes, view: Bytes, begin: Int64s, until: Int64s, parts: _Parts, lines: _Lines
) -> Bools:
    """Return which events have quotes only around names and strings, and no escapes."""
    quotes = 2 * (parts.kind != _CLOSER) + 2 * (parts.kind == STRING)
    fits: Bools = _count(view, _QUOTE, begin, until) == _sum(lines, quotes, len(begin))
    if data.find(b"\\", int(begin[0]), int(until[-1])) >= 0:
        fits &= _count(view, _BACKSLASH, begin, until) == 0
    return fits


def _xml_parts(data: bytes, view: Bytes, words: BlockWords, lines: _Lines) -> _Parts:
    """Split lines of the form `    <a n="Name"><s>value</s></a>`."""
    at, line_end = lines.at, lines.end
    # Eight blanks fill a word; no line of the layout has more.
    indent = blanks(words[at])
    tag_at = at + indent
    name_at = tag_at + 6
    name = words.fetch(name_at, _NAME_WORDS)
    length = first_of(name, _QUOTE)
    behind = words[name_at + length]
    tag, closing = byte_of(behind, 3), words[line_end - 8]
    start, end = name_at + length + 2, line_end - 4  # with the tags of the value
    inner_start, inner_end = start + 3, end - 4
    plain = (behind & word(b"\xff\xff\xff\0\xff")) == word(b'"><\0>')
    # `</s></a>`, with the same letter as the opening tag.
    plain &= (closing & word(b"\xff\xff\0" + b"\xff" * 5)) == word(b"</\0></a>")
    plain &= (byte_of(closing, 2) == tag) & (inner_start <= inner_end)
    kind = np.zeros(len(at), np.uint8)
    number = np.zeros(len(at))
    kind[plain & (tag == ord("s"))] = STRING
    whole = np.flatnonzero(plain & ((tag == ord("i")) | (tag == ord("r"))))
    kinds, numbers = np.zeros(len(whole), np.uint8), np.zeros(len(whole))
    places = inner_start[whole], inner_end[whole]
    integer = tag[whole] == ord("i")
    _integers(view, words, kinds, numbers, *places, leading_zeros=True)
    kinds[(kinds == INTEGER) != integer] = _OTHER
    left = np.flatnonzero(~integer)
    real_kinds, reals = np.zeros(len(left), np.uint8), np.zeros(len(left))
    extents = places[0][left], places[1][left]
    _reals(data, view, words, _XML_REAL, real_kinds, reals, *extents)
    kinds[left], numbers[left] = real_kinds, reals
    kind[whole], number[whole] = kinds, numbers
    truth = words[name_at + length + 8]
    boolean = (behind == word(b'"><b v="')) & (line_end == name_at + length + 16)
    boolean &= (truth == word(b't"/></a>')) | (truth == word(b'f"/></a>'))
    kind[boolean] = BOOLEAN
    number[boolean & (byte_of(truth, 0) == ord("t"))] = 1
    nested = (behind & word(b"\xff" * 5)) == word(b'"><c>')
    kind[nested & (line_end == name_at + length + 5)] = NESTED
    loaded = words[tag_at]
    fits = (loaded & word(b"\xff" * 6)) == word(b'<a n="')
    closer = (loaded == word(b"</c></a>")) & (line_end == tag_at + 8)
    kind[closer] = _CLOSER
    fits |= closer
    fits &= (kind != _OTHER) & ((indent == 4) | ((indent == 8) & ~closer))
    return _Parts(kind, indent == 8, name, name_at, length, start, end, number, fits)


def _xml_counts(
    view: Bytes, words: BlockWords, begin: Int64s, until: Int64s, parts: _Parts, lines: _Lines
) -> Bools:
    """Return which events have no other tags, and only XML's predefined entities."""
    tags = np.where((parts.kind == NESTED) | (parts.kind == _CLOSER), 2, 4)
    tags -= parts.kind == BOOLEAN
    expected = _sum(lines, tags, len(begin)) + 1  # plus the tag that opens the event
    fits: Bools = _count(view, _LESS, begin, until) == expected
    fits &= _count(view, _GREATER, begin, until) == expected
    entities = np.flatnonzero(view[: int(until[-1])] == _AMPERSAND)
    loaded = words[entities]
    known = np.zeros(len(entities), np.bool_)
    for entity in _ENTITIES:
        known |= (loaded & word(b"\xff" * len(entity))) == word(entity)
    strange = entities[~known]
    fits &= np.searchsorted(strange, until) == np.searchsorted(strange, begin)
    return fits


def _integers(
    view: Bytes,
    words: BlockWords,
    kind: Bytes,
    number: Floats,
    start: Int64s,
    end: Int64s,
    *,
    leading_zeros: bool,
) -> None:
    """Read the values that are whole numbers."""
    rows = np.flatnonzero(kind == _OTHER)
    value, count, after = signed_in(words[start[rows]], words, start[rows])
    fits = (count > 0) & (count <= _MAX_DIGITS) & (after == end[rows])
    if not leading_zeros:
        fits &= (view[after - count] != _ZERO) | (count == 1)
    kind[rows[fits]] = INTEGER
    number[rows[fits]] = value[fits]


def _reals(
    data: bytes,
    view: Bytes,
    words: BlockWords,
    pattern: re.Pattern[bytes],
    kind: Bytes,
    number: Floats,
    start: Int64s,
    end: Int64s,
) -> None:
    """Read the values that are reals: those like `1.5` together, the few others one by one."""
    rows = np.flatnonzero((kind == _OTHER) & (end > start))
    whole, count, after = signed_in(words[start[rows]], words, start[rows])
    part, places = digits(words, after + 1)
    fits = (count > 0) & (places > 0) & (count + places <= _MAX_DIGITS)
    fits &= (view[after] == _POINT) & (after + 1 + places == end[rows])
    # No minus sign, which would be lost in `-0`; and no leading zero except in `0.5`.
    fits &= (after - count == start[rows]) & ((view[after - count] != _ZERO) | (count == 1))
    rows, left = rows[fits], rows[~fits]
    # A float holds both integers exactly, so their quotient is the nearest float.
    number[rows] = (whole[fits] * 10 ** places[fits] + part[fits]) / 10.0 ** places[fits]
    kind[rows] = REAL
    for row in left.tolist():
        if match := pattern.fullmatch(data, int(start[row]), int(end[row])):
            kind[row], number[row] = REAL, float(match[0])


def _attributes(data: bytes, parts: _Parts, lines: _Lines, good: Bools) -> dict[str, Attribute]:
    """Return the attributes of good events, by name."""
    kept = np.flatnonzero(good[lines.event] & ~parts.deep & (parts.kind != _CLOSER))
    end = parts.end
    if (nested := np.flatnonzero(parts.kind == NESTED)).size:
        # The value of a nested ad ends with its closing line.
        closers = np.flatnonzero(parts.kind == _CLOSER)
        after = np.append(closers, len(end) - 1)[np.searchsorted(closers, nested)]
        end = end.copy()
        end[nested] = parts.end[after]
    attributes = {}
    for group in equal_groups(sum_of(parts.name, parts.length)[kept]):
        rows = kept[group]
        at = int(parts.name_at[rows[0]])
        name = data[at : at + int(parts.length[rows[0]])].decode("ascii")
        attributes[name] = Attribute(
            lines.event[rows], parts.kind[rows], parts.start[rows], end[rows], parts.number[rows]
        )
    return attributes
