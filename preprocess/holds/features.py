"""A hold's features: named columns for trees, each with its unit, meaning and source.

The registry `HOLD_FEATURES` defines every column; the table, its data dictionary and the tests
derive from it. A column is computed for all holds of a batch at once. Unknown values are NaN,
never a made-up number.

A column sees only a `Held`: the job's own steps before the hold, the hold itself, and the context
as of the hold. The hold's own event is included; later events are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from condor_advice.gather.events import JobEventType as Kind
from condor_advice.gather.words import distinct
from condor_advice.preprocess.holds.context import (
    CONTEXT_LEVELS,
    CONTEXT_WINDOWS,
    HOLD_FACTS,
    TIMED_FACTS,
    TRAFFIC_FACTS,
    Answer,
    seconds,
)
from condor_advice.preprocess.holds.steps import BY_POLICY, BY_USER, Steps
from condor_advice.preprocess.holds.templates import TEMPLATE_BUCKETS

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

QUICK_SECONDS = 600  # held again this soon after a release, without a start: it never ran
OWN_FAULT_SECONDS = 5  # a 004 this close before a 012 belongs to the same fault
# Each rate is mixed with this many outcomes at the pool's average, so that few outcomes say little.
SHRINKAGE = 4.0
PRIOR_SUCCESS = 0.5  # before any outcome is known
_DAY = 86400


class Held:
    """The holds of a batch, with what was known at each."""

    def __init__(
        self,
        steps: Steps,
        at: Ints,
        first: Ints,
        context: Mapping[str, tuple[Answer, Answer | None]],
    ) -> None:
        self.steps = steps  # steps of the held jobs, grouped by life and in order
        self.at = at  # the holds' rows
        self.first = first  # the row where each held job's life begins
        self.context = context
        self.hold = steps[at]
        self.time: Ints = np.ascontiguousarray(steps["time"])
        self.kind = np.ascontiguousarray(steps["kind"])
        self._facts: dict[tuple[str, str, str | None], Floats] = {}

    # ---- the job's own steps

    def of(self, *kinds: Kind) -> Ints:
        """Return the rows with these kinds of events."""
        return np.flatnonzero(np.isin(self.kind, kinds))

    def count(self, rows: Ints) -> Floats:
        """Count how many of these rows precede each hold."""
        counts = np.searchsorted(rows, self.at) - np.searchsorted(rows, self.first)
        return counts.astype(np.float64)

    def last(self, rows: Ints) -> Ints:
        """Return the last of these rows before each hold; -1 if there is none."""
        place = np.searchsorted(rows, self.at) - 1
        last = rows[np.maximum(place, 0)] if len(rows) else np.full(len(self.at), -1)
        return np.where((place >= 0) & (last >= self.first), last, -1)

    def earliest(self, rows: Ints) -> Ints:
        """Return the first of these rows before each hold; -1 if there is none."""
        place = np.searchsorted(rows, self.first)
        first = np.append(rows, len(self.steps))[place]
        return np.where(first < self.at, first, -1)

    def value(self, name: str, row: Ints) -> Floats:
        """Return a field of these rows; NaN where the row is -1."""
        values = self.steps[name][np.maximum(row, 0)].astype(np.float64)
        return np.where(row >= 0, values, np.nan)

    def since(self, row: Ints) -> Floats:
        """Return the seconds from these rows to the hold; NaN where the row is -1."""
        seconds = (self.time[self.at] - self.time[np.maximum(row, 0)]) / 1e6
        return np.where(row >= 0, np.maximum(seconds, 0.0), np.nan)

    def known(self, name: str) -> Ints:
        """Return the rows that have a value for a field."""
        return np.flatnonzero(~np.isnan(self.steps[name]))

    def latest(self, name: str) -> Floats:
        """Return the last known value of a field before each hold."""
        return self.value(name, self.last(self.known(name)))

    def highest(self, name: str) -> Floats:
        """Return the largest value of a field before each hold."""
        edges = np.stack((self.first, self.at), axis=1).ravel()
        values = self.steps[name].astype(np.float64)
        highest = np.fmax.reduceat(values, edges)[::2] if len(values) else np.empty(0)
        return np.where(self.at > self.first, highest, np.nan)

    def total(self, rows: Ints, whole_numbers: Ints) -> Floats:
        """Sum whole numbers over the rows before each hold; exact in any order."""
        sums = np.append(0, np.cumsum(whole_numbers))
        low, high = np.searchsorted(rows, self.first), np.searchsorted(rows, self.at)
        totals: Floats = (sums[high] - sums[low]).astype(np.float64)
        return totals

    @cached_property
    def starts(self) -> Ints:
        """Rows of executions."""
        return self.of(Kind.EXECUTE)

    @cached_property
    def holds(self) -> Ints:
        """Rows of holds."""
        return self.of(Kind.JOB_HELD)

    @cached_property
    def releases(self) -> Ints:
        """Rows of releases."""
        return self.of(Kind.JOB_RELEASED)

    @cached_property
    def run_microseconds(self) -> Ints:
        """Length of each run: to its end, or to the next start if the end is missing."""
        ends = np.flatnonzero(np.isin(self.kind, _RUN_ENDS))
        following = np.append(ends, len(self.steps) - 1)[np.searchsorted(ends, self.starts)]
        if len(self.starts):
            following = np.minimum(following, np.append(self.starts[1:], len(self.steps) - 1))
        lengths: Ints = np.maximum(self.time[following] - self.time[self.starts], 0)
        return lengths

    @cached_property
    def evictions(self) -> Ints:
        """Rows of evictions that are not part of a hold."""
        rows = self.of(Kind.JOB_EVICTED)
        code = self.steps["code"][rows]
        following = np.minimum(rows + 1, len(self.steps) - 1)
        near = self.time[following] - self.time[rows] <= OWN_FAULT_SECONDS * 1_000_000
        part_of_hold = (self.kind[following] == Kind.JOB_HELD) & near
        evictions: Ints = rows[((code < 0) | (code >= 1000)) & ~part_of_hold]
        return evictions

    @cached_property
    def previous(self) -> Ints:
        """Row of the hold before this one."""
        return self.last(self.holds)

    @cached_property
    def released(self) -> Ints:
        """Row of the last release, if it came after the last hold."""
        row = self.last(self.releases)
        return np.where(row > self.previous, row, -1)

    @cached_property
    def quick(self) -> Ints:
        """Rows of holds that came within minutes of a release without a start in between."""
        release = np.searchsorted(self.releases, self.holds) - 1
        row = self.releases[np.maximum(release, 0)] if len(self.releases) else self.holds
        soon = self.time[self.holds] - self.time[row] <= QUICK_SECONDS * 1_000_000
        started = np.searchsorted(self.starts, self.holds) > np.searchsorted(self.starts, row)
        same = self.life_of(row) == self.life_of(self.holds)
        quick: Ints = self.holds[(release >= 0) & same & soon & ~started]
        return quick

    def same_as_previous(self, name: str) -> Floats:
        """Tell whether a field equals that of the previous hold; NaN without one."""
        same = self.steps[name][np.maximum(self.previous, 0)] == self.hold[name]
        return np.where(self.previous >= 0, same.astype(np.float64), np.nan)

    def matching(self, name: str) -> Floats:
        """Count earlier holds of the job that agree with this one in a field."""
        rows = self.holds
        life, value = self.life_of(rows), self.steps[name][rows]
        order = np.lexsort((rows, value, life))
        fresh = np.r_[True, (np.diff(life[order]) != 0) | (np.diff(value[order]) != 0)]
        place = np.arange(len(rows))
        rank = np.empty(len(rows))
        rank[order] = place - np.maximum.accumulate(np.where(fresh[: len(rows)], place, 0))
        return rank[np.searchsorted(rows, self.at)]

    def distinct_points(self) -> Floats:
        """Count the execution points on which the job has started."""
        rows = self.starts
        point = self.steps["point"][rows]
        life = self.life_of(rows)
        # Only a life's first start on a point counts; sorting finds it.
        order = np.lexsort((rows, point, life))
        fresh = np.r_[True, (np.diff(life[order]) != 0) | (np.diff(point[order]) != 0)]
        fresh = fresh[: len(rows)] & (point[order] >= 0)
        return self.count(np.sort(rows[order[fresh]]))

    def life_of(self, rows: Ints) -> Ints:
        """Return which life each row belongs to."""
        return np.searchsorted(distinct(self.first), rows, side="right")

    # ---- the context

    def facts(self, level: str, fact: str, window: str | None = None) -> Floats:
        """Count facts of a level, so far or in a window; NaN if the hold has no key there."""
        values = self._facts.get((level, fact, window))
        if values is None:
            holds, traffic = self.context[level]
            facts, answer = (HOLD_FACTS, holds) if fact in HOLD_FACTS else (TRAFFIC_FACTS, traffic)
            assert answer is not None
            counts = answer.total if window is None else answer.recent[window]
            values = counts[:, facts.index(fact)].astype(np.float64)
            # Where a level's key is known, the hold itself counts as a fact.
            values[holds.total[:, HOLD_FACTS.index("hold")] == 0] = np.nan
            self._facts[level, fact, window] = values
        return values

    def since_fact(self, level: str, fact: str) -> Floats:
        """Return the seconds since the last such fact; NaN if there was none."""
        holds = self.context[level][0]
        last = holds.last[:, TIMED_FACTS.index(fact)]
        now = seconds(self.hold["clock"])
        return np.where(last >= 0, (now - last).astype(np.float64), np.nan)

    def last_outcome(self, level: str) -> Floats:
        """Return 1 or 0 for the last known outcome of a release; NaN if there is none."""
        holds = self.context[level][0]
        good = holds.last_sequence[:, TIMED_FACTS.index("good")]
        bad = holds.last_sequence[:, TIMED_FACTS.index("bad")]
        return np.where((good < 0) & (bad < 0), np.nan, (good > bad).astype(np.float64))

    def success_rate(self, level: str, window: str | None = None) -> Floats:
        """Return the share of releases that succeeded, shrunk towards the pool's rate."""
        pool_good, pool_bad = (self.facts("pool", fact) for fact in ("good", "bad"))
        average = (pool_good + SHRINKAGE * PRIOR_SUCCESS) / (pool_good + pool_bad + SHRINKAGE)
        if level == "pool" and window is None:
            return average
        good, bad = (self.facts(level, fact, window) for fact in ("good", "bad"))
        return (good + SHRINKAGE * average) / (good + bad + SHRINKAGE)

    def others(self, level: str, fact: str, own: Floats) -> Floats:
        """Count a level's facts, without the job's own."""
        return np.maximum(self.facts(level, fact) - own, 0.0)


