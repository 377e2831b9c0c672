"""The steps of jobs that are not over, kept so that only those with news are moved.

Most jobs have no news most of the time, above all those that stay on hold for weeks. Copying
the steps of all for every batch would cost memory several times over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.preprocess.holds.steps import Steps, empty_steps, join_steps, take_steps

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CHUNK_STEPS = 1 << 15  # smaller chunks are joined; a large one is never copied as a whole


class LiveSteps:
    """Steps of many jobs; those of one job are together and in order, the jobs are in none."""

    def __init__(self, chunks: Iterable[Steps] = ()) -> None:
        self._chunks: list[Steps] = []
        self._present: list[Bools] = []  # which steps of a chunk have not been taken out
        for steps in chunks:
            self.put(steps)

    def __len__(self) -> int:
        return sum(int(present.sum()) for present in self._present)

    def put(self, steps: Steps) -> None:
        """Add the steps of jobs that have none here yet."""
        if not len(steps):
            return
        self._add(steps)
        for place in reversed(range(len(self._chunks) - 1)):
            if len(self._chunks[place]) + len(self._chunks[place + 1]) <= CHUNK_STEPS:
                second, first = self._pop(place + 1), self._pop(place)
                self._add(join_steps(first, second), place)

    def take_out(self, jobs: Ints) -> Steps:
        """Remove and return the steps of these jobs."""
        found = [empty_steps()]
        for chunk, present in zip(self._chunks, self._present, strict=True):
            wanted = among(chunk["job"], jobs) & present
            found.append(take_steps(chunk, wanted))
            present &= ~wanted
        for place in reversed(range(len(self._chunks))):
            if 2 * int(self._present[place].sum()) < len(self._chunks[place]):
                self._keep(place, self._present[place])
        return join_steps(*found)

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
        return join_steps(empty_steps(), *self.chunks())

    def jobs(self) -> Ints:
        """Return the jobs that have steps here."""
        parts = zip(self._chunks, self._present, strict=True)
        found = [np.unique(chunk["job"][present]) for chunk, present in parts]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _add(self, steps: Steps, place: int | None = None) -> None:
        place = len(self._chunks) if place is None else place
        self._chunks.insert(place, steps)
        self._present.insert(place, np.ones(len(steps), np.bool_))

    def _pop(self, place: int) -> Steps:
        return take_steps(self._chunks.pop(place), self._present.pop(place))

    def _keep(self, place: int, chosen: Bools) -> None:
        if chosen.all():
            return
        kept = take_steps(self._chunks[place], chosen)
        self._chunks[place], self._present[place] = kept, np.ones(len(kept), np.bool_)
        if not len(kept):
            del self._chunks[place], self._present[place]


def among(values: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Bools:
    """Tell which values are among the wanted ones."""
    ordered = np.unique(wanted)
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: Bools = ordered[place] == values
    return found
