"""Events as steps: one compact row per event that tells something about its job.

A step keeps what features, tensors and labels need of an event and nothing else, so that the
history of every live job fits into memory. Whole blocks are read by columns; Python looks at
single events only where they are holds, releases and removals, or not in the text format.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError
from condor_advice.gather.events import JobEventType as Kind
from condor_advice.gather.hashing import MIX
from condor_advice.gather.words import BlockWords, byte_of, digits, first_of, pad, word
from condor_advice.preprocess.holds.hold_reasons import REPAIR_MARK, acting_user
from condor_advice.preprocess.holds.job_numbers import MAX_ACCESS_POINTS, job_number
from condor_advice.preprocess.holds.templates import FAMILY_INDEX, Reason, parse_reason

if TYPE_CHECKING:
    # Who only uses a model need not wait for the reader of logs.
    from condor_advice.gather.fields import Fields, Texts
    from condor_advice.gather.reader import EventColumns

Steps = npt.NDArray[np.void]  # of dtype STEP
Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

CONTEXT_CHANNELS = (
    "pool_holds_10m",
    "pool_holds_1h",
    "pool_releases_1h",
    "pool_good_1d",
    "pool_bad_1d",
    "pool_starts_1h",
    "pool_ends_1h",
    "pool_evictions_1h",
)

# What a job asks for, besides its requests. A step has a byte of hash for each, zero where the
# event does not tell; the first byte is for events that say themselves that a job was edited.
SETTINGS = (
    "(edited)", "Cmd", "Arguments", "Environment", "TransferInput", "TransferOutput", "Iwd", "In",
    "Requirements", "PeriodicHold", "RequestGPUs", "AllowedExecuteDuration", "AllowedJobDuration",
)  # fmt: skip
EDITED = 0
VARIES = 255  # of a setting with $$(Name): HTCondor replaces it by something else in each run
_OLD_SYNTAX = {"Args": "Arguments", "Env": "Environment"}


@dataclass(frozen=True, slots=True)
class StepField:
    """One field of a step."""

    name: str
    dtype: str
    unknown: float  # where the event does not tell
    comment: str
    unit: str = ""
    attributes: tuple[str, ...] = ()  # HTCondor's names of the numbers it is taken from
    in_ad: bool = False  # a 028 event tells it, too
    in_key: bool = False  # copies of an event agree in it
    exported: bool = False  # as the column `name_unit` of events.parquet
    shape: tuple[int, ...] = ()


def _reported(
    name: str,
    unit: str,
    comment: str,
    *attributes: str,
    in_ad: bool = False,
    in_key: bool = True,
) -> StepField:
    """Return a number that HTCondor reports about a job; it is exported."""
    return StepField(
        name, "f4", np.nan, comment, unit, attributes, in_ad=in_ad, in_key=in_key, exported=True
    )


# The one place where a field of a step is defined. A number that HTCondor names is read,
# compared and exported by its row here.
STEP_FIELDS = (
    StepField("job", "i8", 0, "access point, cluster and proc: see job_numbers.py"),
    StepField("sequence", "i8", 0, "place among all events, in the order they became known"),
    StepField("time", "i8", 0, "as the log has it", "microseconds"),
    StepField("clock", "i8", 0, "never runs backwards: see timeline.py", "microseconds"),
    StepField("kind", "i2", 0, "number of the event"),
    StepField("part", "i1", 0, "of a 040: 1 to 6; of a 009, 012 or 013: who did it", in_key=True),
    StepField("family", "i2", 0, "of a hold reason: place in FAMILIES", in_key=True),
    StepField(
        "code", "i4", -1, "of a 012, 021 or 004", "", ("HoldReasonCode", "ReasonCode"), in_key=True
    ),
    StepField(
        "subcode", "i4", -1, "beside it", "", ("HoldReasonSubCode", "ReasonSubCode"), in_key=True
    ),
    StepField("template", "i4", -1, "of a hold reason: Reason.template_id", in_key=True),
    StepField("point", "i4", -1, "number of the execution point", in_key=True),
    StepField("owner", "i4", -1, "number of the owner", in_ad=True, in_key=True),
    StepField("episode", "i8", -1, "number of the hold episode, for a 012"),
    StepField("dag", "i8", 0, "whose node the job is", "", ("DAGManJobId",), in_ad=True),
    StepField("batch", "i8", 0, "hash of the batch name", in_ad=True),
    StepField("program", "i4", 0, "hash of the program's name", in_ad=True),
    StepField("stem", "i4", 0, "hash of the batch name without its number or date", in_ad=True),
    StepField(
        "settings", "u1", 0, "bytes of hashes of SETTINGS", in_ad=True, shape=(len(SETTINGS),)
    ),
    _reported("memory", "mb", "memory used", "MemoryUsage"),
    StepField("peak", "f4", np.nan, "most used by this step and those dropped before it", "mb"),
    _reported("image", "kb", "image size", "Size"),
    _reported("cpu", "seconds", "user and system time of the run"),
    _reported("sent", "bytes", "sent by the run", "SentBytes"),
    _reported("received", "bytes", "received by the run", "ReceivedBytes"),
    _reported("request_memory", "mb", "memory requested", "RequestMemory", in_ad=True),
    _reported("request_disk", "kb", "disk requested", "RequestDisk", in_ad=True),
    _reported("request_cpus", "count", "CPUs requested", "RequestCpus", in_ad=True, in_key=False),
    _reported("disk", "kb", "disk used", "DiskUsage"),
    _reported("exit", "status", "of a 005: return value, or 256 + signal"),
    StepField("used", "f4", np.nan, "amount used, as a hold reason says", "mb"),
    StepField("limit", "f4", np.nan, "limit, as a hold reason says", "mb"),
    StepField("errno", "f4", np.nan, "in a hold reason"),
    StepField("http", "f4", np.nan, "status in a hold reason"),
    StepField(
        "context", "f4", 0, "the pool then: CONTEXT_CHANNELS", shape=(len(CONTEXT_CHANNELS),)
    ),
)
STEP = np.dtype([(field.name, field.dtype, field.shape) for field in STEP_FIELDS])
KEY_FIELDS = tuple(field for field in STEP_FIELDS if field.in_key)
AD_FIELDS = tuple(field for field in STEP_FIELDS if field.in_ad)
EXPORTED_FIELDS = tuple(field for field in STEP_FIELDS if field.exported)
_NUMBERS = tuple((field.name, name) for field in STEP_FIELDS for name in field.attributes)
_AD_NUMBERS = tuple((field.name, name) for field in AD_FIELDS for name in field.attributes)
# Attributes that `_usual` reads, or that the events it reads do not have. A field with any other
# attribute turns that shortcut off, so that a new row of STEP_FIELDS is read everywhere.
_SHORTCUT_KNOWS = frozenset(
    {
        "DAGManJobId", "DiskUsage", "HoldReasonCode", "HoldReasonSubCode", "MemoryUsage",
        "ReasonCode", "ReasonSubCode", "ReceivedBytes", "RequestCpus", "RequestDisk",
        "RequestMemory", "SentBytes", "Size",
    }
)  # fmt: skip
_REQUESTS = ("RequestMemory", "RequestDisk", "RequestCpus")
_SETTING_PLACES = {name: place for place, name in enumerate(SETTINGS) if place != EDITED}
_SETTING_PLACES |= {old: _SETTING_PLACES[name] for old, name in _OLD_SYNTAX.items()}
_SHORTCUT = all(attribute in _SHORTCUT_KNOWS for _, attribute in _NUMBERS)
_NOTHING = np.zeros((), STEP)  # a step that tells nothing
for _field in STEP_FIELDS:
    _NOTHING[_field.name] = _field.unknown

# Events that say nothing about how a job is doing: of DAGMan, the grid's ends, data reuse.
_SKIPPED = np.array(
    [8, 16, 17, 18, 19, 20, 25, 26, 27, 34, 35, 36, 37, 38, 39, 41, 42, 43, 44, 45, 47]
)
# Who held, released or removed it.
BY_NOBODY, BY_USER, BY_POLICY = 0, 1, 2

_HASHED_BYTES = 128
_KNOWN_HASHES = 500_000
_KNOWN_TEXTS = 4096
_AT_SIGN = 64
_WORD_BITS = 64 * np.arange(_HASHED_BYTES // 8)[:, None]
_ONE, _BIT = np.uint64(1), np.uint64(63)
_POLICY = re.compile(r"expression|SYSTEM_PERIODIC|Periodic|policy", re.IGNORECASE)
_DAG_NOTE = word(b"DAG Node")
_BATCH_NOTE = re.compile(r'JobBatchName *= *"([^"]*)')
_LONGEST_NAME = 256
_TAB, _INPUT, _OUTPUT = 9, ord("i"), ord("o")
_HOST, _SIX_BYTES = word(b"host: "), word(b"\xff" * 6)
_SLOT_NAME = word(b"\tSlotNam")
_IMAGE_SIZE = word(b"Image si")
# Behind the number on a line such as `\t123  -  MemoryUsage of job (MB)`.
_DASH_MEM, _ORY_US, _FIVE_BYTES = word(b"  -  Mem"), word(b"oryUs"), word(b"\xff" * 5)
_STRUCTURED_DAG = re.compile(rb"DAGManJobId *= *(\d+)")
_GLIDEIN = re.compile(r"^glidein_[\d_]+@")
_ALIAS = re.compile(r"alias=([^&>]+)")


@dataclass(slots=True)
class Names:
    """Numbers for names that are only ever compared: execution points, owners, templates."""

    access_points: dict[str, int] = field(default_factory=dict)
    points: dict[str, int] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    templates: dict[int, str] = field(default_factory=dict)
    # Whole hold reasons by (job, time, template), for those who ask for them.
    reasons: dict[tuple[int, int, int], str] | None = None
    _point_hashes: dict[int, int] = field(default_factory=dict)
    _slot_hashes: dict[int, int] = field(default_factory=dict)
    _owner_hashes: dict[int, int] = field(default_factory=dict)
    _program_hashes: dict[int, int] = field(default_factory=dict)
    _stem_hashes: dict[int, int] = field(default_factory=dict)

    def access_point(self, name: str) -> int:
        """Return the number of an access point."""
        if len(self.access_points) >= MAX_ACCESS_POINTS and name not in self.access_points:
            raise AdviceError(
                f"more than {MAX_ACCESS_POINTS} access points in one pass; export each one's "
                "store by itself and train on all exports"
            )
        return self.access_points.setdefault(name, len(self.access_points))

    def point(self, slot: str) -> int:
        """Return the number of the execution point that has this slot or address."""
        return self.points.setdefault(point_of(slot), len(self.points))

    def owner(self, name: str) -> int:
        """Return the number of an owner."""
        return self.owners.setdefault(name.strip('"'), len(self.owners))


def point_of(slot: str) -> str:
    """Return the execution point's own name: `slot1_3@ep2@host` is on `ep2@host`."""
    slot = slot.strip()
    if slot.startswith("<"):
        alias = _ALIAS.search(slot)
        return alias[1] if alias else slot[1:].split(":", 1)[0].split(">", 1)[0]
    name = slot.split("@", 1)[-1]
    return _GLIDEIN.sub("", name)  # a glidein is new each time; its machine is what stays