_RUN_ENDS = (
    Kind.JOB_EVICTED,
    Kind.JOB_TERMINATED,
    Kind.SHADOW_EXCEPTION,
    Kind.JOB_HELD,
    Kind.JOB_RECONNECT_FAILED,
    Kind.JOB_ABORTED,
)


@dataclass(frozen=True, slots=True)
class Feature:
    """One column."""

    name: str
    unit: str
    meaning: str
    source: str  # the events it comes from
    compute: Callable[[Held], npt.NDArray[np.generic]]


def _missing(values: npt.NDArray[np.generic], none: float = -1) -> Floats:
    floats = values.astype(np.float64)
    return np.where(floats == none, np.nan, floats)


def _hour(held: Held) -> Floats:
    hours: Floats = held.hold["time"] // 1_000_000 % _DAY / 3600.0
    return hours


def _ratio(top: Floats, bottom: Floats) -> Floats:
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)


def _changed(held: Held, name: str) -> Floats:
    """Return the last value before this hold over the last one before the previous hold."""
    rows = held.known(name)
    now = held.value(name, held.last(rows))
    place = np.searchsorted(rows, np.maximum(held.previous, 0)) - 1
    before = rows[np.maximum(place, 0)] if len(rows) else np.zeros(len(held.at), np.int64)
    fits = (held.previous >= 0) & (place >= 0) & (before >= held.first)
    return np.where(fits, _ratio(now, held.value(name, np.where(fits, before, -1))), np.nan)


