"""Outcomes and labels of holds, from the events that follow them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_advice.gather.events import JobEventType as Kind
from condor_advice.preprocess.holds.episodes import Outcome
from condor_advice.preprocess.holds.steps import Steps

Ints = npt.NDArray[np.int64]

OUTCOMES = tuple(Outcome)  # the index numbers an outcome in tables
OUTCOME_INDEX = {outcome: index for index, outcome in enumerate(OUTCOMES)}
# Only these show what a release did. A job that was removed, before or after its release, or whose
# log ends has no label: its outcome is unknown, and unknown does not mean failed.
LABELS = {
    Outcome.SUCCEEDED: 1,
    Outcome.HELD_SAME: 0,
    Outcome.HELD_OTHER: 0,
    Outcome.FAILED: 0,
}
NO_LABEL = -1
_LABEL_BY_INDEX = np.array([LABELS.get(outcome, NO_LABEL) for outcome in OUTCOMES], np.int8)
_MARKS = (Kind.JOB_HELD, Kind.JOB_RELEASED, Kind.JOB_TERMINATED, Kind.JOB_ABORTED)


def label_of(outcome: Outcome) -> int | None:
    """Return 1 if a release succeeded, 0 if it did not, None if that is unknown."""
    return LABELS.get(outcome)


def labels_of(outcomes: npt.NDArray[np.integer]) -> npt.NDArray[np.int8]:
    """Return the labels of outcomes given by index; NO_LABEL if there is none."""
    labels: npt.NDArray[np.int8] = _LABEL_BY_INDEX[outcomes]
    return labels


@dataclass(frozen=True, slots=True)
class Decisions:
    """The outcome of each hold, and the event that decided it."""

    hold: Ints  # rows of the holds in the steps
    outcome: npt.NDArray[np.int8]  # index in OUTCOMES
    release: Ints  # row of the first release; -1 if none
    decided: Ints  # row of the deciding event; -1 while open


def decide(steps: Steps, life: Ints) -> Decisions:
    """Find the outcome of every hold in steps that are sorted by job and then by order.

    `life` numbers the lives of the jobs: events in another life do not count.

    The first hold, termination or removal after a hold decides it. It shows what a release did
    only if a release comes in between, or if the job terminated, which no held job does.
    """
    kind = steps["kind"]
    marks = np.flatnonzero(np.isin(kind, _MARKS))
    mark_kind, job = kind[marks], life[marks]
    count = len(marks)
    released = mark_kind == Kind.JOB_RELEASED
    # The next mark that is not a release, searched from the end backwards.
    index = np.where(released, count, np.arange(count))
    following = np.minimum.accumulate(np.r_[index, count][::-1])[::-1][1:]
    holds = np.flatnonzero(mark_kind == Kind.JOB_HELD)
    after = following[holds]
    inside = np.minimum(after, count - 1)
    decided = (after < count) & (job[inside] == job[holds])
    next_mark = np.minimum(holds + 1, count - 1)
    free = (holds + 1 < count) & released[next_mark] & (job[next_mark] == job[holds])
    code = steps["code"][marks]
    outcome = np.where(free, _index(Outcome.UNKNOWN), _index(Outcome.NEVER_RELEASED))
    end = mark_kind[inside]
    held = decided & free & (end == Kind.JOB_HELD)
    same = code[inside] == code[holds]
    outcome[held & same] = _index(Outcome.HELD_SAME)
    outcome[held & ~same] = _index(Outcome.HELD_OTHER)
    outcome[decided & ~free & (end != Kind.JOB_TERMINATED)] = _index(Outcome.NEVER_RELEASED)
    outcome[decided & free & (end == Kind.JOB_ABORTED)] = _index(Outcome.REMOVED)
    ended = decided & (end == Kind.JOB_TERMINATED)
    well = steps["exit"][marks][inside] == 0
    outcome[ended & well] = _index(Outcome.SUCCEEDED)
    outcome[ended & ~well] = _index(Outcome.FAILED)
    return Decisions(
        marks[holds],
        outcome.astype(np.int8),
        np.where(free, marks[next_mark] if count else -1, -1),
        np.where(decided, marks[inside] if count else -1, -1),
    )


def _index(outcome: Outcome) -> int:
    return OUTCOME_INDEX[outcome]