def program_hash(command: str) -> int:
    """Return a number for the name of a program, wherever it lies."""
    return hash_name(command.strip('"').rsplit("/", 1)[-1])


def stem_hash(batch: str) -> int:
    """Return a number for a batch name, or a submit note with one, whatever its number or date."""
    note = _BATCH_NOTE.search(batch)
    return hash_name(stem_of(note[1] if note else batch.strip(' \t"')))


def stem_of(batch: str) -> str:
    """Return a batch name without the digits and separators that it ends with."""
    end = min(len(batch), _LONGEST_NAME)
    while end and (
        not batch[end - 1].isalpha()
        # As in 20260302T101500Z.
        or (batch[end - 1] in "TZ" and end > 1 and batch[end - 2].isdigit())
    ):
        end -= 1
    return batch[:end]


def hash_name(name: str) -> int:
    """Return a number for a name; 0 for none."""
    return (zlib.crc32(name.encode()) & 0x7FFFFFFF or 1) if name else 0


def empty_steps(count: int = 0) -> Steps:
    """Return steps that tell nothing yet."""
    return np.frombuffer(bytearray(_NOTHING.tobytes()) * count, STEP)


def take_steps(steps: Steps, chosen: npt.NDArray[Any]) -> Steps:
    """Return some of the steps; several times faster than indexing, which goes by fields."""
    if chosen.dtype == np.bool_:
        chosen = np.flatnonzero(chosen)
    raw = np.dtype((np.void, steps.dtype.itemsize))
    taken: Steps = np.take(steps.view(raw), chosen).view(steps.dtype)
    return taken


