"""Parse JSON and XML events, each of which is one ClassAd.

orjson parses JSON events. One regular expression splits an XML event in HTCondor's own layout,
which is several times as fast as an XML parser; ElementTree parses any other and decides whether
it is well-formed. The header attributes of all events of a block become columns together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import orjson

from condor_advice.gather.bodies import HEADER_ATTRIBUTES, Ad
from condor_advice.gather.clock import FIRST_YEAR, LAST_YEAR, days_since_1970
from condor_advice.gather.events import MAX_ID, MAX_TYPE
from condor_advice.gather.layout import INTEGER, STRING, Layout
from condor_advice.gather.reader import JSON, XML
from condor_advice.gather.words import (
    BlockWords,
    Int64s,
    Words,
    all_digits,
    byte_of,
    cut_words,
    eight_digits,
    pair,
    word,
    word_in,
)

Bools = npt.NDArray[np.bool_]

# The exceptions that the parsers raise for text that is not an event.
NOT_AN_EVENT = (ValueError, KeyError, TypeError, OverflowError, RecursionError)

# One attribute with a plain value in HTCondor's layout. Text that an XML parser might reject or
# change (control characters, `]]>`, carriage returns) does not match.
_XML_ATTRIBUTE = re.compile(
    r'\n *<a n="([\w.]+)"><([irs])>([^<>\x00-\x08\x0b-\x1f\ufffe\uffff]*)</\2></a>'
)
# What may come between such attributes: a boolean, or the start or end of a nested ad.
_XML_BETWEEN = re.compile(
    r'\n *(?:<a n="(?P<name>[\w.]+)"><(?:(?P<nested>c)>|b v="(?P<truth>[tf])"/></a>)|</c></a>)'
)
_MAX_DEPTH = 64
_XML_ENTITY = re.compile(r"&(\w*;?)")
_XML_ENTITIES = {"lt;": "<", "gt;": ">", "amp;": "&", "quot;": '"', "apos;": "'"}

_ISO_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?\d*(Z?)$")
_NO_NUMBER = MAX_ID + 1
_STAMP_BYTES = 32
# `2026-11-`, `11-16T02` and `:01:34`: the bytes that must be digits, and those that are fixed.
_YEAR_DIGITS, _YEAR_REST = word(b"\xff\xff\xff\xff"), word(b"\0\0\0\0-")
_DATE_DIGITS, _DATE_REST = word(b"\xff\xff\0\xff\xff\0\xff\xff"), word(b"\0\0-")
_TIME_DIGITS, _TIME_REST = word(b"\0\xff\xff\0\xff\xff"), word(b":\0\0:")
_YEAR_MASK, _DATE_MASK, _TIME_MASK = word(b"\0\0\0\0\xff"), word(b"\0\0\xff"), word(b"\xff\0\0\xff")
_POINT, _BLANK, _T, _Z = 46, 32, 84, 90


class ObjectHeaders(NamedTuple):
    """The header attributes of JSON and XML events, as columns."""

    type: Int64s
    cluster: Int64s
    proc: Int64s
    time_us: Int64s  # microseconds since 1970
    local: Bools  # the time is local, not UTC
    good: Bools  # HTCondor could have written it


def parse_json(data: bytes) -> Ad:
    """Return the attributes of a JSON event, including its header attributes."""
    try:
        ad = orjson.loads(data)
    except orjson.JSONDecodeError:
        # orjson rejects invalid UTF-8, NaN and infinities, which should not lose the event.
        ad = json.loads(data.decode("utf-8", "replace"))
    if not isinstance(ad, dict):
        raise ValueError("a JSON event must be an object")
    return ad


def parse_xml(data: bytes) -> Ad:
    """Return the attributes of an XML event, including its header attributes."""
    text = data.decode("utf-8", "replace")
    ad = _split_xml(text)
    if ad is not None:
        return ad
    try:
        return _xml_ad(ElementTree.fromstring(text))
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None


def parse_value(data: bytes) -> Any:
    """Return one value, given as it is written in an event in HTCondor's layout."""
    if not data.startswith(b"<"):
        return orjson.loads(data)
    if data.startswith(b"<b"):
        return data == b'<b v="t"/>'
    if data.startswith(b"<c>"):
        return _xml_ad(ElementTree.fromstring(data))
    return _XML_SCALARS[data[1:2].decode()](data[3:-4].decode())


PARSERS: dict[int, Callable[[bytes], Ad]] = {JSON: parse_json, XML: parse_xml}


