"""The steps of jobs that were never held, and what the pass needs of these jobs at once.

Most jobs are never held. Of such a job the pass needs where it runs, when it ended and how much
memory it had used; its steps are needed only if it is held after all. So they are put aside
as they come, unsorted, and each job has a few brief rows that stand for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.events import JobEventType as Kind
from condor_advice.gather.hashing import MIX
from condor_advice.gather.words import stable_order
from condor_advice.preprocess.holds.live_steps import LiveSteps, among
from condor_advice.preprocess.holds.steps import STEP, Steps, take_steps

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Columns = dict[str, npt.NDArray[Any]]  # by the names of fields

_BRIEF_FIELDS = (
    "job", "sequence", "time", "clock", "batch", "memory", "peak", "exit", "point", "kind",
)  # fmt: skip
BRIEF = np.dtype([(name, STEP[name]) for name in _BRIEF_FIELDS])
_SECOND = 1_000_000
# Events that a job repeats for as long as it runs. Useless ones are looked for when they are
# more than this share of all steps.
_REPEATED = (Kind.IMAGE_SIZE, Kind.JOB_AD_INFORMATION)
_MOST_REPEATED = 0.5


class UnheldJobs:
    """Jobs without a hold in their current life."""

    def __init__(self, chunks: Iterable[Steps] = ()) -> None:
        self.steps = LiveSteps(chunks)  # of each job's current life; a job's need not be together
        self._brief = LiveSteps(dtype=BRIEF)
        for steps in self.steps.by_job():
            if len(steps):
                self._put_brief(brief_columns(steps))

    def __len__(self) -> int:
        return len(self.steps)

    def jobs_told_before(self, time: Ints, keys: Keys) -> Ints:
        """Return the jobs that may have copies of steps with these times and `copy_keys`."""
        if not len(time):
            return np.empty(0, np.int64)
        earliest = int(time.min()) // _SECOND * _SECOND
        parts = [np.empty(0, np.int64)]
        for recent in self.steps.since(earliest):
            told = among(copy_keys(brief_columns(recent), recent["part"]), keys)
            parts.append(recent["job"][told])
        return np.concatenate(parts)

    def take_out(self, jobs: Ints) -> Steps:
        """Remove jobs; return their steps, by job and in order."""
        found = self.steps.take_out(jobs)
        self._brief.take_out(jobs)
        return take_steps(found, stable_order(found["job"])) if len(found) else found

    def join(self, batch: Columns, at: Ints) -> Columns:
        """Return brief columns of the jobs in a batch, by job and in order; `put` is to follow.

        `at` are the steps of these jobs in the batch.
        """
        job = batch["job"][at]
        old = self._brief.take_out(job)
        order = stable_order(np.concatenate((old["job"], job)))
        return {name: np.concatenate((old[name], batch[name][at]))[order] for name in _BRIEF_FIELDS}

    def put(self, batch: Steps, own: Bools, rows: Columns, life: Ints) -> None:
        """Add a batch, of which some steps are of jobs here.

        `rows` is what `join` returned, `life` numbers its lives.
        """
        self.steps.put(batch, own)
        if not len(life):
            return
        job = rows["job"]
        last = np.flatnonzero(np.r_[job[1:] != job[:-1], True])
        sizes = np.diff(last, prepend=-1)
        current = life == np.repeat(life[last], sizes)
        if not current.all():
            rows = {name: column[current] for name, column in rows.items()}
            self._drop_earlier_lives(job[~current], rows)
        self._put_brief(rows)

    def keep(self, wanted: Callable[[Steps], Bools], useless: Callable[[Steps], Bools]) -> None:
        """Drop jobs unless wanted by their brief rows, and the useless steps of those left."""
        self._brief.keep(wanted)
        self.steps.keep_jobs(self._brief.jobs())
        if self.steps.count_kinds(_REPEATED) > _MOST_REPEATED * len(self.steps):
            parts = self.steps.by_job()
            self.steps = LiveSteps(take_steps(steps, ~useless(steps)) for steps in parts)

    def jobs(self) -> Ints:
        """Return the jobs that are here."""
        return self._brief.jobs()

    def _drop_earlier_lives(self, jobs: Ints, rows: Columns) -> None:
        """Drop the steps of jobs from before the life that `rows` begin with."""
        steps = self.steps.take_out(jobs)
        begins = np.flatnonzero(np.r_[True, rows["job"][1:] != rows["job"][:-1]])
        place = np.searchsorted(rows["job"][begins], steps["job"])
        since = rows["sequence"][begins[place]]
        self.steps.put(take_steps(steps, steps["sequence"] >= since))

    def _put_brief(self, rows: Columns) -> None:
        """Keep the few rows of each job that tell where it is; the first tells what was used."""
        job, kind = rows["job"], rows["kind"]
        last = np.flatnonzero(np.r_[job[1:] != job[:-1], True])
        first = np.append(0, last[:-1] + 1)
        rows["peak"][first] = np.fmax.reduceat(np.fmax(rows["memory"], rows["peak"]), first)
        rows["batch"][first] = np.minimum.reduceat(rows["batch"], first)
        named = ((kind == Kind.EXECUTE) | (kind == Kind.REMOTE_ERROR)) & (rows["point"] >= 0)
        latest = np.maximum.accumulate(np.where(named, np.arange(len(job)), -1))[last]
        kept = (kind == Kind.SUBMIT) | (kind == Kind.JOB_TERMINATED) | (kind == Kind.JOB_ABORTED)
        kept[first] = kept[last] = kept[latest[latest >= first]] = True
        at = np.flatnonzero(kept)
        brief = np.empty(len(at), BRIEF)
        for name in _BRIEF_FIELDS:
            brief[name] = rows[name][at]
        self._brief.put(brief)


def brief_columns(steps: Steps) -> Columns:
    """Return the fields of steps that brief rows have, each by itself."""
    return {name: np.ascontiguousarray(steps[name]) for name in _BRIEF_FIELDS}


def copy_keys(steps: Columns, part: Ints) -> Keys:
    """Return numbers that copies of a step share, and few others."""
    keys = steps["job"].astype(np.uint64)
    memory = steps["memory"].view(np.int32)
    for column in (steps["kind"], part, memory, steps["time"] // _SECOND):
        keys = (keys ^ column.astype(np.int64).view(np.uint64)) * MIX
        keys ^= keys >> np.uint64(32)
    return keys
