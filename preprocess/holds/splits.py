"""Split episodes by time into training, validation and test sets, with a gap between them.

An episode is used only if its outcome was decided before the next set begins: a label that was
still open then could not have been learned. Jobs of one cluster, DAG or batch are kin: the outcome
of one says much about the others. So all kin belong to the set in which the first of them was
held, and those held after its end are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import UsageError
from condor_advice.preprocess.holds.labels import NO_LABEL

Ints = npt.NDArray[np.int64]
GAP_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Moments:
    """What a split needs to know about each episode; times in microseconds."""

    time: Ints
    decided: Ints  # -1 while open
    label: npt.NDArray[np.int8]
    kin: Sequence[Ints]  # one column per kind of kin; in DAG and batch, values <= 0 mean none


@dataclass(frozen=True, slots=True)
class EpisodeSplit:
    """The rows of each set in order of time, and how many were left out, by reason."""

    train: Ints
    validation: Ints
    test: Ints
    borders: tuple[int, int]  # microseconds at which validation and test begin
    left_out: dict[str, int]


def split_by_time(
    moments: Moments,
    *,
    train: float = 0.6,
    validation: float = 0.2,
    gap_seconds: float = GAP_SECONDS,
) -> EpisodeSplit:
    """Split labelled episodes by the time of their holds; the last part is the test set."""
    if not 0 < train < train + validation < 1:
        raise UsageError(
            f"shares {train} and {validation} leave nothing to test on; "
            "use shares that add up to less than 1"
        )
    labelled = np.flatnonzero(moments.label != NO_LABEL)
    left_out = {"no_label": len(moments.label) - len(labelled)}
    if len(labelled) < 3:
        raise UsageError(f"{len(labelled)} labelled episodes cannot be split; gather more logs")
    times = np.sort(moments.time[labelled])
    first = int(times[int(train * len(times))])
    second = int(times[min(int((train + validation) * len(times)), len(times) - 1)])
    gap = int(gap_seconds * 1_000_000)
    kin = kin_groups(moments.kin)
    # A group belongs to the set of its first hold, labelled or not.
    home = np.full(int(kin.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(home, kin, moments.time)
    side = np.searchsorted((first, second), home[kin[labelled]], side="right")
    sides = []
    for index, (begin, end) in enumerate(((None, first), (first, second), (second, None))):
        rows = labelled[side == index]
        inside = np.ones(len(rows), np.bool_)
        if begin is not None:
            inside &= moments.time[rows] >= begin + gap
        if end is not None:
            late = moments.time[rows] >= end
            still_open = ~late & (moments.decided[rows] >= end)
            _add(left_out, "behind_the_border_of_their_kin", late)
            _add(left_out, "label_still_open", still_open)
            inside &= ~late & ~still_open
        if begin is not None:
            _add(left_out, "in_the_gap", moments.time[rows] < begin + gap)
        rows = rows[inside]
        sides.append(rows[np.argsort(moments.time[rows], kind="stable")])
    return EpisodeSplit(sides[0], sides[1], sides[2], (first, second), left_out)


def _add(counts: dict[str, int], reason: str, which: npt.NDArray[np.bool_]) -> None:
    counts[reason] = counts.get(reason, 0) + int(which.sum())


def kin_groups(columns: Sequence[Ints]) -> Ints:
    """Number the groups of rows that share a value in any column; 0 means no value."""
    count = len(columns[0])
    group = np.arange(count)
    # Neighbours in each column's order belong together; repeat until nothing changes.
    chains = []
    for column in columns:
        order = np.argsort(column, kind="stable")
        alike = (column[order][1:] == column[order][:-1]) & (column[order][1:] != 0)
        chains.append((order[1:][alike], order[:-1][alike]))
    while True:
        before = group.copy()
        for right, left in chains:
            low = np.minimum(group[right], group[left])
            np.minimum.at(group, right, low)
            np.minimum.at(group, left, low)
            np.minimum.at(group, before[right], low)
            np.minimum.at(group, before[left], low)
        group = group[group]
        if np.array_equal(group, before):
            return np.unique(group, return_inverse=True)[1]
