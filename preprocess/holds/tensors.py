"""Encode a hold's history as (step, feature) rows for the LSTM: oldest first, the hold last.

Each row describes one event: its kind, the time since the last one, where the job was, what it
used, and the state of the whole pool at that moment. A tensor has no missing values: what was not
reported is 0. Optionally each hold comes with j neighbours: jobs with an event in the same time
frame, drawn by a seed, with their own steps up to the hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from condor_advice.gather.events import JobEventType as Kind
from condor_advice.gather.hashing import MIX
from condor_advice.preprocess.holds.steps import (
    BY_POLICY,
    BY_USER,
    CONTEXT_CHANNELS,
    Steps,
)
from condor_advice.preprocess.holds.templates import TEMPLATE_BUCKETS

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
EpisodeTensor = npt.NDArray[np.float32]  # axes: (step, feature)

_KINDS = {
    "submit": Kind.SUBMIT,
    "execute": Kind.EXECUTE,
    "evicted": Kind.JOB_EVICTED,
    "terminated": Kind.JOB_TERMINATED,
    "image_size": Kind.IMAGE_SIZE,
    "shadow_exception": Kind.SHADOW_EXCEPTION,
    "aborted": Kind.JOB_ABORTED,
    "suspended": Kind.JOB_SUSPENDED,
    "unsuspended": Kind.JOB_UNSUSPENDED,
    "held": Kind.JOB_HELD,
    "released": Kind.JOB_RELEASED,
    "remote_error": Kind.REMOTE_ERROR,
    "disconnected": Kind.JOB_DISCONNECTED,
    "reconnected": Kind.JOB_RECONNECTED,
    "reconnect_failed": Kind.JOB_RECONNECT_FAILED,
    "attributes": Kind.JOB_AD_INFORMATION,
}
_TRANSFERS = (
    "input_queued",
    "input_began",
    "input_done",
    "output_queued",
    "output_began",
    "output_done",
)


@dataclass(frozen=True)
class Window:
    """Rows of steps, each with the row where its job's life begins and the row of its hold."""

    steps: Steps
    row: Ints
    first: Ints
    hold: Ints

    @cached_property
    def kind(self) -> npt.NDArray[np.int16]:
        """The kind of event of each row."""
        return np.ascontiguousarray(self.steps["kind"])[self.row]

    @cached_property
    def part(self) -> npt.NDArray[np.int8]:
        """The part of each row."""
        return np.ascontiguousarray(self.steps["part"])[self.row]

    def value(self, name: str) -> Floats:
        """Return a field of each row; 0 if it has none."""
        values: Floats = np.nan_to_num(self.steps[name][self.row].astype(np.float64))
        return values

    def seconds(self, later: Ints, earlier: Ints) -> Floats:
        """Return the seconds between rows, never below zero."""
        time = self.steps["time"]
        seconds: Floats = np.maximum((time[later] - time[earlier]) / 1e6, 0.0)
        return seconds


@dataclass(frozen=True, slots=True)
class StepColumn:
    """One column of the tensor."""

    name: str
    unit: str
    meaning: str
    compute: Callable[[Window], npt.NDArray[np.generic]]


def _is(kind: Kind) -> Callable[[Window], npt.NDArray[np.generic]]:
    return lambda w: w.kind == kind


def _part(part: int) -> Callable[[Window], npt.NDArray[np.generic]]:
    return lambda w: (w.kind == Kind.FILE_TRANSFER) & (w.part == part)


def _log(name: str) -> Callable[[Window], npt.NDArray[np.generic]]:
    return lambda w: np.log1p(np.maximum(w.value(name), 0.0))


def _channel(index: int) -> Callable[[Window], npt.NDArray[np.generic]]:
    return lambda w: np.log1p(w.steps["context"][w.row, index].astype(np.float64))


def _acted(who: int) -> Callable[[Window], npt.NDArray[np.generic]]:
    acts = (Kind.JOB_HELD, Kind.JOB_RELEASED, Kind.JOB_ABORTED)
    return lambda w: np.isin(w.kind, acts) & (w.part == who)


def _moved(window: Window) -> npt.NDArray[np.generic]:
    """Tell which executions are on a different point from the execution before."""
    steps = window.steps
    starts = np.flatnonzero((steps["kind"] == Kind.EXECUTE) & (steps["point"] >= 0))
    place = np.searchsorted(starts, window.row) - 1
    last = starts[np.maximum(place, 0)] if len(starts) else np.zeros(len(place), np.int64)
    here = (steps["kind"][window.row] == Kind.EXECUTE) & (steps["point"][window.row] >= 0)
    again = here & (place >= 0) & (last >= window.first)
    moved: npt.NDArray[np.bool_] = again & (steps["point"][last] != steps["point"][window.row])
    return moved