def drop_header(ad: Ad) -> Ad:
    """Remove the header attributes from an event's ad, and return it."""
    for name in HEADER_ATTRIBUTES:
        ad.pop(name, None)
    return ad


def take_headers(ads: Sequence[Ad]) -> ObjectHeaders:
    """Move the header attributes of events from their ads into columns."""
    kind = _integers([ad.pop("EventTypeNumber", None) for ad in ads])
    cluster = _integers([ad.pop("Cluster", -1) for ad in ads])
    proc = _integers([ad.pop("Proc", -1) for ad in ads])
    time_us, local, good = read_times([ad.pop("EventTime", None) for ad in ads])
    for ad in ads:
        ad.pop("MyType", None)
        ad.pop("Subproc", None)
    good &= _possible(kind, cluster, proc)
    return ObjectHeaders(kind, cluster, proc, time_us, local, good)


def layout_headers(layout: Layout, words: BlockWords, *, xml: bool) -> ObjectHeaders:
    """Read the header attributes of events in HTCondor's layout; no other event is `good`."""
    good = layout.good.copy()
    numbers = []
    for name, default in (("EventTypeNumber", _NO_NUMBER), ("Cluster", -1), ("Proc", -1)):
        number = np.full(len(good), default, np.int64)
        if attribute := layout.attributes.get(name):
            integer = attribute.kind == INTEGER
            number[attribute.event[integer]] = attribute.number[integer]
            good[attribute.event[~integer]] = False
        numbers.append(number)
    time_us, local = np.zeros(len(good), np.int64), np.zeros(len(good), np.bool_)
    timed = np.zeros(len(good), np.bool_)
    if attribute := layout.attributes.get("EventTime"):
        before, behind = (len("<s>"), len("</s>")) if xml else (1, 1)  # tags or quotes
        start, end = attribute.start + before, attribute.end - behind
        stamps = cut_words(words.fetch(start, _STAMP_BYTES // 8), end - start)
        time_us[attribute.event], local[attribute.event], fits = _stamps(stamps)
        timed[attribute.event] = (attribute.kind == STRING) & (end - start < _STAMP_BYTES) & fits
    good &= timed & _possible(*numbers)
    kind, cluster, proc = numbers
    return ObjectHeaders(kind, cluster, proc, time_us, local, good)


def _possible(kind: Int64s, cluster: Int64s, proc: Int64s) -> Bools:
    """Return for which events HTCondor could have written these numbers."""
    possible: Bools = (kind >= 0) & (kind <= MAX_TYPE)
    for number in (cluster, proc):
        possible &= (number >= -MAX_ID) & (number <= MAX_ID)
    return possible


def read_times(stamps: list[Any]) -> tuple[Int64s, Bools, Bools]:
    """Read ISO times; return microseconds since 1970, which are local, and which are valid.

    Times in the usual format are read together, the others one by one.
    """
    try:
        texts = np.array([stamp.encode("ascii") for stamp in stamps], f"S{_STAMP_BYTES}")
    except (AttributeError, UnicodeEncodeError):
        return _odd_times(stamps)
    words = np.ascontiguousarray(texts.view("<u8").reshape(-1, _STAMP_BYTES // 8).T)
    time_us, local, good = _stamps(words)
    odd = np.flatnonzero(~good)
    if len(odd):
        time_us[odd], local[odd], good[odd] = _odd_times([stamps[row] for row in odd])
    return time_us, local, good


def _stamps(words: Words) -> tuple[Int64s, Bools, Bools]:
    """Read times in HTCondor's format, from words padded with zeros."""
    front, date, time = words[0], word_in(words, 5), word_in(words, 13)
    good = all_digits(front, _YEAR_DIGITS) & ((front & _YEAR_MASK) == _YEAR_REST)
    good &= all_digits(date, _DATE_DIGITS) & ((date & _DATE_MASK) == _DATE_REST)
    good &= all_digits(time, _TIME_DIGITS) & ((time & _TIME_MASK) == _TIME_REST)
    good &= (byte_of(date, 5) == _T) | (byte_of(date, 5) == _BLANK)
    year = pair(front, 0) * 100 + pair(front, 2)
    month, day, hour = pair(date, 0), pair(date, 3), pair(date, 6)
    minute, second = pair(time, 1), pair(time, 4)
    good &= (year >= FIRST_YEAR) & (year <= LAST_YEAR) & (month >= 1) & (month <= 12)
    first = days_since_1970(year, month, np.ones_like(day))
    following = days_since_1970(year + month // 12, month % 12 + 1, np.ones_like(day))
    good &= (day >= 1) & (day <= following - first) & (hour <= 23)
    good &= (minute <= 59) & (second <= 59)
    # A fraction of up to seven digits, then perhaps a Z, then nothing.
    pointed = byte_of(time, 6) == _POINT
    value, count = eight_digits(word_in(words, 20))
    value[~pointed] = count[~pointed] = 0
    good &= (count < 8) & (~pointed | (count > 0))
    place = 19 + pointed + count
    characters = np.ascontiguousarray(words.T).view(np.uint8)
    rows = np.arange(len(characters))
    utc = characters[rows, place] == _Z
    good &= characters[rows, place + utc] == 0
    seconds = ((first + day - 1) * 24 + hour) * 3600 + minute * 60 + second
    time_us = seconds * 1_000_000 + value * 1_000_000 // 10**count
    return time_us, ~utc, good


def _odd_times(stamps: Iterable[Any]) -> tuple[Int64s, Bools, Bools]:
    """Read times in other formats one by one."""
    times = [_odd_time(stamp) for stamp in stamps]
    micros = np.array([time[0] if time else 0 for time in times], np.int64)
    local = np.array([time is not None and time[1] for time in times], np.bool_)
    return micros, local, np.array([time is not None for time in times], np.bool_)


def _odd_time(stamp: Any) -> tuple[int, bool] | None:
    match = _ISO_TIME.match(str(stamp))
    if match is None or not FIRST_YEAR <= int(match[1]) <= LAST_YEAR:
        return None
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    micros = int((match[7] or "").ljust(6, "0"))
    return int(moment.timestamp()) * 1_000_000 + micros, not match[8]


def _integers(values: list[Any]) -> Int64s:
    """Return numbers as a column; anything but a 32-bit number becomes _NO_NUMBER."""
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    return np.array([_integer(value) for value in values], np.int64)


def _integer(value: Any) -> int:
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        return _NO_NUMBER
    return number if abs(number) <= MAX_ID else _NO_NUMBER


def _unescape(text: str) -> str:
    """Replace XML's predefined entities; raise KeyError for others."""
    return _XML_ENTITY.sub(lambda match: _XML_ENTITIES[match[1]], text) if "&" in text else text


_XML_SCALARS: dict[str, Callable[[str], Any]] = {"i": int, "r": float, "s": _unescape}


def _split_xml(text: str) -> Ad | None:
    """Read an XML event in HTCondor's own layout; return None for another layout."""
    pieces = _XML_ATTRIBUTE.split(text)
    gaps, names = pieces[::4], pieces[1::4]
    if not names or not gaps[0].startswith("<c>") or not gaps[-1].endswith("\n</c>"):
        return None
    gaps[0], gaps[-1] = gaps[0].removeprefix("<c>"), gaps[-1].removesuffix("\n</c>")
    try:
        values = [
            _XML_SCALARS[tag](value) for tag, value in zip(pieces[2::4], pieces[3::4], strict=True)
        ]
    except KeyError:
        return None
    if not any(gaps):
        return dict(zip(names, values, strict=True))
    event: Ad = {}
    ad = event
    outer: list[Ad] = []  # the ads around `ad`, outermost first
    for place, gap in enumerate(gaps):
        at = 0
        while at < len(gap):
            match = _XML_BETWEEN.match(gap, at)
            if match is None:
                return None
            at = match.end()
            if match["nested"]:
                outer.append(ad)
                inner: Ad = {}
                ad[match["name"]] = inner
                ad = inner
            elif match["truth"]:
                ad[match["name"]] = match["truth"] == "t"
            elif outer:
                ad = outer.pop()
            else:
                return None
        if len(outer) > _MAX_DEPTH:
            return None
        if place < len(names):
            ad[names[place]] = values[place]
    return None if outer else event


def _xml_ad(node: ElementTree.Element) -> Ad:
    return {str(a.get("n")): _xml_value(a[0]) for a in node.findall("a") if len(a)}


def _xml_value(node: ElementTree.Element) -> Any:
    text = node.text or ""
    if node.tag == "i":
        return int(text)
    if node.tag == "r":
        return float(text)
    if node.tag == "b":
        return node.get("v") == "t"
    if node.tag == "c":
        return _xml_ad(node)
    return text