def _by(held: Held, who: int) -> Ints:
    releases: Ints = held.releases[held.steps["part"][held.releases] == who]
    return releases


def _transfer(held: Held, part: int) -> Ints:
    return np.flatnonzero((held.kind == Kind.FILE_TRANSFER) & (held.steps["part"] == part))


def _last_run(held: Held) -> Floats:
    row = held.last(held.starts)
    place = np.searchsorted(held.starts, np.maximum(row, 0))
    lengths = np.append(held.run_microseconds, 0) / 1e6
    return np.where(row >= 0, lengths[place], np.nan)


def _longest_run(held: Held) -> Floats:
    lengths = np.full(len(held.steps), np.nan)
    lengths[held.starts] = held.run_microseconds / 1e6
    edges = np.stack((held.first, held.at), axis=1).ravel()
    longest = np.fmax.reduceat(lengths, edges)[::2] if len(lengths) else np.empty(0)
    return np.where(held.at > held.first, longest, np.nan)


def _input_seconds(held: Held) -> Floats:
    begun, done = held.last(_transfer(held, 2)), held.last(_transfer(held, 3))
    seconds = np.minimum(held.since(begun), held.since(begun) - held.since(done))
    return np.where((begun >= 0) & (done > begun), np.maximum(seconds, 0), np.nan)