def _over_request(window: Window) -> npt.NDArray[np.generic]:
    memory, request = window.value("memory"), window.value("request_memory")
    return np.divide(memory, request, out=np.zeros_like(memory), where=request > 0)


def _template(window: Window) -> npt.NDArray[np.generic]:
    template = window.steps["template"][window.row]
    return np.where(template >= 0, 1 + template % (TEMPLATE_BUCKETS - 1), 0)


def _family(window: Window) -> npt.NDArray[np.generic]:
    held = window.kind == Kind.JOB_HELD
    return np.where(held, window.steps["family"][window.row], 0)


STEP_COLUMNS: tuple[StepColumn, ...] = (
    *(
        StepColumn(f"is_{name}", "0/1", f"The event is a {kind:03d}", _is(kind))
        for name, kind in _KINDS.items()
    ),
    *(
        StepColumn(f"is_{name}", "0/1", f"The event is a 040 of type {part}", _part(part))
        for part, name in enumerate(_TRANSFERS, start=1)
    ),
    StepColumn(
        "gap",
        "log(1+s)",
        "Time since the step before; 0 for the first",
        lambda w: np.log1p(w.seconds(w.row, np.maximum(w.row - 1, w.first))),
    ),
    StepColumn(
        "before_hold",
        "log(1+s)",
        "Time from this step to the hold; 0 in the last row",
        lambda w: np.log1p(w.seconds(w.hold, w.row)),
    ),
    StepColumn(
        "moved", "0/1", "Executes on a different execution point from the last time", _moved
    ),
    StepColumn("memory", "log(1+MB)", "Memory usage, as the event reports it", _log("memory")),
    StepColumn(
        "memory_over_request",
        "ratio",
        "Memory usage over request, if the event has both",
        _over_request,
    ),
    StepColumn(
        "request_memory",
        "log(1+MB)",
        "Memory requested, as the event reports it",
        _log("request_memory"),
    ),
    StepColumn("image", "log(1+KB)", "Image size", _log("image")),
    StepColumn("cpu", "log(1+s)", "CPU time of the run", _log("cpu")),
    StepColumn("sent", "log(1+B)", "Bytes sent by the run", _log("sent")),
    StepColumn("received", "log(1+B)", "Bytes received by the run", _log("received")),
    StepColumn(
        "code",
        "index",
        "HoldReasonCode, or the code of a 004 or 021; 0 if none",
        lambda w: np.maximum(w.steps["code"][w.row], 0),
    ),
    StepColumn("family", "index", "Family of the hold reason; 0 if none", _family),
    StepColumn(
        "template", "index", "Embedding index of the hold reason's template; 0 if none", _template
    ),
    StepColumn("by_user", "0/1", "A user held or released it", _acted(BY_USER)),
    StepColumn("by_policy", "0/1", "A policy expression held or released it", _acted(BY_POLICY)),
    *(
        StepColumn(
            name,
            "log(1+count)",
            f"All jobs at that moment: {name.split('_', 1)[1]}",
            _channel(index),
        )
        for index, name in enumerate(CONTEXT_CHANNELS)
    ),
)


@dataclass(frozen=True)
class TensorSpec:
    """The shape of a tensor; stored with every model trained on it."""

    max_steps: int = 64
    neighbours: int = 0
    neighbour_steps: int = 8
    frame_seconds: int = 3600  # neighbours have an event within this time before the hold
    seed: int = 0

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return tuple(column.name for column in STEP_COLUMNS)

    @property
    def num_features(self) -> int:
        """The number of features of a step."""
        return len(STEP_COLUMNS)

    def column(self, name: str) -> int:
        """Return the index of a feature in a row."""
        return self.columns.index(name)


def encode_rows(steps: Steps, row: Ints, first: Ints, hold: Ints) -> EpisodeTensor:
    """Encode rows of steps; `first` is where each row's life begins, `hold` is its hold."""
    window = Window(steps, row, first, hold)
    tensor = np.empty((len(STEP_COLUMNS), len(row)), np.float32)
    for index, column in enumerate(STEP_COLUMNS):
        tensor[index] = column.compute(window)
    return np.ascontiguousarray(tensor.T)


def encode_holds(
    steps: Steps, at: Ints, first: Ints, spec: TensorSpec
) -> tuple[EpisodeTensor, Ints]:
    """Encode the steps up to each hold, one after the other without padding.

    Return the rows, and the offset of each hold's rows in them, with the end appended.
    """
    begin = np.maximum(first, at - spec.max_steps + 1)
    lengths = at - begin + 1
    offsets = np.append(0, np.cumsum(lengths))
    row = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - begin, lengths)
    return encode_rows(steps, row, np.repeat(first, lengths), np.repeat(at, lengths)), offsets


