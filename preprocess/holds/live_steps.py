"""The steps of jobs that are not over, kept so that only those with news are moved.

Most jobs have no news most of the time, above all those that stay on hold for weeks. Copying
the steps of all for every batch would cost memory several times over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.hashing import MIX
from condor_advice.gather.words import distinct
from condor_advice.preprocess.holds.steps import STEP, Steps, join_steps, take_steps

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CHUNK_STEPS = 1 << 15  # smaller chunks are joined; a large one is never copied as a whole


class LiveSteps:
    """Steps of many jobs; those of one job are in order, the jobs are in none.

    Where each job's steps are put at once, they stay together.
    """

    def __init__(self, chunks: Iterable[Steps] = (), dtype: np.dtype[np.void] = STEP) -> None:
        self._dtype = dtype
        self._chunks: list[Steps] = []
        self._jobs: list[Ints] = []  # of each chunk: fields by themselves are faster to read
        self._present: list[Bools] = []  # which steps of a chunk have not been taken out
        for steps in chunks:
            self.put(steps)

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(present)) for present in self._present)

    def put(self, steps: Steps, present: Bools | None = None) -> None:
        """Add steps, or those of them that are to be present; the array is kept."""
        if not len(steps):
            return
        self._add(steps)
        if present is not None:
            self._present[-1] &= present
        for place in reversed(range(len(self._chunks) - 1)):
            if len(self._chunks[place]) + len(self._chunks[place + 1]) <= CHUNK_STEPS:
                second, first = self._pop(place + 1), self._pop(place)
                self._add(join_steps(first, second), place)

    def take_out(self, jobs: Ints) -> Steps:
        """Remove and return the steps of these jobs."""
        found = [np.empty(0, self._dtype)]
        jobs = np.ascontiguousarray(jobs)
        for chunk, job, present in zip(self._chunks, self._jobs, self._present, strict=True):
            wanted = among(job, jobs) & present
            found.append(take_steps(chunk, wanted))
            present &= ~wanted
        self._compact()
        return join_steps(*found)

    def _compact(self) -> None:
        """Move the steps of chunks that are mostly empty."""
        for place in reversed(range(len(self._chunks))):
            if 2 * int(np.count_nonzero(self._present[place])) < len(self._chunks[place]):
                self._keep(place, self._present[place])

    def keep_jobs(self, jobs: Ints) -> None:
        """Drop the steps of all other jobs."""
        for job, present in zip(self._jobs, self._present, strict=True):
            present &= among(job, jobs)
        self._compact()

    def keep(self, wanted: Callable[[Steps], Bools]) -> None:
        """Drop all steps but the wanted; they are asked about chunk by chunk."""
        for place, steps in reversed(list(enumerate(self.chunks()))):
            self._keep(place, wanted(steps))

    def chunks(self) -> list[Steps]:
        """Return all steps, as they lie."""
        for place in reversed(range(len(self._chunks))):
            self._keep(place, self._present[place])
        return list(self._chunks)

    def everything(self) -> Steps:
        """Return a copy of all steps."""
        return join_steps(np.empty(0, self._dtype), *self.chunks())

    def views(self) -> Iterable[tuple[Steps, Bools]]:
        """Return the chunks with which of their steps are present."""
        return zip(self._chunks, self._present, strict=True)

    def has(self, jobs: Ints) -> Bools:
        """Tell which of these jobs have steps here."""
        found = np.zeros(len(jobs), np.bool_)
        for job, present in zip(self._jobs, self._present, strict=True):
            found |= among(jobs, job[present])
        return found

    def jobs(self) -> Ints:
        """Return the jobs that have steps here."""
        parts = zip(self._jobs, self._present, strict=True)
        found = [distinct(job[present]) for job, present in parts]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _add(self, steps: Steps, place: int | None = None) -> None:
        place = len(self._chunks) if place is None else place
        self._chunks.insert(place, steps)
        self._jobs.insert(place, np.ascontiguousarray(steps["job"]))
        self._present.insert(place, np.ones(len(steps), np.bool_))

    def _pop(self, place: int) -> Steps:
        del self._jobs[place]
        return take_steps(self._chunks.pop(place), self._present.pop(place))

    def _keep(self, place: int, chosen: Bools) -> None:
        if not chosen.all():
            self._present[place] = chosen
            kept = self._pop(place)
            if len(kept):
                self._add(kept, place)


_TABLE_BITS = 18


def among(values: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Bools:
    """Tell which values are among the wanted ones."""
    if not len(wanted) or not len(values):
        return np.zeros(len(values), np.bool_)
    # A table by hash has one wanted value for each place; the few others are searched for.
    table = np.full(1 << _TABLE_BITS, -1, np.int32)
    table[_places(wanted)] = np.arange(len(wanted))
    candidate = table[_places(values)]
    found: Bools = (candidate >= 0) & (wanted[candidate] == values)
    left = np.flatnonzero((candidate >= 0) & ~found)
    if len(left):
        ordered = np.sort(wanted)
        place = np.minimum(np.searchsorted(ordered, values[left]), len(ordered) - 1)
        found[left] = ordered[place] == values[left]
    return found


def _places(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    mixed = values.astype(np.uint64) * MIX
    return (mixed >> np.uint64(64 - _TABLE_BITS)).view(np.int64)
