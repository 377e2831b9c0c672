"""One pass over all events in the order in which they became known: hold episodes come out.

The pass keeps the steps of live jobs, the facts of the context, and nothing else. It drops a
job's steps some time after the job's end. Most jobs are never held: their steps wait, and only
a few columns of them are looked at (unheld.py). The borders of a batch have no meaning: every
rule here looks at what was known at an event, never at what else is in its batch, so that a log
cut right behind a hold gives the same features bit by bit.

The state between batches can be saved and taken up again, so that new events cost what they
touch and no more: see `save` and `load`. (To recompute single jobs instead would be simpler,
but a hold's context is made of other jobs, and there is no cheap way back to them.)
"""

from __future__ import annotations

import io
import itertools
import json
import os
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, cast

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError
from condor_advice.gather.events import JobEventType as Kind
from condor_advice.gather.fresh import StorePosition
from condor_advice.gather.hashing import MIX
from condor_advice.gather.words import stable_order
from condor_advice.preprocess.holds.context import (
    HOLD_FACTS,
    TRAFFIC_FACTS,
    Context,
    FactTable,
    seconds,
)
from condor_advice.preprocess.holds.facts import END
from condor_advice.preprocess.holds.features import (
    HOLD_FEATURES,
    QUICK_SECONDS,
    Feature,
    Held,
    feature_table,
)
from condor_advice.preprocess.holds.job_numbers import cluster_of, proc_of
from condor_advice.preprocess.holds.labels import Decisions, decide
from condor_advice.preprocess.holds.live_steps import LiveSteps, among
from condor_advice.preprocess.holds.outcomes import OUTCOME_INDEX, Outcome
from condor_advice.preprocess.holds.steps import (
    AD_FIELDS,
    CONTEXT_CHANNELS,
    KEY_FIELDS,
    STEP,
    Names,
    Steps,
    empty_steps,
    hash_name,
    join_steps,
    take_steps,
)
from condor_advice.preprocess.holds.templates import FAMILY_INDEX
from condor_advice.preprocess.holds.tensors import (
    NEIGHBOUR_KINDS,
    EpisodeTensor,
    TensorSpec,
    encode_holds,
    encode_neighbours,
)
from condor_advice.preprocess.holds.timeline import LogClock, Timeline
from condor_advice.preprocess.holds.unheld import (
    Columns,
    UnheldJobs,
    brief_columns,
    copy_keys,
)

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
After = dict[str, StorePosition]  # how far each log of a store was read

# An event of a job this long after its end, or after its last sign of life, begins another
# life of that job: nothing of the old one is kept so long.
GRACE_US = 2 * 3600 * 1_000_000
SILENCE_US = 30 * 86400 * 1_000_000
# A report of the image size between two others goes once the next is this much younger; a
# second copy of it from another log has come by then.
SETTLED_US = 60 * 1_000_000
# A batch is worked off in portions if its jobs have more steps than this.
PORTION_ROWS = 80_000
SMALLEST_PORTION = 2048
FACTS_FORGOTTEN_LATE = 200_000  # rows of the context that may be too many

EPISODE = np.dtype(
    [
        ("episode", "i8"),
        ("job", "i8"),
        ("number", "i4"),  # 1 for the job's first hold
        ("time", "i8"),  # microseconds
        ("sequence", "i8"),  # place of the 012 among all events
        ("code", "i4"),
        ("subcode", "i4"),
        ("family", "i2"),
        ("template", "i4"),
        ("point", "i4"),
        ("owner", "i4"),
        ("dag", "i8"),
        ("batch", "i8"),
        ("program", "i8"),  # hash of the owner and the name of the program; 0 not known
        ("stem", "i8"),  # hash of the owner and the batch name without its number or date
        ("run", "f4"),  # seconds of the run that ended in this hold; -1 if it did not start
        ("submitted", "i8"),  # microseconds; -1 not known
        ("starts", "i4"),
    ]
)
OUTCOME = np.dtype(
    [
        ("episode", "i8"),
        ("outcome", "i1"),  # number in labels.OUTCOMES
        ("released", "i8"),  # microseconds; -1 not yet
        ("decided", "i8"),  # microseconds; -1 not yet
        ("decided_sequence", "i8"),
        ("released_sequence", "i8"),
        ("changed", "i1"),  # 1: what was released had been changed, so it says little of others
    ]
)
# A hold gets these from the job's other events; a copy of its event does not have them.
_GIVEN = ("point", "owner")
_COPY = -2  # where a job was, of an event that was told before
_SUCCESS, _EVICTION = TRAFFIC_FACTS.index("success"), TRAFFIC_FACTS.index("eviction")
_TRAFFIC_OF_KIND = np.full(1000, -1)
_TRAFFIC_OF_KIND[Kind.SUBMIT] = TRAFFIC_FACTS.index("submit")
_TRAFFIC_OF_KIND[Kind.EXECUTE] = TRAFFIC_FACTS.index("start")
_TRAFFIC_OF_KIND[Kind.JOB_TERMINATED] = _SUCCESS
_TRAFFIC_OF_KIND[Kind.JOB_EVICTED] = _EVICTION
_DECIDED_GOOD = (OUTCOME_INDEX[Outcome.SUCCEEDED],)
_DECIDED_BAD = tuple(
    OUTCOME_INDEX[outcome] for outcome in (Outcome.HELD_SAME, Outcome.HELD_OTHER, Outcome.FAILED)
)


