"""The rows of a training, as its parts see them: folds, weights and derived columns.

A fold is an access point if there are several, else a period of time. Kin share a fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from condor_advice.model.held.data import HeldData
from condor_advice.model.held.derived_columns import ReasonRates, derive
from condor_advice.model.held.parts import Inputs, PartInputs
from condor_advice.model.tracking import Tracker

if TYPE_CHECKING:
    from condor_advice.model.held.train import HeldSettings

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Table = npt.NDArray[np.float32]
Say = Callable[[str], None]

ONLY_LEARNED = -1  # in place of a fold: rows to learn from, not to evaluate on


def folds_of(data: HeldData, rows: Ints, count: int) -> Ints:
    """Return the fold of each row."""
    source = data.source[rows].astype(np.int64)
    sizes = np.bincount(source, minlength=len(data.sources))
    if np.count_nonzero(sizes >= len(rows) / 10) >= 2:
        return np.unique(source, return_inverse=True)[1]
    first = _first_of_kin(data, rows)
    # All kin get the time of their first hold, and so the same fold.
    borders = np.quantile(first, np.arange(1, count) / count)
    return np.searchsorted(borders, first, side="left")


def later_ones(data: HeldData, rows: Ints, share: float) -> Bools:
    """Tell which rows are the latest of their source; kin count at their first hold."""
    later = np.zeros(len(rows), np.bool_)
    for source in np.unique(data.source[rows]).tolist():
        own = np.flatnonzero(data.source[rows] == source)
        first = _first_of_kin(data, rows[own])
        later[own] = first > np.quantile(first, 1.0 - share)
    return later


def _first_of_kin(data: HeldData, rows: Ints) -> Ints:
    """Return the time of the first hold among each row's kin."""
    _, which = np.unique(data.kin[rows], return_inverse=True)
    first = np.full(int(which.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, which, data.time[rows])
    of_kin: Ints = first[which]
    return of_kin


@dataclass(frozen=True)
class Training:
    """The labelled rows of a training; a place is an index into these rows."""

    data: HeldData
    rows: Ints
    label: Floats
    weight: Floats
    fold: Ints  # ONLY_LEARNED: learned from, never evaluated on
    settings: HeldSettings
    say: Say = lambda _text: None
    states: Path | None = None  # directory for the states from which parts resume
    tracker: Tracker | None = None
    progress: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def judged(self) -> Ints:
        """The places that the folds leave out in turn."""
        return np.flatnonzero(self.fold != ONLY_LEARNED)

    @property
    def several(self) -> bool:
        """Tell whether each fold is an access point."""
        source, fold = self.data.source[self.rows[self.judged]], self.fold[self.judged]
        return len(np.unique(source)) > 1 and all(
            len(np.unique(source[fold == nth])) == 1 for nth in np.unique(fold)
        )

    def folds(self) -> Sequence[tuple[Ints, Ints]]:
        """Return (learned from, left out) for each fold."""
        return [
            (np.flatnonzero(self.fold != nth), np.flatnonzero(self.fold == nth))
            for nth in np.unique(self.fold[self.judged]).tolist()
        ]

    def split(self, places: Ints) -> tuple[Ints, Ints]:
        """Split places into the earlier and the later ones."""
        late = later_ones(self.data, self.rows[places], self.settings.later)
        if len(np.unique(self.label[places[late]])) < 2:
            late = np.arange(len(places)) % 4 == 3  # too few for a split by time
        return places[~late], places[late]

    def later(self, places: Ints) -> Ints:
        """Return the later ones of these places."""
        return places[later_ones(self.data, self.rows[places], self.settings.later)]

    def take(self, places: Ints) -> HeldData:
        """Return the episodes at these places."""
        return self.data.take(self.rows[places])

    def features(self, places: Ints | None = None) -> Table:
        """Return rows of the feature table; all rows without places."""
        table: Table = self.data.features[self.rows if places is None else self.rows[places]]
        return table

    def rates(self, places: Ints) -> ReasonRates:
        """Count outcomes by hold reason at these places."""
        return ReasonRates.learn(self.features(places), self.label[places], self.weight[places])

    def derived(self, places: Ints, rates: ReasonRates, learned: bool) -> Table:
        """Return the derived columns; `learned` if the rates come from these places.

        Then each row's own kin are not counted.
        """
        table = self.features(places)
        without = None
        if learned:
            kin = self.data.kin[self.rows[places]]
            without = (self.label[places], self.weight[places], kin)
        return derive(table, rates.chances(table, without))

    def inputs(self, places: Ints, rates: ReasonRates, learned: bool) -> PartInputs:
        """Return the inputs of a part; see `derived` for `learned`."""
        return PartInputs.prepare(
            Inputs.of(self.take(places)), self.derived(places, rates, learned)
        )
