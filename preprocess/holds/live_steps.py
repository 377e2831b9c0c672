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

SHELF_STEPS = 1 << 15  # smaller shelves become one; of a large one no second is made at once


class LiveSteps:
    """Steps of many jobs; those of one job are together and in order, the jobs are in none."""

    def __init__(self, shelves: Iterable[Steps] = ()) -> None:
        self._shelves: list[Steps] = []
        self._there: list[Bools] = []  # which steps of a shelf have not been taken out
        for steps in shelves:
            self.put(steps)

    def __len__(self) -> int:
        return sum(int(there.sum()) for there in self._there)

    def put(self, steps: Steps) -> None:
        """Add the steps of jobs of which there are none yet."""
        if not len(steps):
            return
        self._add(steps)
        for place in reversed(range(len(self._shelves) - 1)):
            if len(self._shelves[place]) + len(self._shelves[place + 1]) <= SHELF_STEPS:
                second, first = self._pop(place + 1), self._pop(place)
                self._add(join_steps(first, second), place)

    def take_out(self, jobs: Ints) -> Steps:
        """Remove and return the steps of these jobs."""
        found = [empty_steps()]
        for shelf, there in zip(self._shelves, self._there, strict=True):
            wanted = among(shelf["job"], jobs) & there
            found.append(take_steps(shelf, wanted))
            there &= ~wanted
        for place in reversed(range(len(self._shelves))):
            if 2 * int(self._there[place].sum()) < len(self._shelves[place]):
                self._keep(place, self._there[place])
        return join_steps(*found)

    def keep(self, wanted: Callable[[Steps], Bools]) -> None:
        """Drop all steps but the wanted; they are asked about shelf by shelf."""
        for place, steps in reversed(list(enumerate(self.shelves()))):
            self._keep(place, wanted(steps))

    def shelves(self) -> list[Steps]:
        """Return all steps, as they lie."""
        for place in reversed(range(len(self._shelves))):
            self._keep(place, self._there[place])
        return list(self._shelves)

    def everything(self) -> Steps:
        """Return a copy of all steps."""
        return join_steps(empty_steps(), *self.shelves())

    def jobs(self) -> Ints:
        """Return the jobs that there are steps of."""
        parts = zip(self._shelves, self._there, strict=True)
        found = [np.unique(shelf["job"][there]) for shelf, there in parts]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _add(self, steps: Steps, place: int | None = None) -> None:
        place = len(self._shelves) if place is None else place
        self._shelves.insert(place, steps)
        self._there.insert(place, np.ones(len(steps), np.bool_))

    def _pop(self, place: int) -> Steps:
        return take_steps(self._shelves.pop(place), self._there.pop(place))

    def _keep(self, place: int, chosen: Bools) -> None:
        if chosen.all():
            return
        kept = take_steps(self._shelves[place], chosen)
        self._shelves[place], self._there[place] = kept, np.ones(len(kept), np.bool_)
        if not len(kept):
            del self._shelves[place], self._there[place]


def among(values: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Bools:
    """Tell which values are among the wanted ones."""
    ordered = np.unique(wanted)
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: Bools = ordered[place] == values
    return found
