"""What came of each hold: from the events behind it to an outcome, and to a label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_advice.gather.events import JobEventType as Kind
from condor_advice.preprocess.holds.episodes import Outcome
from condor_advice.preprocess.holds.steps import Steps

Ints = npt.NDArray[np.int64]

OUTCOMES = tuple(Outcome)  # their order is the number of each in tables
OUTCOME_INDEX = {outcome: index for index, outcome in enumerate(OUTCOMES)}
# Only these say what a release did. A job that was removed, before or after, or whose log
# ends, has no label: its outcome is unknown, and unknown is not failed.
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
    """Return 1 where a release led to success, 0 where it did not, None where nobody knows."""
    return LABELS.get(outcome)


def labels_of(outcomes: npt.NDArray[np.integer]) -> npt.NDArray[np.int8]:
    """Return the labels of outcomes given by number; NO_LABEL where there is none."""
    found: npt.NDArray[np.int8] = _LABEL_BY_INDEX[outcomes]
    return found


@dataclass(frozen=True, slots=True)
class Decisions:
    """For each hold: what is known of its end, and since which event."""

    hold: Ints  # rows of the steps that were asked about
    outcome: npt.NDArray[np.int8]  # number in OUTCOMES
    release: Ints  # row of the first release; -1 none
    decided: Ints  # row of the event that decided; -1 while it is open


def decide(steps: Steps, life: Ints) -> Decisions:
    """Find what came of every hold in steps that are sorted by job and, within, by order.

    `life` numbers the lives of the jobs: what happens in another life has no say.

    The first hold, termination or removal behind a hold decides it. It tells what a release
    did only if a release stands between, or if the job terminated, which no held job does.
    """
    kind = steps["kind"]
    marks = np.flatnonzero(np.isin(kind, _MARKS))
    what, job = kind[marks], life[marks]
    count = len(marks)
    released = what == Kind.JOB_RELEASED
    # The next mark that is no release: found from the end backwards.
    index = np.where(released, count, np.arange(count))
    following = np.minimum.accumulate(np.r_[index, count][::-1])[::-1][1:]
    holds = np.flatnonzero(what == Kind.JOB_HELD)
    after = following[holds]
    inside = np.minimum(after, count - 1)
    decided = (after < count) & (job[inside] == job[holds])
    next_mark = np.minimum(holds + 1, count - 1)
    free = (holds + 1 < count) & released[next_mark] & (job[next_mark] == job[holds])
    code = steps["code"][marks]
    outcome = np.where(free, _number(Outcome.UNKNOWN), _number(Outcome.NEVER_RELEASED))
    end = what[inside]
    held = decided & free & (end == Kind.JOB_HELD)
    same = code[inside] == code[holds]
    outcome[held & same] = _number(Outcome.HELD_SAME)
    outcome[held & ~same] = _number(Outcome.HELD_OTHER)
    outcome[decided & ~free & (end != Kind.JOB_TERMINATED)] = _number(Outcome.NEVER_RELEASED)
    outcome[decided & free & (end == Kind.JOB_ABORTED)] = _number(Outcome.REMOVED)
    ended = decided & (end == Kind.JOB_TERMINATED)
    well = steps["exit"][marks][inside] == 0
    outcome[ended & well] = _number(Outcome.SUCCEEDED)
    outcome[ended & ~well] = _number(Outcome.FAILED)
    return Decisions(
        marks[holds],
        outcome.astype(np.int8),
        np.where(free, marks[next_mark] if count else -1, -1),
        np.where(decided, marks[inside] if count else -1, -1),
    )


def _number(outcome: Outcome) -> int:
    return OUTCOME_INDEX[outcome]