@dataclass(slots=True)
class Finished:
    """What jobs used that succeeded, for sizing the requests of their kin."""

    kin: Ints  # a cluster of several jobs, or a batch; a job may be in both
    memory: npt.NDArray[np.float32]  # MB, the most that was reported
    sequence: Ints  # of the event that told
    overrun: npt.NDArray[np.float32]  # of those held for memory: the same over that at the hold
    overrun_sequence: Ints

    def extend(self, other: Finished) -> None:
        """Add what others used."""
        for name in self.__slots__:
            setattr(self, name, np.concatenate((getattr(self, name), getattr(other, name))))


@dataclass(slots=True)
class EpisodeBatch:
    """Holds that a batch of events brought, and what it told about these and earlier ones."""

    episodes: npt.NDArray[np.void]  # of dtype EPISODE, in the order of the holds
    features: npt.NDArray[np.float32]  # axes: (episode, feature)
    steps: EpisodeTensor  # rows of all episodes, without padding
    offsets: Ints  # where each episode's rows begin, with the end appended
    neighbours: npt.NDArray[np.float32]  # axes: (episode, neighbour, step, feature)
    outcomes: npt.NDArray[np.void]  # of dtype OUTCOME; a later one replaces an earlier one
    finished: Finished
    ends: npt.NDArray[np.void]  # of dtype END, in order