def padded(rows: EpisodeTensor, offsets: Ints, max_steps: int) -> npt.NDArray[np.float32]:
    """Return holds as one array, axes (hold, step, feature); padding goes in front."""
    lengths = np.diff(offsets)
    tensor = np.zeros((len(lengths), max_steps, rows.shape[1]), np.float32)
    begin = np.maximum(offsets[:-1], offsets[1:] - max_steps)
    for index, (start, end) in enumerate(zip(begin.tolist(), offsets[1:].tolist(), strict=True)):
        if end > start:
            tensor[index, max_steps - (end - start) :] = rows[start:end]
    return tensor


# ---- neighbours ----------------------------------------------------------------------------

# Rows of these kinds are always kept; others may be dropped later (see stream.py), and a neighbour
# must look the same whatever happens after the hold.
NEIGHBOUR_KINDS = np.array(
    [
        Kind.SUBMIT,
        Kind.EXECUTE,
        Kind.JOB_EVICTED,
        Kind.JOB_TERMINATED,
        Kind.JOB_ABORTED,
        Kind.JOB_HELD,
        Kind.JOB_RELEASED,
    ]
)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def draw(seed: int, hold: Ints, nth: int, count: Ints) -> Ints:
    """Draw a number below `count` for each hold's sequence number, the same on every call."""
    with np.errstate(over="ignore"):
        mixed = hold.astype(np.uint64) * MIX
        mixed += np.uint64(seed % (1 << 32)) * _M1 + np.uint64(nth) * _M2
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _M1
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _M2
        mixed ^= mixed >> np.uint64(31)
    return (mixed % np.maximum(count, 1).astype(np.uint64)).astype(np.int64)


def encode_neighbours(
    steps: Steps, life: Ints, hold: Steps, recent: Steps, spec: TensorSpec
) -> npt.NDArray[np.float32]:
    """Encode the steps of each hold's neighbours; axes (hold, neighbour, step, feature).

    `steps` are the steps of all live jobs by job and order, `life` their lives, `recent` the steps
    of NEIGHBOUR_KINDS in the last time frame, in order. A neighbour stays empty if the held job
    itself is drawn, or if there is no job to draw.
    """
    shape = (len(hold), spec.neighbours, spec.neighbour_steps, spec.num_features)
    tensor = np.zeros(shape, np.float32)
    if not spec.neighbours or not len(hold):
        return tensor
    if not len(recent):
        return tensor
    job, sequence = steps["job"], np.ascontiguousarray(steps["sequence"])
    plain = np.isin(steps["kind"], NEIGHBOUR_KINDS)
    low = np.searchsorted(recent["clock"], hold["clock"] - spec.frame_seconds * 1_000_000, "right")
    high = np.searchsorted(recent["sequence"], hold["sequence"])
    chosen: list[tuple[int, int, Ints]] = []
    for nth in range(spec.neighbours):
        place = low + draw(spec.seed, hold["sequence"], nth, high - low)
        drawn = recent[np.minimum(place, len(recent) - 1)]
        begin = np.searchsorted(job, drawn["job"])
        end = np.searchsorted(job, drawn["job"], side="right")
        for index in np.flatnonzero((high > low) & (drawn["job"] != hold["job"])).tolist():
            rows = np.arange(begin[index], end[index])
            rows = rows[sequence[rows] < hold["sequence"][index]]
            seen = rows[sequence[rows] == drawn["sequence"][index]]
            # An earlier life of that job is over, and its steps may be gone.
            if len(seen) and life[seen[0]] == life[rows[-1]]:
                rows = rows[plain[rows] & (life[rows] == life[seen[0]])]
                chosen.append((index, nth, rows[-spec.neighbour_steps :]))
    if chosen:
        lengths = np.array([len(rows) for _, _, rows in chosen])
        offsets = np.append(0, np.cumsum(lengths))
        shown = np.concatenate((steps[np.concatenate([rows for _, _, rows in chosen])], hold))
        encoded = encode_rows(
            shown,
            np.arange(offsets[-1]),
            np.repeat(offsets[:-1], lengths),
            np.repeat(offsets[-1] + np.array([index for index, _, _ in chosen]), lengths),
        )
        for (index, nth, _), start, stop in zip(chosen, offsets, offsets[1:], strict=False):
            tensor[index, nth, spec.neighbour_steps - (stop - start) :] = encoded[start:stop]
    return tensor