def join_steps(*parts: Steps) -> Steps:
    """Return steps one after the other; faster than concatenating, which goes by fields."""
    raw = [np.ascontiguousarray(part).view(np.uint8) for part in parts]
    joined: Steps = np.concatenate(raw).view(parts[0].dtype)
    return joined


def read_steps(
    columns: EventColumns, access_point: str, log: str, names: Names, steps: Steps
) -> int:
    """Write a block's events into empty steps, in log order; return how many they are.

    Events of no job are left out.
    """
    chosen = np.flatnonzero(
        (columns.cluster >= 0) & (columns.proc >= 0) & ~np.isin(columns.type, _SKIPPED)
    )
    steps = steps[: len(chosen)]
    place = np.full(len(columns), -1)
    place[chosen] = np.arange(len(chosen))
    steps["kind"] = columns.type[chosen]
    steps["time"] = columns.time_us[chosen]
    steps["job"] = job_number(
        names.access_point(access_point), columns.cluster[chosen], columns.proc[chosen]
    )
    _Filler(columns, steps, place, log, names).fill()
    return len(steps)


class _Spans(NamedTuple):
    """Texts in a block, and the steps that they are about."""

    words: BlockWords
    data: bytes
    at: Ints
    start: Ints
    end: Ints

    def text(self, row: int) -> str:
        return self.data[int(self.start[row]) : int(self.end[row])].decode("utf-8", "replace")

    def hashes(self, *, behind_at_sign: bool = False) -> Keys:
        """Return a hash of each text, or of what stands behind its first @."""
        start, end = self.start, self.end
        if not len(start):
            return np.empty(0, np.uint64)
        # Most texts of a block are the same few: only distinct ones are hashed.
        loaded = self.words.fetch(start, _HASHED_BYTES // 8)
        bits = np.clip(8 * (end - start) - _WORD_BITS, 0, 64).astype(np.uint64)
        loaded &= np.where(bits == 64, np.uint64(0), np.uint64(1) << (bits & _BIT)) - _ONE
        mixed = loaded[0] ^ (end - start).view(np.uint64)
        for word_ in loaded[1:]:
            mixed = (mixed ^ (mixed >> np.uint64(29))) * MIX + word_
        _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
        start, end = start[first], end[first]
        if behind_at_sign:
            behind = first_of(self.words.fetch(start, 4), _AT_SIGN) + 1
            inside = (behind <= 32) & (behind < end - start)  # not an @ of the next line
            start = np.where(inside, start + behind, start)
        return text_hashes(self.words, start, end)[which]


def _only(columns: EventColumns, rows: Ints) -> EventColumns:
    """Return some events as a block of their own."""
    starts, _, opening, closing = columns.frame()
    begin = starts[opening[rows]]
    until = np.minimum(starts[np.minimum(closing[rows] + 1, len(starts) - 1)], columns.size)
    source = columns.source
    data = b"".join(
        source[start:end] for start, end in zip(begin.tolist(), until.tolist(), strict=True)
    )
    shift = np.append(0, np.cumsum(until - begin)[:-1]) - begin
    return type(columns)(
        source=pad(data),
        size=len(data),
        base=0,
        type=columns.type[rows],
        form=columns.form[rows],
        cluster=columns.cluster[rows],
        proc=columns.proc[rows],
        time_us=columns.time_us[rows],
        start=columns.start[rows] + shift,
        head=columns.head[rows] + shift,
        end=columns.end[rows] + shift,
    )


class _Filler:
    """One call of `read_steps`."""

    def __init__(
        self, columns: EventColumns, steps: Steps, place: Ints, log: str, names: Names
    ) -> None:
        self.columns, self.steps, self.place, self.log = columns, steps, place, log
        self.names = names
        self.words = BlockWords(columns.padded())

    def fill(self) -> None:
        from condor_advice.gather.fields import Fields, read_fields
        from condor_advice.gather.reader import TEXT

        text = self.columns.form == TEXT
        placed = self.place >= 0
        # A terminated job's table of resources is no longer of use to it, and long to read.
        read = self._usual(text & placed)
        terminated = text & (self.columns.type == Kind.JOB_TERMINATED)
        self._terminations(np.flatnonzero(terminated & placed))
        self.rows = np.flatnonzero(text & placed & ~terminated & ~read)
        if len(self.rows):
            self.rest = _only(self.columns, self.rows)
            self.rest_words = BlockWords(self.rest.padded())
            self._fields(read_fields(self.rest))
        else:
            self._points(Fields(0))
        for row in np.flatnonzero(~text & placed).tolist():
            self._from_ad(int(self.place[row]), self.columns.ad(row))

    def _usual(self, rows: Bools) -> Bools:
        """Read the most frequent kinds of events where they look as usual; tell which do.

        Only what a step needs is read, which is far less than `read_fields` would.
        """
        read = np.zeros(len(rows), np.bool_)
        source = self.columns.padded()
        if b"\r" in source or not _SHORTCUT:
            nothing = _Spans(self.words, source, *3 * (np.empty(0, np.int64),))
            self.hosts = self.slots = nothing
            return read
        starts, first, opening, closing = self.columns.frame()
        kind, head = self.columns.type, self.columns.head
        body = opening + 1  # the first line behind the header
        lines = closing - body

        def choose(wanted: Kind, chosen: Any) -> Ints:
            events = np.flatnonzero(rows & (kind == wanted))
            usual: Ints = events[chosen(events)]
            read[usual] = True
            return usual

        some = choose(Kind.FILE_TRANSFER, lambda at: lines[at] >= 0)
        self._transfers(some, self.words.fetch(head[some], 4))
        some = choose(
            Kind.SUBMIT,
            lambda at: (lines[at] == 0) | ((lines[at] == 1) & (first[body[at]] != _TAB)),
        )
        noted = some[lines[some] == 1]
        self._notes(
            _Spans(
                self.words, source, self.place[noted], starts[body[noted]],
                starts[body[noted] + 1] - 1,
            )
        )  # fmt: skip
        some = choose(
            Kind.EXECUTE,
            lambda at: (
                ((self.words[head[at] + 17] & _SIX_BYTES) == _HOST)
                & (lines[at] >= 1)
                & (self.words[starts[body[at]]] == _SLOT_NAME)
            ),
        )
        at = self.place[some]
        self.hosts = _Spans(self.words, source, at, head[some] + 23, starts[body[some]] - 1)
        self.slots = _Spans(
            self.words, source, at, starts[body[some]] + 11, starts[body[some] + 1] - 1
        )
        self._image_sizes(read, np.flatnonzero(rows & (kind == Kind.IMAGE_SIZE)))
        return read

    def _transfers(self, rows: Ints, head: Keys) -> None:
        """Read which transfer a 040 is about from the first words of its header's text."""
        part = np.zeros(len(rows), np.int8)
        for base, text, at in ((1, b"Entered ", 26), (2, b"Started ", 21), (3, b"Finished", 22)):
            these = np.flatnonzero(head[0] == word(text))
            direction = byte_of(head[at // 8][these], at % 8)
            part[these] = (direction == _INPUT) * base + (direction == _OUTPUT) * (base + 3)
        self.steps["part"][self.place[rows]] = part

    def _image_sizes(self, read: Bools, rows: Ints) -> None:
        """Read 006 events: image size, and the memory used on the line behind."""
        starts, _, opening, closing = self.columns.frame()
        rows = rows[(closing[rows] - opening[rows] >= 2) & (closing[rows] - opening[rows] <= 4)]
        head, body = self.columns.head[rows], starts[opening[rows] + 1]
        size, size_digits = digits(self.words, head + 27)
        memory, count = digits(self.words, body + 1)
        label = self.words.fetch(body + 1 + count, 2)
        usual = (self.words[head] == _IMAGE_SIZE) & (size_digits > 0) & (count > 0)
        usual &= (self.words[body] & np.uint64(255)) == _TAB
        usual &= (label[0] == _DASH_MEM) & ((label[1] & _FIVE_BYTES) == _ORY_US)
        rows = rows[usual]
        read[rows] = True
        at = self.place[rows]
        self.steps["image"][at] = size[usual]
        self.steps["memory"][at] = memory[usual]

    def _terminations(self, rows: Ints) -> None:
        """Read `(1) Normal termination (return value 0)` on the line behind the header."""
        if not len(rows):
            return
        starts, _, opening, _ = self.columns.frame()
        at = starts[np.minimum(opening[rows] + 1, len(starts) - 1)]
        at = np.minimum(at, self.columns.size)
        head = self.words[at + 1]
        for text, skip, base in ((b"(1) Norm", 38, 0), (b"(0) Abno", 34, 256)):
            these = np.flatnonzero(head == word(text))
            value, count = digits(self.words, at[these] + skip)
            good = these[count > 0]
            self.steps["exit"][self.place[rows[good]]] = base + value[count > 0]

    def _fields(self, fields: Fields) -> None:
        for name, field_name in (*_NUMBERS, ("part", "Type")):
            if numbers := fields.numbers.get(field_name):
                column, rows, values = self.steps[name], self._at(numbers.rows), numbers.values
                if column.dtype.kind == "i":
                    # Anybody can write a log: a number that no column holds is as if absent.
                    fits = np.abs(values) <= np.iinfo(column.dtype).max
                    rows, values = rows[fits], values[fits]
                column[rows] = values
        self._cpu(fields)
        self._points(fields)
        self._attributes(fields)
        if notes := fields.texts.get("LogNotes"):
            self._notes(self._spans(notes))
        self._reasons(fields)

    def _at(self, rows: Ints) -> Ints:
        """Return the steps of rows of the columns that were read."""
        places: Ints = self.place[self.rows[rows]]
        return places

    def _cpu(self, fields: Fields) -> None:
        user, system = (fields.numbers.get(f"RunRemoteUsage{part}") for part in ("Usr", "Sys"))
        if user and system:
            total = np.zeros(fields.count)
            total[user.rows] += user.values
            total[system.rows] += system.values
            self.steps["cpu"][self._at(user.rows)] = total[user.rows]

    def _spans(self, texts: Texts) -> _Spans:
        """Return where the texts are that `read_fields` found."""
        return _Spans(self.rest_words, texts.data, self._at(texts.rows), texts.start, texts.end)

    def _points(self, fields: Fields) -> None:
        """Where it ran: the address of a 001 or 021, better the slot's name of a 001."""
        names = self.names
        hosts, slots = [self.hosts], [self.slots]
        if texts := fields.texts.get("ExecuteHost"):
            hosts.append(self._spans(texts))
        if texts := fields.texts.get("SlotName"):
            slots.append(self._spans(texts))
        hashes = [spans.hashes() for spans in hosts]
        self._intern("point", hosts, hashes, names._point_hashes, names.point)
        # An execution point has many slots: what stands behind the @ tells it apart.
        hashes = [spans.hashes(behind_at_sign=True) for spans in slots]
        self._intern("point", slots, hashes, names._slot_hashes, names.point)

    def _attributes(self, fields: Fields) -> None:
        attributes = fields.attributes
        if owner := attributes.get("Owner"):
            spans = self._spans(owner)
            known = self.names._owner_hashes
            self._intern("owner", [spans], [spans.hashes()], known, self.names.owner)
        for name, attribute in _AD_NUMBERS:
            if texts := attributes.get(attribute):
                value, count = digits(self.rest_words, texts.start)
                # An expression is not a number, and says nothing here.
                plain = (count > 0) & (count == texts.end - texts.start)
                self.steps[name][self._at(texts.rows[plain])] = value[plain]
        if batch := attributes.get("JobBatchName"):
            self._batches(self._spans(batch))
        if command := attributes.get("Cmd"):
            spans = self._spans(command)
            # Of a long path only the end is hashed.
            spans = spans._replace(start=np.maximum(spans.start, spans.end - _HASHED_BYTES))
            known = self.names._program_hashes
            self._intern("program", [spans], [spans.hashes()], known, program_hash)
        for name, place in _SETTING_PLACES.items():
            if texts := attributes.get(name):
                spans = self._spans(texts)
                self.steps["settings"][spans.at, place] = _setting_bytes(spans)

    def _notes(self, notes: _Spans) -> None:
        """Submit notes: a DAG's node, whose kin share its log, or the name of a batch."""
        blanks = 4
        node = notes.words[notes.start + blanks] == _DAG_NOTE
        if node.any():
            self.steps["dag"][notes.at[node]] = _as_kin(_text_hash(self.log))
            others = (column[~node] for column in (notes.at, notes.start, notes.end))
            notes = _Spans(notes.words, notes.data, *others)
        self._batches(notes)

    def _batches(self, names: _Spans) -> None:
        """Write numbers for names of batches, and for what is left of these without a date."""
        if len(names.at):
            hashes = names.hashes()
            self.steps["batch"][names.at] = _as_kin(hashes)
            self._intern("stem", [names], [hashes], self.names._stem_hashes, stem_hash)

    def _reasons(self, fields: Fields) -> None:
        said = dict(fields.texts["HoldReason"]) if "HoldReason" in fields.texts else {}
        kinds = self.columns.type[self.rows]
        held = np.flatnonzero(kinds == Kind.JOB_HELD)
        self._held(self.place[self.rows[held]], [said.get(row, "") for row in held.tolist()])
        reasons = fields.texts.get("Reason")
        acts = np.isin(kinds, (Kind.JOB_RELEASED, Kind.JOB_ABORTED))
        if reasons and acts.any():
            for row, text in _select(reasons, acts[reasons.rows]):
                self._acted(int(self.place[self.rows[row]]), text)
        for row in self.rows[kinds == Kind.ATTRIBUTE_UPDATE].tolist():
            self._updated(int(self.place[row]), self.columns.ad(row))

    def _held(self, at: Ints, texts: Sequence[str]) -> None:
        """Read the reasons of holds at these steps."""
        if not len(at):
            return
        steps = self.steps
        codes, subcodes = steps["code"][at].tolist(), steps["subcode"][at].tolist()
        reasons = [
            _parsed(text, *((code, subcode) if code >= 0 else (None, None)))
            for text, code, subcode in zip(texts, codes, subcodes, strict=True)
        ]
        fill_reasons(steps, at, reasons, self.names)
        if self.names.reasons is not None:
            columns = (steps[name][at].tolist() for name in ("job", "time", "template"))
            self.names.reasons.update(zip(zip(*columns, strict=True), texts, strict=True))
        for step, text in zip(at.tolist(), texts, strict=True):
            self._acted(step, text)

    def _acted(self, step: int, text: str) -> None:
        if who := _who(text):
            self.steps["part"][step] = who
        if self.steps["kind"][step] == Kind.JOB_RELEASED and text.startswith(REPAIR_MARK):
            self.steps["settings"][step, EDITED] = 1

    def _updated(self, step: int, ad: dict[str, Any]) -> None:
        name = ad.get("Attribute")
        if name in _SETTING_PLACES or name in _REQUESTS:
            self.steps["settings"][step, EDITED] = 1

    def _intern(
        self,
        name: str,
        parts: Sequence[_Spans],
        hashes: Sequence[Keys],
        known: dict[int, int],
        number: Callable[[str], int],
    ) -> None:
        """Write a number for each text; only texts with a new hash are decoded."""
        distinct, first, which = np.unique(
            np.concatenate(hashes), return_index=True, return_inverse=True
        )
        numbers = np.empty(len(distinct), np.int64)
        if len(known) > _KNOWN_HASHES:  # glideins bring new slot names for ever
            known.clear()
        begin = len(parts[0].start)
        for index, (key, row) in enumerate(zip(distinct.tolist(), first.tolist(), strict=True)):
            if key not in known:
                text = parts[0].text(row) if row < begin else parts[1].text(row - begin)
                known[key] = number(text)
            numbers[index] = known[key]
        self.steps[name][np.concatenate([part.at for part in parts])] = numbers[which]

    def _from_ad(self, step: int, ad: dict[str, Any]) -> None:
        """Fill one step from an event's attributes: JSON and XML events."""
        row = self.steps[step]
        kind = int(row["kind"])
        for name, attribute in _NUMBERS:
            value = ad.get(attribute)
            if isinstance(value, int | float) and not isinstance(value, bool):
                _put(row, name, value)
        if kind == Kind.FILE_TRANSFER and isinstance(ad.get("Type"), int):
            _put(row, "part", ad["Type"])
        if kind == Kind.JOB_TERMINATED:
            for name, base in (("ReturnValue", 0), ("TerminatedBySignal", 256)):
                if isinstance(ad.get(name), int) and not isinstance(ad.get(name), bool):
                    _put(row, "exit", base + ad[name])
        slot = ad.get("SlotName") or ad.get("ExecuteHost")
        if isinstance(slot, str) and kind in (Kind.EXECUTE, Kind.REMOTE_ERROR):
            row["point"] = self.names.point(slot)
        if kind == Kind.JOB_AD_INFORMATION:
            if isinstance(ad.get("Owner"), str):
                row["owner"] = self.names.owner(ad["Owner"])
            if isinstance(ad.get("JobBatchName"), str):
                [row["batch"]] = _as_kin(_text_hash(ad["JobBatchName"]))
                row["stem"] = stem_hash(ad["JobBatchName"])
            if isinstance(ad.get("Cmd"), str):
                row["program"] = program_hash(ad["Cmd"])
            for name, place in _SETTING_PLACES.items():
                if (value := ad.get(name)) is not None and not isinstance(value, bool):
                    text = f'"{value}"' if isinstance(value, str) else str(value)
                    [row["settings"][place]] = _setting_bytes(_spans_of(text))
        if kind == Kind.JOB_HELD:
            self._held(np.array([step]), [str(ad.get("HoldReason", ""))])
        elif kind in (Kind.JOB_RELEASED, Kind.JOB_ABORTED):
            self._acted(step, str(ad.get("Reason", "")))
        elif kind == Kind.ATTRIBUTE_UPDATE:
            self._updated(step, ad)


def _put(row: Any, name: str, value: float) -> None:
    """Set a number of a step; one that its column cannot hold is as if absent."""
    with suppress(OverflowError, ValueError):
        row[name] = value


_parsed = lru_cache(maxsize=_KNOWN_TEXTS)(parse_reason)  # jobs of one cluster say the same


@lru_cache(maxsize=_KNOWN_TEXTS)
def _who(text: str) -> int:
    """Tell from a reason who held, released or removed a job."""
    if acting_user(text):
        return BY_USER
    return BY_POLICY if _POLICY.search(text) else BY_NOBODY


def fill_reasons(steps: Steps, at: Ints, reasons: Sequence[Reason], names: Names) -> None:
    """Write what hold reasons say into the steps of their holds."""
    steps["family"][at] = [FAMILY_INDEX[reason.family] for reason in reasons]
    steps["template"][at] = [reason.template_id for reason in reasons]
    for name, values in (
        ("used", [reason.used_mb for reason in reasons]),
        ("limit", [reason.limit_mb for reason in reasons]),
        ("errno", [reason.errno for reason in reasons]),
        ("http", [reason.http_status for reason in reasons]),
    ):
        steps[name][at] = np.array(values, np.float64)  # None becomes NaN
    for step, reason in zip(at.tolist(), reasons, strict=True):
        names.templates.setdefault(reason.template_id, reason.template)
        if reason.point:
            steps["point"][step] = names.point(reason.point)


def text_hashes(words: BlockWords, start: Ints, end: Ints) -> Keys:
    """Return a hash of each text, by its length and its first bytes, eight at a time."""
    length = end - start
    hashes: Keys = length.astype(np.uint64) * MIX
    for at in range(0, min(int(length.max(initial=0)), _HASHED_BYTES), 8):
        rows = np.flatnonzero(length > at)
        bits = np.uint64(8) * np.minimum(length[rows] - at, 8).astype(np.uint64)
        mask = np.where(bits == 64, np.uint64(0), np.uint64(1) << bits) - np.uint64(1)
        mixed = (hashes[rows] ^ (words[start[rows] + at] & mask)) * MIX
        hashes[rows] = mixed ^ (mixed >> np.uint64(29))
    return hashes


def _text_hash(text: str) -> Keys:
    spans = _spans_of(text)
    return text_hashes(spans.words, spans.start, spans.end)


def _spans_of(text: str) -> _Spans:
    """Return one text as spans of a block of its own."""
    data = text.encode()
    here = np.array([0])
    return _Spans(BlockWords(pad(data)), data, here, here, np.array([len(data)]))


def _setting_bytes(texts: _Spans) -> npt.NDArray[np.uint8]:
    """Return a byte of hash for each text, zero for those that tell nothing."""
    hashes = texts.hashes()
    for row in np.flatnonzero(texts.end - texts.start > _HASHED_BYTES).tolist():
        hashes[row] ^= np.uint64(zlib.crc32(texts.data[texts.start[row] : texts.end[row]]))
    told = (hashes ^ (hashes >> np.uint64(32))) % np.uint64(VARIES - 1) + np.uint64(1)
    told[np.isin(hashes, _no_setting())] = 0
    if b"$$" in texts.data:
        for row, (start, end) in enumerate(zip(texts.start, texts.end, strict=True)):
            if b"$$" in texts.data[start:end]:
                told[row] = VARIES
    return told.astype(np.uint8)


@lru_cache(maxsize=1)
def _no_setting() -> Keys:
    """Return the hashes of values that policies have once they are evaluated, as 028 events do."""
    return np.concatenate([_text_hash(text) for text in ("true", "false", "undefined", "error")])


def _as_kin(hashes: Keys) -> Ints:
    """Return hashes as numbers that cannot be taken for a DAGMan job's cluster, nor for none."""
    numbers: Ints = -(hashes >> np.uint64(2)).astype(np.int64) - 1
    return numbers if len(numbers) > 1 else numbers.reshape(-1)


def _select(texts: Texts, chosen: npt.NDArray[np.bool_]) -> Iterable[tuple[int, str]]:
    return type(texts)(texts.rows[chosen], texts.start[chosen], texts.end[chosen], texts.data)