class EpisodeStream:
    """The state of the pass; feed it batches in order."""

    def __init__(
        self,
        spec: TensorSpec | None = None,
        features: tuple[Feature, ...] = HOLD_FEATURES,
        names: Names | None = None,
    ) -> None:
        self.spec = spec or TensorSpec()
        self.features = features
        self.names = names or Names()
        self.live = LiveSteps()  # of jobs that were held, and of some others
        self.unheld = UnheldJobs()
        self.recent: Steps = empty_steps()  # of NEIGHBOUR_KINDS, for drawing neighbours
        self.context = Context()
        self.owners: dict[int, tuple[int, int]] = {}  # cluster -> owner, known since sequence
        self.counts: Counter[str] = Counter()
        self.clocks: dict[str, LogClock] = {}  # of the logs of a store that is taken up again
        self.sequence = 0
        self.episodes = 0
        self.now = -(1 << 62)
        self._pruned_rows = 0
        self._pruned_facts = 0

    def run(self, timeline: Timeline) -> Iterator[EpisodeBatch]:
        """Work off a timeline whose names are this stream's own."""
        assert timeline.names is self.names
        before = timeline.counts()
        for batch in timeline.batches():
            portions = self._portions(batch)
            while portions:
                result = self.advance(portions.pop(0))
                self.counts.update(timeline.counts() - before)
                before = timeline.counts()
                timeline.in_portions = bool(portions)
                yield result

    def _portions(self, batch: Steps) -> list[Steps]:
        """Return a batch in parts, if its jobs have so many steps that all need much memory."""
        if len(self.live) + len(self.unheld) <= PORTION_ROWS:
            return [batch]
        rows = self.live.count(batch["job"]) + self.unheld.steps.count(batch["job"])
        count = min(rows // PORTION_ROWS + 1, len(batch) // SMALLEST_PORTION + 1)
        if count == 1:
            return [batch]
        return [
            take_steps(batch, places) for places in np.array_split(np.arange(len(batch)), count)
        ]

    def advance(self, batch: Steps) -> EpisodeBatch:
        """Take up the next events; return what they tell. The stream keeps the array."""
        start = self.sequence
        batch["clock"] = np.maximum.accumulate(np.maximum(batch["clock"], self.now))
        batch["sequence"] = start + np.arange(len(batch))
        columns = brief_columns(batch)
        if len(batch):
            self.now = int(columns["clock"][-1])
        self.sequence += len(batch)
        self.counts["events"] += len(batch)
        self._learn_owners(batch, start)
        whole = self._needed_whole(batch, columns)
        rows = self._join(take_steps(batch, whole))
        again = self._duplicates(rows, start)
        if again.any():
            rows = take_steps(rows, ~again)
        life, first = self._lives(rows, start)
        dropped = self._unchanged(rows, life) | self._between(rows, life)
        if dropped.any():
            rows, life = take_steps(rows, ~dropped), life[~dropped]
            first = _firsts(life)
        new = rows["sequence"] >= start
        point = self._points(rows, first)
        decisions = decide(rows, life)
        self._number(rows, new)
        # Of jobs that were never held, brief rows will do.
        brief = self.unheld.join(columns, np.flatnonzero(~whole))
        brief_life, brief_first = self._lives(brief, start)
        brief_new = brief["sequence"] >= start
        points = np.full(len(batch), _COPY)
        points[rows["sequence"][new] - start] = point[new]
        brief_point = self._points(brief, brief_first)
        points[brief["sequence"][brief_new] - start] = brief_point[brief_new]
        self._add_facts(columns, batch["code"], points)
        self._add_hold_facts(rows, new, decisions)
        channels = batch["context"] = self._channels(columns)
        rows["context"][new] = channels[rows["sequence"][new] - start]
        self._remember(rows, new)
        result = self._emit(rows, life, first, new, decisions)
        result.finished.extend(_finished(brief, brief_first, brief_new))
        result.ends = _ends((rows, first, new, point), (brief, brief_first, brief_new, brief_point))
        self.unheld.put(batch, ~whole, brief, brief_life)
        self._retire(rows, life)
        return result

    # ---- joining new steps with those of their jobs

    def _needed_whole(self, batch: Steps, columns: Columns) -> Bools:
        """Tell which steps are of jobs that were held, or may have copies."""
        if self.spec.neighbours:  # any job may be drawn
            return np.ones(len(batch), np.bool_)
        job = columns["job"]
        keys = copy_keys(columns, batch["part"])
        ordered = np.sort(keys)
        copies = among(keys, ordered[1:][ordered[1:] == ordered[:-1]])
        held = columns["kind"] == Kind.JOB_HELD
        told = self.unheld.jobs_told_before(columns["time"], keys)
        jobs = np.concatenate((job[copies | held], told))
        known: Bools = among(job, jobs) | self.live.has(job)
        return known

    def _join(self, batch: Steps) -> Steps:
        """Return the new steps with all others of their jobs, by job and in order."""
        unheld = self.unheld.take_out(batch["job"])
        if len(unheld):
            unheld = take_steps(unheld, ~self._useless(unheld))
        rows = join_steps(self.live.take_out(batch["job"]), unheld, batch)
        return take_steps(rows, stable_order(rows["job"]))

    def _useless(self, steps: Steps) -> Bools:
        """Find what need not be kept in steps that are sorted by job, of one life each."""
        return self._unchanged(steps, steps["job"]) | self._between(steps, steps["job"])

    def _duplicates(self, rows: Steps, start: int) -> Bools:
        """Find events that another log, or the same one, has told already."""
        again = np.zeros(len(rows), np.bool_)
        kind = np.ascontiguousarray(rows["kind"])
        # Few events share job, kind and second with another; only these are compared.
        mixed = _mix(rows["job"].astype(np.uint64), kind, rows["time"] // 1_000_000)
        ordered = np.sort(mixed)
        alike = np.flatnonzero(among(mixed, ordered[1:][ordered[1:] == ordered[:-1]]))
        if not len(alike):
            return again
        mixed, plain = mixed[alike], kind[alike] != Kind.JOB_HELD
        for field in KEY_FIELDS:
            value = rows[field.name][alike]
            if field.dtype == "f4":
                value = np.nan_to_num(value, nan=-1.0).view(np.int32)
            mixed = _mix(mixed, value * plain if field.name in _GIVEN else value)
        sequence = rows["sequence"][alike]
        order = np.lexsort((sequence, mixed))
        copies = order[1:][mixed[order[1:]] == mixed[order[:-1]]]
        # Attribute events have a rule of their own, and what it drops cannot be compared with.
        told = (sequence >= start) & (kind[alike] != Kind.JOB_AD_INFORMATION)
        again[alike[copies[told[copies]]]] = True
        self.counts["duplicates"] += int(again.sum())
        return again

    def _lives(self, rows: Steps | Columns, start: int) -> tuple[Ints, Ints]:
        """Number the lives of jobs, each with where it begins; old steps of a job are of one."""
        count = len(rows["job"])
        new = rows["sequence"] >= start
        job, kind, clock = rows["job"], rows["kind"], rows["clock"]
        new_job = np.r_[True, job[1:] != job[:-1]][:count]
        gap = np.diff(clock, prepend=clock[:1])
        submit = kind == Kind.SUBMIT
        job_first = _firsts(np.cumsum(new_job))
        submits = np.cumsum(submit)
        earlier = submits - submit - (submits - submit)[job_first]
        begins = new_job | (new & ((submit & (earlier > 0)) | (gap > SILENCE_US)))
        ended = (kind == Kind.JOB_TERMINATED) | (kind == Kind.JOB_ABORTED)
        ends = np.append(0, np.cumsum(ended))
        late = new & (gap > GRACE_US) & ~begins
        for row in np.flatnonzero(late & (ends[:-1] > ends[job_first])).tolist():
            first = row - 1
            while not begins[first]:
                first -= 1
            begins[row] = ends[row] > ends[first]
        life = np.cumsum(begins)
        self.counts["jobs"] += int((begins & new).sum())
        self.counts["submits_not_seen"] += int((begins & new & ~submit).sum())
        backwards = np.diff(rows["time"], prepend=rows["time"][:1]) < 0
        self.counts["out_of_order"] += int((backwards & ~begins & new).sum())
        return life, _firsts(life)

    def _unchanged(self, rows: Steps, life: Ints) -> Bools:
        """Find attribute events that tell nothing new: with 028 switched on they are half."""
        repeated = np.zeros(len(rows), np.bool_)
        ads = np.flatnonzero(rows["kind"] == Kind.JOB_AD_INFORMATION)
        if len(ads):
            same = np.r_[False, life[ads][1:] == life[ads][:-1]]
            for field in AD_FIELDS:
                value = rows[field.name][ads]
                value = np.nan_to_num(value, nan=-1.0) if value.dtype.kind == "f" else value
                alike = value[1:] == value[:-1]
                same[1:] &= alike if alike.ndim == 1 else alike.all(axis=1)
            repeated[ads] = same
        return repeated

    def _between(self, rows: Steps, life: Ints) -> Bools:
        """Find reports of the image size between two others; the next takes over the peak.

        Of a run of reports the first and the last stay, and before the last those that are
        not yet settled. What is left never depends on how often this was asked.
        """
        dropped = np.zeros(len(rows), np.bool_)
        image = np.flatnonzero(rows["kind"] == Kind.IMAGE_SIZE)
        if len(image) < 3:
            return dropped
        clock = rows["clock"][image]
        joined = (np.diff(image) == 1) & (np.diff(life[image]) == 0)  # with the next report
        # A report stays while no pause is behind it in its run: look from the end backwards.
        settled = joined & (np.diff(clock) > SETTLED_US)
        count = len(image) - 1
        index = np.arange(count)
        pause = np.minimum.accumulate(np.where(settled, index, count)[::-1])[::-1]
        ends = np.minimum.accumulate(np.where(joined, count, index)[::-1])[::-1]
        inner = np.flatnonzero(joined[1:] & joined[:-1] & (pause[1:] < ends[1:])) + 1
        dropped[image[inner]] = True
        if len(inner):
            # What goes in one run is consecutive; the report behind it takes over the peak.
            begins = np.flatnonzero(np.diff(inner, prepend=-2) != 1)
            lasts = np.append(begins[1:], len(inner)) - 1
            used = np.fmax(rows["peak"][image[inner]], rows["memory"][image[inner]])
            heir = image[inner[lasts]] + 1
            rows["peak"][heir] = np.fmax(rows["peak"][heir], np.fmax.reduceat(used, begins))
        return dropped

    def _points(self, rows: Steps | Columns, first: Ints) -> Ints:
        """Return the execution point at each step; give new holds the one they came from."""
        index, kind = np.arange(len(first)), rows["kind"]
        named = ((kind == Kind.EXECUTE) | (kind == Kind.REMOTE_ERROR)) & (rows["point"] >= 0)
        last = np.maximum.accumulate(np.where(named, index, -1))
        known = last >= first
        point = np.where(known, rows["point"][np.maximum(last, 0)], -1)
        held = kind == Kind.JOB_HELD
        if not held.any():
            return point
        # A hold belongs to a point only if the job was there since it was last released.
        freed = np.maximum.accumulate(np.where(kind == Kind.JOB_RELEASED, index, -1))
        given = held & (rows["point"] < 0) & known & (last > freed)
        rows["point"][given] = point[given]
        return np.where(held, rows["point"], point)

    def _learn_owners(self, batch: Steps, start: int) -> None:
        told = np.flatnonzero(batch["owner"] >= 0)
        clusters, index = np.unique(cluster_of(batch["job"][told]), return_index=True)
        for cluster, row in zip(clusters.tolist(), told[index].tolist(), strict=True):
            if cluster not in self.owners:
                self.owners[cluster] = (int(batch["owner"][row]), start + row)

    def _owners(self, job: Ints, sequence: Ints) -> Ints:
        """Return the owner of jobs as far as it was known at an event; -1 where it was not."""
        if not self.owners:
            return np.full(len(job), -1)
        clusters, which = np.unique(cluster_of(job), return_inverse=True)
        nobody = (-1, 0)
        known = np.array(
            [self.owners.get(cluster, nobody) for cluster in clusters.tolist()], np.int64
        ).reshape(-1, 2)[which]
        return np.where(known[:, 1] <= sequence, known[:, 0], -1)

    # ---- holds and facts

    def _number(self, rows: Steps, new: Bools) -> None:
        """Number the new holds in their order."""
        holds = np.flatnonzero(new & (rows["kind"] == Kind.JOB_HELD))
        sequence = rows["sequence"][holds]
        order = np.argsort(sequence)
        holds, sequence = holds[order], sequence[order]
        rows["episode"][holds] = self.episodes + np.arange(len(holds))
        rows["owner"][holds] = self._owners(rows["job"][holds], sequence)
        self.episodes += len(order)
        self.counts["holds"] += len(order)

    def _add_facts(self, batch: Columns, code: Ints, points: Ints) -> None:
        """Add what jobs do anyway; `points` is where each was, or _COPY."""
        traffic = _TRAFFIC_OF_KIND[batch["kind"]]
        traffic[(traffic == _SUCCESS) & (batch["exit"] != 0)] = TRAFFIC_FACTS.index("failure")
        traffic[(traffic == _EVICTION) & (code >= 0) & (code < 1000)] = -1
        at = np.flatnonzero((traffic >= 0) & (points != _COPY))
        job, sequence = batch["job"][at], batch["sequence"][at]
        keys = {
            "pool": np.zeros(len(at), np.int64),
            "point": points[at],
            "owner": self._owners(job, sequence),
            "cluster": cluster_of(job),
        }
        self.context.add_traffic(keys, sequence, seconds(batch["clock"][at]), traffic[at])

    def _add_hold_facts(self, rows: Steps, new: Bools, decisions: Decisions) -> None:
        """Add holds, releases and outcomes, each at the event that made it known."""
        hold, release, decided = decisions.hold, decisions.release, decisions.decided
        at_release = np.flatnonzero((release >= 0) & new[release])
        at_end = np.flatnonzero((decided >= 0) & new[decided])
        outcome = decisions.outcome[at_end]
        # What came of a job that had been changed says nothing about a release as is.
        as_is = ~decisions.changed[at_end]
        good = at_end[np.isin(outcome, _DECIDED_GOOD) & as_is]
        bad = at_end[np.isin(outcome, _DECIDED_BAD) & as_is]
        quick = bad[self._quick(rows, release[bad], decided[bad])]
        fresh = np.flatnonzero(new[hold])
        parts = (
            ("hold", fresh, hold[fresh]),
            ("release", at_release, release[at_release]),
            ("good", good, decided[good]),
            ("bad", bad, decided[bad]),
            ("quick", quick, decided[quick]),
        )
        about = np.concatenate([hold[which] for _, which, _ in parts])
        event = np.concatenate([row for _, _, row in parts])
        fact = np.concatenate([np.full(len(row), HOLD_FACTS.index(name)) for name, _, row in parts])
        order = np.lexsort((fact, rows["sequence"][event]))
        about, event, fact = about[order], event[order], fact[order]
        self.context.add_holds(
            _hold_keys(rows[about]),
            rows["sequence"][event],
            seconds(rows["clock"][event]),
            fact,
        )

    def _quick(self, rows: Steps, release: Ints, decided: Ints) -> Bools:
        """Tell which releases ended in a hold within minutes, without a start."""
        starts = np.flatnonzero(rows["kind"] == Kind.EXECUTE)
        ran = np.searchsorted(starts, decided) > np.searchsorted(starts, release)
        soon = rows["time"][decided] - rows["time"][release] <= QUICK_SECONDS * 1_000_000
        held = rows["kind"][decided] == Kind.JOB_HELD
        quick: Bools = (release >= 0) & held & soon & ~ran
        return quick

    def _channels(self, batch: Columns) -> npt.NDArray[np.float32]:
        """Return what the pool was like at each new step; see CONTEXT_CHANNELS."""
        sequence, second = batch["sequence"], seconds(batch["clock"])
        pool = self.context.levels["pool"]
        assert pool.traffic is not None
        starts, successes, failures, evictions = pool.traffic.recent_in_order(
            sequence, second, [("1h", fact) for fact in ("start", "success", "failure", "eviction")]
        )
        holds = pool.holds.recent_in_order(
            sequence,
            second,
            [("10m", "hold"), ("1h", "hold"), ("1h", "release"), ("1d", "good"), ("1d", "bad")],
        )
        channels = np.empty((len(second), len(CONTEXT_CHANNELS)), np.float32)
        for index, counts in enumerate((*holds, starts, successes + failures, evictions)):
            channels[:, index] = counts
        return channels

    # ---- what comes out

    def _emit(
        self, rows: Steps, life: Ints, first: Ints, new: Bools, decisions: Decisions
    ) -> EpisodeBatch:
        holds = np.flatnonzero(new & (rows["kind"] == Kind.JOB_HELD))
        # Only lives that were held in this batch are looked at from here on.
        concerned = among(life, life[holds])
        place = np.cumsum(concerned) - 1
        own, at, begin = take_steps(rows, concerned), place[holds], place[first[holds]]
        order = np.argsort(rows["sequence"][holds])
        at, begin = at[order], begin[order]
        hold = own[at]
        held, features = self._tabulate(own, at, begin)
        steps, offsets = encode_holds(own, at, begin, self.spec)
        neighbours = self._neighbours(hold, rows, life)
        return EpisodeBatch(
            self._episodes(held),
            features,
            steps,
            offsets,
            neighbours,
            self._outcomes(rows, new, decisions),
            _finished(rows, first, new),
            np.empty(0, END),
        )

    def _tabulate(self, own: Steps, at: Ints, begin: Ints) -> tuple[Held, npt.NDArray[np.float32]]:
        """Compute the features of holds at these rows."""
        hold = own[at]
        second = seconds(hold["clock"])
        held = Held(own, at, begin, self.context.ask(_hold_keys(hold), hold["sequence"], second))
        return held, feature_table(held, self.features)

    def _episodes(self, held: Held) -> npt.NDArray[np.void]:
        episodes = np.zeros(len(held.at), EPISODE)
        for name in (
            "episode",
            "job",
            "time",
            "sequence",
            "code",
            "subcode",
            "family",
            "template",
            "point",
            "owner",
        ):
            episodes[name] = held.hold[name]
        episodes["number"] = held.count(held.holds) + 1
        for name in ("dag", "batch"):
            episodes[name] = _last_known(held, name)
        for name in ("program", "stem"):
            episodes[name] = self._of_owner(held.hold["owner"], _last_known(held, name))
        run = held.since(held.last(held.starts))
        marks = held.of(Kind.JOB_HELD, Kind.JOB_RELEASED)
        episodes["run"] = np.where(held.last(held.starts) > held.last(marks), run, -1)
        submit = held.last(held.of(Kind.SUBMIT))
        episodes["submitted"] = np.where(submit >= 0, held.time[np.maximum(submit, 0)], -1)
        episodes["starts"] = held.count(held.starts)
        return episodes

    def _of_owner(self, owner: Ints, name: Ints) -> Ints:
        """Return numbers for names that mean something to their owner only; 0 for none."""
        if not name.any():
            return np.zeros(len(name), np.int64)
        owners = np.append(list(map(hash_name, self.names.owners)), 0).astype(np.uint64)
        mixed = _mix(owners[owner] + np.uint64(1), name) >> np.uint64(1)
        return np.where(name != 0, np.maximum(mixed, 1).astype(np.int64), 0)

    def _outcomes(self, rows: Steps, new: Bools, decisions: Decisions) -> npt.NDArray[np.void]:
        hold, release, decided = decisions.hold, decisions.release, decisions.decided
        news = new[hold]
        for row in (release, decided, decisions.told):
            news |= (row >= 0) & new[row]
        outcomes = np.zeros(int(news.sum()), OUTCOME)
        outcomes["episode"] = rows["episode"][hold[news]]
        outcomes["outcome"] = decisions.outcome[news]
        for name, row in (("released", release[news]), ("decided", decided[news])):
            outcomes[name] = np.where(row >= 0, rows["time"][row], -1)
            outcomes[f"{name}_sequence"] = np.where(row >= 0, rows["sequence"][row], -1)
        outcomes["changed"] = decisions.changed[news]
        return outcomes

    def _neighbours(self, hold: Steps, rows: Steps, life: Ints) -> npt.NDArray[np.float32]:
        if not self.spec.neighbours:
            return encode_neighbours(rows, life, hold, self.recent, self.spec)
        rest = self.live.everything()
        everything = join_steps(rest, rows)
        # Jobs without news have one life each.
        lives = np.concatenate((-1 - rest["job"], life))
        order = np.argsort(everything["job"], kind="stable")
        return encode_neighbours(everything[order], lives[order], hold, self.recent, self.spec)

    # ---- what stays

    def _remember(self, rows: Steps, new: Bools) -> None:
        """Keep the last frame's events to draw neighbours from."""
        if not self.spec.neighbours:
            return
        fresh = rows[new & np.isin(rows["kind"], NEIGHBOUR_KINDS)]
        self.recent = join_steps(self.recent, fresh[np.argsort(fresh["sequence"])])

    def _retire(self, rows: Steps, life: Ints) -> None:
        """Keep each job's last life; now and then drop jobs that are over, and old facts."""
        if len(rows):
            job = rows["job"]
            last = np.flatnonzero(np.r_[job[1:] != job[:-1], True])
            kept = life == np.repeat(life[last], np.diff(last, prepend=-1))
            rows = rows if kept.all() else take_steps(rows, kept)
        self.live.put(rows)
        if len(self.context) > self._pruned_facts + FACTS_FORGOTTEN_LATE:
            self._forget_facts()
        if len(self.live) + len(self.unheld) < 1.5 * self._pruned_rows + 10_000:
            return
        self.live.keep(self._not_over)
        self.unheld.keep(self._not_over, self._useless)
        self._pruned_rows = len(self.live) + len(self.unheld)
        self._forget_facts()
        frame = self.now - self.spec.frame_seconds * 1_000_000
        self.recent = self.recent[self.recent["clock"] >= frame]
        clusters = np.r_[
            self.context.levels["cluster"].keys,
            cluster_of(self.live.jobs()),
            cluster_of(self.unheld.jobs()),
        ]
        kept = among(np.fromiter(self.owners, np.int64, len(self.owners)), clusters).tolist()
        self.owners = dict(itertools.compress(self.owners.items(), kept))

    def _forget_facts(self) -> None:
        self.context.forget(int(seconds(np.array(self.now))))
        self._pruned_facts = len(self.context)

    def _not_over(self, steps: Steps) -> Bools:
        """Tell which steps are of jobs of which there may still be news."""
        job = steps["job"]
        last = np.flatnonzero(np.r_[job[1:] != job[:-1], True])
        sizes = np.diff(last, prepend=-1)
        ended = np.isin(steps["kind"], (Kind.JOB_TERMINATED, Kind.JOB_ABORTED))
        ended = np.logical_or.reduceat(ended, last - sizes + 1)
        silence = self.now - steps["clock"][last]
        over = (ended & (silence > GRACE_US)) | (silence > SILENCE_US)
        return ~np.repeat(over, sizes)

    # ---- checkpoints

    def save(self, path: Path, after: After | None = None) -> None:
        """Write the state to a file, beside it first; `after` is where the store was read to."""
        beside = path.with_name(path.name + ".part")
        # Like the store it names other people's jobs, so its owner alone may read it.
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            self.dump(file, after)
        os.replace(beside, path)

    def dump(self, file: IO[bytes], after: After | None = None) -> None:
        """Write the state to an open file."""
        import zstandard

        arrays: dict[str, Any] = {"recent": self.recent}
        plain: dict[str, Any] = {
            "version": STATE_VERSION,
            "spec": _spec_values(self.spec),
            "names": [
                self.names.access_points,
                self.names.points,
                self.names.owners,
                list(self.names.templates.items()),
            ],
            "owners": [[c, *owner] for c, owner in self.owners.items()],
            "counts": self.counts,
            "state": [self.sequence, self.episodes, self.now, self._pruned_rows],
            "after": after or {},
            "clocks": {log: [c.now, c.offset, c.steps] for log, c in self.clocks.items()},
            "levels": {},
        }
        for name, level in self.context.levels.items():
            plain["levels"][name] = level.next_key
            arrays[f"{name}.keys"], arrays[f"{name}.places"] = level.keys, level.places
            for part in ("holds", "traffic"):
                table = getattr(level, part)
                if table is not None:
                    for column in table.COLUMNS:
                        arrays[f"{name}.{part}.{column}"] = getattr(table, column)
        arrays["plain"] = np.frombuffer(json.dumps(plain).encode(), np.uint8)
        # As np.savez does, in one zstd frame: several times as fast as zlib.
        compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
        with (
            compressor.stream_writer(file, closefd=False) as compressed,
            zipfile.ZipFile(
                cast(IO[bytes], _Unseekable(compressed)), "w", zipfile.ZIP_STORED
            ) as archive,
        ):
            live = ((f"live.{n}", steps) for n, steps in enumerate(self.live.chunks()))
            unheld = ((f"unheld.{n}", s) for n, s in enumerate(self.unheld.steps.chunks()))
            for name, array in itertools.chain(arrays.items(), live, unheld):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    @classmethod
    def load(cls, path: Path, spec: TensorSpec | None = None) -> tuple[Self, After]:
        """Read back what `save` wrote, with where the store was read to."""
        try:
            return cls.restore(path, spec)
        except (OSError, ValueError, KeyError) as error:
            raise AdviceError(
                f"{path}: no saved state of the pass ({error}); remove the file, "
                "and all events will be read again"
            ) from error

    @classmethod
    def restore(cls, file: Path | IO[bytes], spec: TensorSpec | None = None) -> tuple[Self, After]:
        """Read back what `dump` wrote; what is no such thing raises a ValueError or KeyError."""
        import zstandard

        compressed = io.BytesIO(file.read_bytes()) if isinstance(file, Path) else file
        try:
            # A large state is read from a file, array by array.
            with tempfile.SpooledTemporaryFile(max_size=MOST_STATE_IN_MEMORY) as archive:
                zstandard.ZstdDecompressor().copy_stream(compressed, archive)
                archive.seek(0)
                with np.load(archive, allow_pickle=False) as arrays:
                    return cls._restore(arrays, spec)
        except (EOFError, zipfile.BadZipFile, zstandard.ZstdError) as error:
            raise ValueError(f"damaged: {error}") from error

    @classmethod
    def _restore(cls, arrays: Any, spec: TensorSpec | None) -> tuple[Self, After]:
        plain = json.loads(arrays["plain"].tobytes())
        if plain["version"] != STATE_VERSION or arrays["recent"].dtype != STEP:
            raise ValueError("written by another version")
        stream = cls(TensorSpec(**plain["spec"]))
        if spec is not None and spec != stream.spec:
            raise ValueError("its tensors have another shape")
        points = plain["names"]
        stream.names = Names(points[0], points[1], points[2], dict(points[3]))
        stream.owners = {c: (owner, since) for c, owner, since in plain["owners"]}
        stream.counts = Counter(plain["counts"])
        stream.sequence, stream.episodes, stream.now, stream._pruned_rows = plain["state"]
        stream.live = LiveSteps(arrays[name] for name in arrays if name.startswith("live."))
        stream.unheld = UnheldJobs(arrays[name] for name in arrays if name.startswith("unheld."))
        stream.recent = arrays["recent"]
        stream.clocks = {log: LogClock(*clock) for log, clock in plain["clocks"].items()}
        for name, level in stream.context.levels.items():
            level.next_key = plain["levels"][name]
            level.keys, level.places = arrays[f"{name}.keys"], arrays[f"{name}.places"]
            for part in ("holds", "traffic"):
                table: FactTable | None = getattr(level, part)
                if table is not None:
                    for column in table.COLUMNS:
                        setattr(table, column, arrays[f"{name}.{part}.{column}"])
        return stream, {log: (piece, done) for log, (piece, done) in plain["after"].items()}


STATE_VERSION = 8
MOST_STATE_IN_MEMORY = 16 << 20


class _Unseekable:
    """A file to write to, for zipfile: the compressor tells its place behind the compression."""

    def __init__(self, file: Any) -> None:
        self.write, self.flush = file.write, file.flush


def _spec_values(spec: TensorSpec) -> dict[str, int]:
    return {
        "max_steps": spec.max_steps,
        "neighbours": spec.neighbours,
        "neighbour_steps": spec.neighbour_steps,
        "frame_seconds": spec.frame_seconds,
        "seed": spec.seed,
    }


def _finished(rows: Steps | Columns, first: Ints, new: Bools) -> Finished:
    """Find the jobs that now succeeded, and the most memory that each had reported."""
    ends = np.flatnonzero(new & (rows["kind"] == Kind.JOB_TERMINATED) & (rows["exit"] == 0))
    begin = first[ends]
    ends, begin = ends[ends > begin], begin[ends > begin]
    edges = np.stack((begin, ends), axis=1).ravel()
    used = np.fmax(rows["memory"], rows["peak"])
    memory = np.fmax.reduceat(used, edges)[::2] if len(ends) else np.empty(0, np.float32)
    job = rows["job"][ends]
    batch = np.minimum.reduceat(rows["batch"], edges)[::2] if len(ends) else job
    known = ~np.isnan(memory)
    # A cluster of one job has no kin; leaving out the first proc of the others costs little.
    several = known & (proc_of(job) > 0)
    named = known & (batch < 0)
    over = np.flatnonzero(rows["kind"] == Kind.JOB_HELD)
    if len(over):
        over = over[rows["family"][over] == FAMILY_INDEX["memory"]]
    last = np.append(-1, over)[np.searchsorted(over, ends)]
    overrun, at = [], []
    for one in np.flatnonzero(last > begin).tolist():
        before = float(np.fmax.reduce(used[begin[one] : last[one]]))
        if before > 0 and memory[one] > 0:
            overrun.append(memory[one] / before)
            at.append(rows["sequence"][ends[one]])
    sequence = rows["sequence"][ends]
    return Finished(
        np.concatenate((cluster_of(job[several]), batch[named])),
        np.concatenate((memory[several], memory[named])),
        np.concatenate((sequence[several], sequence[named])),
        np.array(overrun, np.float32),
        np.array(at, np.int64),
    )


def _last_known(held: Held, name: str) -> Ints:
    """Return the last number that a job's steps before each hold have in a field; 0 for none."""
    row = held.last(np.flatnonzero(held.steps[name] != 0))
    return np.where(row >= 0, held.steps[name][np.maximum(row, 0)], 0)


def _ends(*parts: tuple[Steps | Columns, Ints, Bools, Ints]) -> npt.NDArray[np.void]:
    """Find the jobs that now ended without ever having been held.

    A part has steps of jobs, where each job's life begins, which steps are new, and where each
    job was. A cluster of one job has no mates; leaving out the first proc of the others costs
    little.
    """
    found = []
    for rows, first, new, point in parts:
        at = np.flatnonzero(new & (rows["kind"] == Kind.JOB_TERMINATED))
        holds = np.append(0, np.cumsum(rows["kind"] == Kind.JOB_HELD))
        at = at[(proc_of(rows["job"][at]) > 0) & (holds[at] == holds[first[at]])]
        ends = np.empty(len(at), END)
        ends["cluster"] = cluster_of(rows["job"][at])
        for name in ("sequence", "time"):
            ends[name] = rows[name][at]
        ends["point"], ends["good"] = point[at], rows["exit"][at] == 0
        found.append(ends)
    joined = np.concatenate(found)
    return joined[np.argsort(joined["sequence"])]


def _firsts(groups: Ints) -> Ints:
    """Return for each row the first row of its group; groups are consecutive."""
    begins = np.r_[True, groups[1:] != groups[:-1]][: len(groups)]
    return np.maximum.accumulate(np.where(begins, np.arange(len(groups)), 0))


def _mix(seed: npt.NDArray[np.uint64], *columns: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    mixed = seed.astype(np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.int64).view(np.uint64)) * MIX
        mixed ^= mixed >> np.uint64(32)
    return mixed


def _hold_keys(hold: Steps) -> dict[str, Ints]:
    """Return the keys of holds in every level; below zero where a level has none."""
    point, owner = hold["point"].astype(np.int64), hold["owner"].astype(np.int64)
    template, family = hold["template"].astype(np.int64), hold["family"].astype(np.int64)
    cluster = cluster_of(hold["job"])
    both = _mix(cluster.astype(np.uint64), template) >> np.uint64(2)
    return {
        "pool": np.zeros(len(hold), np.int64),
        "family": family,
        "template": template,
        "point": point,
        "point_template": np.where(point >= 0, (point << 31) + template, -1),
        "owner": owner,
        "owner_family": np.where(owner >= 0, (owner << 16) + family, -1),
        "cluster": cluster,
        "cluster_template": both.astype(np.int64),
    }