def _held_before(held: Held) -> Floats:
    """Return the seconds from the previous hold to its release."""
    seconds = held.since(held.previous) - held.since(held.released)
    return np.maximum(seconds, 0)


_JOB_FEATURES = (
    Feature("hold_code", "", "HoldReasonCode", "012", lambda h: _missing(h.hold["code"])),
    Feature(
        "hold_subcode",
        "",
        "HoldReasonSubCode",
        "012",
        lambda h: np.where(h.hold["code"] >= 0, h.hold["subcode"], np.nan),
    ),
    Feature(
        "hold_family",
        "index",
        "Family of the hold reason, as its index in FAMILIES",
        "012",
        lambda h: h.hold["family"],
    ),
    Feature(
        "hold_template",
        "index",
        "Embedding index of the hold reason's template",
        "012",
        lambda h: 1 + h.hold["template"] % (TEMPLATE_BUCKETS - 1),
    ),
    Feature("hold_errno", "", "errno in the hold reason", "012", lambda h: h.hold["errno"]),
    Feature(
        "hold_http_status", "", "HTTP status in the hold reason", "012", lambda h: h.hold["http"]
    ),
    Feature(
        "hold_used_mb", "MB", "Usage stated in the hold reason", "012", lambda h: h.hold["used"]
    ),
    Feature(
        "hold_limit_mb",
        "MB",
        "Limit stated in the hold reason",
        "012",
        lambda h: h.hold["limit"],
    ),
    Feature(
        "hold_used_over_limit",
        "ratio",
        "Usage over limit, both stated in the hold reason",
        "012",
        lambda h: _ratio(h.hold["used"].astype(float), h.hold["limit"].astype(float)),
    ),
    Feature("hold_by_user", "0/1", "A user held it", "012", lambda h: h.hold["part"] == BY_USER),
    Feature(
        "hold_by_policy",
        "0/1",
        "A policy expression held it",
        "012",
        lambda h: h.hold["part"] == BY_POLICY,
    ),
    Feature(
        "hold_hour_sin",
        "",
        "Hour of the day in UTC, as a sine",
        "012",
        lambda h: np.sin(_hour(h) * np.pi / 12),
    ),
    Feature(
        "hold_hour_cos",
        "",
        "Hour of the day in UTC, as a cosine",
        "012",
        lambda h: np.cos(_hour(h) * np.pi / 12),
    ),
    Feature(
        "hold_weekday",
        "day",
        "Day of the week in UTC, 0 for Monday",
        "012",
        lambda h: (h.hold["time"] // (_DAY * 1_000_000) + 3) % 7,
    ),
    Feature(
        "hold_number",
        "count",
        "Number of this hold among the job's holds, from 1",
        "012",
        lambda h: h.count(h.holds) + 1,
    ),
    Feature(
        "hold_while_held",
        "0/1",
        "The job was already on hold: its hold reason was edited",
        "012, 013",
        lambda h: (h.previous >= 0) & (h.released < 0),
    ),
    Feature(
        "hold_point_known",
        "0/1",
        "The execution point is known",
        "001, 012, 021",
        lambda h: h.hold["point"] >= 0,
    ),
    Feature(
        "job_submit_seen",
        "0/1",
        "The job's submission is in the log",
        "000",
        lambda h: h.count(h.of(Kind.SUBMIT)) > 0,
    ),
    Feature(
        "job_age",
        "s",
        "Time since submission",
        "000",
        lambda h: h.since(h.earliest(h.of(Kind.SUBMIT))),
    ),
    Feature(
        "job_events", "count", "Steps of the job before the hold", "all", lambda h: h.at - h.first
    ),
    Feature(
        "job_since_event",
        "s",
        "Time since its last event before the hold",
        "all",
        lambda h: h.since(np.where(h.at > h.first, h.at - 1, -1)),
    ),
    Feature("job_starts", "count", "Executions so far", "001", lambda h: h.count(h.starts)),
    Feature(
        "job_since_start",
        "s",
        "Time since its last execution began",
        "001",
        lambda h: h.since(h.last(h.starts)),
    ),
    Feature(
        "job_wait_for_start",
        "s",
        "Time from submission to first execution",
        "000, 001",
        lambda h: np.maximum(
            h.since(h.earliest(h.of(Kind.SUBMIT))) - h.since(h.earliest(h.starts)), 0
        ),
    ),
    Feature(
        "job_run_total",
        "s",
        "Run time of all executions",
        "001, 004, 005, 007, 012, 024",
        lambda h: h.total(h.starts, h.run_microseconds) / 1e6,
    ),
    Feature(
        "job_run_last",
        "s",
        "Run time of the last execution",
        "001, 004, 005, 007, 012, 024",
        _last_run,
    ),
    Feature(
        "job_run_longest",
        "s",
        "Run time of the longest execution",
        "001, 004, 005, 007, 012, 024",
        _longest_run,
    ),
    Feature(
        "job_points",
        "count",
        "Execution points on which it has started",
        "001",
        lambda h: h.distinct_points(),
    ),
    Feature(
        "job_evictions",
        "count",
        "Evictions that were not part of a hold",
        "004, 012",
        lambda h: h.count(h.evictions),
    ),
    Feature(
        "job_disconnects",
        "count",
        "Lost connections",
        "022",
        lambda h: h.count(h.of(Kind.JOB_DISCONNECTED)),
    ),
    Feature(
        "job_reconnects_failed",
        "count",
        "Failed reconnections",
        "024",
        lambda h: h.count(h.of(Kind.JOB_RECONNECT_FAILED)),
    ),
    Feature(
        "job_shadow_exceptions",
        "count",
        "Shadow exceptions",
        "007",
        lambda h: h.count(h.of(Kind.SHADOW_EXCEPTION)),
    ),
    Feature(
        "job_remote_errors",
        "count",
        "Errors from the execution point, including those of this hold",
        "021",
        lambda h: h.count(h.of(Kind.REMOTE_ERROR)),
    ),
    Feature(
        "job_suspensions",
        "count",
        "Suspensions",
        "010",
        lambda h: h.count(h.of(Kind.JOB_SUSPENDED)),
    ),
    Feature(
        "job_inputs_finished",
        "count",
        "Finished input transfers",
        "040",
        lambda h: h.count(_transfer(h, 3)),
    ),
    Feature(
        "job_input_seconds",
        "s",
        "Duration of its last finished input transfer",
        "040",
        _input_seconds,
    ),
    Feature(
        "job_outputs_begun",
        "count",
        "Output transfers that began",
        "040",
        lambda h: h.count(_transfer(h, 5)),
    ),
    Feature(
        "job_memory_peak",
        "MB",
        "Highest memory usage reported",
        "004, 006",
        lambda h: np.fmax(h.highest("memory"), h.highest("peak")),
    ),
    Feature(
        "job_memory_last",
        "MB",
        "Memory usage, as last reported",
        "004, 006",
        lambda h: h.latest("memory"),
    ),
    Feature(
        "job_memory_request",
        "MB",
        "Memory requested, as last known",
        "004, 028",
        lambda h: h.latest("request_memory"),
    ),
    Feature(
        "job_memory_over_request",
        "ratio",
        "Peak memory over requested memory",
        "004, 006, 028",
        lambda h: _ratio(
            np.fmax(h.highest("memory"), h.highest("peak")), h.latest("request_memory")
        ),
    ),
    Feature(
        "job_memory_request_change",
        "ratio",
        "Memory request over that at the previous hold; not 1 if the owner edited it",
        "004, 028",
        lambda h: _changed(h, "request_memory"),
    ),
    Feature(
        "job_disk_used", "KB", "Disk usage, as last reported", "004", lambda h: h.latest("disk")
    ),
    Feature(
        "job_disk_request",
        "KB",
        "Disk requested, as last known",
        "004, 028",
        lambda h: h.latest("request_disk"),
    ),
    Feature(
        "job_disk_request_change",
        "ratio",
        "Disk request over that at the previous hold",
        "004, 028",
        lambda h: _changed(h, "request_disk"),
    ),
    Feature(
        "job_cpus_request",
        "count",
        "Cores requested",
        "004, 028",
        lambda h: h.latest("request_cpus"),
    ),
    Feature("job_image", "KB", "Image size, as last reported", "006", lambda h: h.latest("image")),
    Feature(
        "job_cpu_last", "s", "CPU time of the last run that ended", "004", lambda h: h.latest("cpu")
    ),
    Feature(
        "job_sent_last",
        "B",
        "Bytes sent by the last run that ended",
        "004",
        lambda h: h.latest("sent"),
    ),
    Feature(
        "job_received_last",
        "B",
        "Bytes received by the last run that ended",
        "004",
        lambda h: h.latest("received"),
    ),
    Feature(
        "job_is_dag_node",
        "0/1",
        "It is known to be a DAG node",
        "000, 028",
        lambda h: h.count(np.flatnonzero(h.steps["dag"] != 0)) > 0,
    ),
    Feature(
        "past_holds_same_family",
        "count",
        "Earlier holds of this job in the same family",
        "012",
        lambda h: h.matching("family"),
    ),
    Feature(
        "past_holds_same_template",
        "count",
        "Earlier holds of this job with the same template",
        "012",
        lambda h: h.matching("template"),
    ),
    Feature(
        "past_holds_same_point",
        "count",
        "Earlier holds of this job on the same execution point",
        "001, 012, 021",
        lambda h: np.where(h.hold["point"] >= 0, h.matching("point"), np.nan),
    ),
    Feature(
        "past_quick_holds",
        "count",
        "Times it was held again within 10 minutes of a release without a start",
        "001, 012, 013",
        lambda h: h.count(h.quick),
    ),
    Feature(
        "past_same_family",
        "0/1",
        "The previous hold was in the same family",
        "012",
        lambda h: h.same_as_previous("family"),
    ),
    Feature(
        "past_same_template",
        "0/1",
        "The previous hold had the same template",
        "012",
        lambda h: h.same_as_previous("template"),
    ),
    Feature(
        "past_same_point",
        "0/1",
        "The previous hold was on the same execution point",
        "001, 012, 021",
        lambda h: h.same_as_previous("point"),
    ),
    Feature(
        "past_since_hold", "s", "Time since the previous hold", "012", lambda h: h.since(h.previous)
    ),
    Feature(
        "past_since_release",
        "s",
        "Time since the release after the previous hold",
        "013",
        lambda h: h.since(h.released),
    ),
    Feature(
        "past_held",
        "s",
        "Time from the previous hold to its release",
        "012, 013",
        _held_before,
    ),
    Feature(
        "past_starts_since_release",
        "count",
        "Executions since that release",
        "001, 013",
        lambda h: np.where(
            h.released >= 0,
            h.count(h.starts)
            - np.where(
                h.released >= 0,
                np.searchsorted(h.starts, h.released) - np.searchsorted(h.starts, h.first),
                0,
            ),
            np.nan,
        ),
    ),
    Feature("past_releases", "count", "Releases so far", "013", lambda h: h.count(h.releases)),
    Feature(
        "past_releases_by_user",
        "count",
        "Releases by a user",
        "013",
        lambda h: h.count(_by(h, BY_USER)),
    ),
    Feature(
        "past_releases_by_policy",
        "count",
        "Releases by a policy expression",
        "013",
        lambda h: h.count(_by(h, BY_POLICY)),
    ),
)

_LEVEL_WORDS = {
    "pool": "all jobs in the log",
    "family": "jobs held for the same family of reasons",
    "template": "jobs held with the same template",
    "point": "jobs on the same execution point",
    "point_template": "jobs held on the same execution point with the same template",
    "owner": "jobs of the same owner",
    "owner_family": "jobs of the same owner held for the same family",
    "cluster": "jobs of the same cluster, including this one",
    "cluster_template": "jobs of the same cluster held with the same template",
}
_WINDOW_WORDS = {"10m": "in the last 10 minutes", "1h": "in the last hour", "1d": "in the last day"}
_FACT_WORDS = {
    "hold": "Holds",
    "release": "Releases",
    "good": "Releases known to have succeeded",
    "bad": "Releases known to have ended in another hold or a failure",
    "quick": "Holds within 10 minutes of a release without a start",
    "start": "Executions",
    "success": "Jobs that exited with 0",
    "failure": "Jobs that ended in any other way",
    "eviction": "Evictions",
    "submit": "Submissions",
}
_FACT_SOURCES = {
    "hold": "012",
    "release": "013",
    "good": "005, 012, 013",
    "bad": "005, 012, 013",
    "quick": "001, 012, 013",
    "start": "001",
    "success": "005",
    "failure": "005",
    "eviction": "004",
    "submit": "000",
}


def _count_feature(level: str, fact: str, window: str | None) -> Feature:
    when = _WINDOW_WORDS[window] if window else "so far"
    return Feature(
        f"{level}_{fact}_{window or 'total'}",
        "count",
        f"{_FACT_WORDS[fact]} {when}; {_LEVEL_WORDS[level]}",
        _FACT_SOURCES[fact],
        lambda h: h.facts(level, fact, window),
    )


def _level_features(level: str, traffic: bool) -> list[Feature]:
    words = _LEVEL_WORDS[level]
    features = [_count_feature(level, "hold", window) for window in CONTEXT_WINDOWS]
    features += [_count_feature(level, "hold", None), _count_feature(level, "release", "1h")]
    features += [
        _count_feature(level, fact, window) for fact in ("good", "bad") for window in ("1d", None)
    ]
    features += [_count_feature(level, "quick", "1h")]
    features += [
        Feature(
            f"{level}_success_rate",
            "share",
            "Share of releases with a known outcome that succeeded, shrunk towards the pool's; "
            f"{words}",
            "005, 012, 013",
            lambda h: h.success_rate(level),
        ),
        Feature(
            f"{level}_success_rate_1d",
            "share",
            f"The same, for outcomes that became known in the last day; {words}",
            "005, 012, 013",
            lambda h: h.success_rate(level, "1d"),
        ),
        Feature(
            f"{level}_last_outcome",
            "0/1",
            f"The last release with a known outcome succeeded; {words}",
            "005, 012, 013",
            lambda h: h.last_outcome(level),
        ),
        Feature(
            f"{level}_since_good",
            "s",
            f"Time since a release last became known to have succeeded; {words}",
            "005, 013",
            lambda h: h.since_fact(level, "good"),
        ),
        Feature(
            f"{level}_since_bad",
            "s",
            f"Time since a release last became known to have failed; {words}",
            "005, 012, 013",
            lambda h: h.since_fact(level, "bad"),
        ),
    ]
    if traffic:
        features += [
            _count_feature(level, fact, "1h") for fact in TRAFFIC_FACTS if fact != "submit"
        ]
        features += [_count_feature(level, fact, None) for fact in ("success", "failure")]
    return features


_SHARE_FEATURES = (
    Feature(
        "share_on_point_1h",
        "share",
        "Share of the last hour's holds with this template that were on this execution point; "
        "near 1, it is a black hole",
        "001, 012, 021",
        lambda h: _ratio(
            h.facts("point_template", "hold", "1h"), h.facts("template", "hold", "1h")
        ),
    ),
    Feature(
        "share_of_pool_1h",
        "share",
        "Share of all holds in the last hour that had this template",
        "012",
        lambda h: _ratio(h.facts("template", "hold", "1h"), h.facts("pool", "hold", "1h")),
    ),
    Feature(
        "point_holds_per_start_1h",
        "ratio",
        "Holds per execution on this execution point in the last hour",
        "001, 012",
        lambda h: _ratio(h.facts("point", "hold", "1h"), h.facts("point", "start", "1h")),
    ),
    Feature(
        "pool_holds_per_start_1h",
        "ratio",
        "Holds per execution in the last hour",
        "001, 012",
        lambda h: _ratio(h.facts("pool", "hold", "1h"), h.facts("pool", "start", "1h")),
    ),
    Feature(
        "mates_holds",
        "count",
        "Holds of the other jobs of the cluster so far",
        "012",
        lambda h: h.others("cluster", "hold", h.count(h.holds) + 1),
    ),
    Feature(
        "mates_done",
        "count",
        "Other jobs of the cluster that exited with 0",
        "005",
        lambda h: h.facts("cluster", "success"),
    ),
    Feature(
        "mates_failed",
        "count",
        "Other jobs of the cluster that ended in any other way",
        "005",
        lambda h: h.facts("cluster", "failure"),
    ),
)

HOLD_FEATURES: tuple[Feature, ...] = (
    *_JOB_FEATURES,
    *(
        feature
        for level, traffic in CONTEXT_LEVELS.items()
        for feature in _level_features(level, traffic)
    ),
    *_SHARE_FEATURES,
)
FEATURE_NAMES = tuple(feature.name for feature in HOLD_FEATURES)


def feature_table(
    held: Held, features: tuple[Feature, ...] = HOLD_FEATURES
) -> npt.NDArray[np.float32]:
    """Compute the features of all holds of a batch; axes: (hold, feature)."""
    table = np.empty((len(features), len(held.at)), np.float32)
    for column, feature in enumerate(features):
        table[column] = feature.compute(held)
    return np.ascontiguousarray(table.T)
