"""Outcomes and labels of holds, from the events that follow them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_advice.gather.events import JobEventType as Kind
from condor_advice.preprocess.holds.outcomes import OUTCOME_INDEX, OUTCOMES, Outcome
from condor_advice.preprocess.holds.steps import EDITED, VARIES, Steps

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

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
_REQUESTS = ("request_memory", "request_disk", "request_cpus")
_MARKS = (Kind.JOB_HELD, Kind.JOB_RELEASED, Kind.JOB_TERMINATED, Kind.JOB_ABORTED)


def label_of(outcome: Outcome) -> int | None:
    """Return 1 if a release succeeded, 0 if it did not, None if that is unknown."""
    return LABELS.get(outcome)


def labels_of(
    outcomes: npt.NDArray[np.integer], changed: npt.NDArray[np.integer | np.bool_]
) -> npt.NDArray[np.int8]:
    """Return the labels of outcomes given by index; NO_LABEL if there is none.

    What came of a job that had been changed before its release says nothing about a release as is.
    """
    labels: npt.NDArray[np.int8] = np.where(changed, NO_LABEL, _LABEL_BY_INDEX[outcomes])
    return labels


@dataclass(frozen=True, slots=True)
class Decisions:
    """The outcome of each hold, and the event that decided it."""

    hold: Ints  # rows of the holds in the steps
    outcome: npt.NDArray[np.int8]  # index in OUTCOMES
    release: Ints  # row of the first release; -1 if none
    decided: Ints  # row of the deciding event; -1 while open
    changed: Bools  # the release was not as is: the job had been changed
    told: Ints  # row of the last event that could tell of a change; -1 if none


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
    release = np.where(free, marks[next_mark] if count else -1, -1)
    decision = np.where(decided, marks[inside] if count else -1, -1)
    changed, told = _changes(steps, life, marks[holds], release, decision)
    return Decisions(marks[holds], outcome.astype(np.int8), release, decision, changed, told)


def _changes(
    steps: Steps, life: Ints, hold: Ints, release: Ints, decided: Ints
) -> tuple[Bools, Ints]:
    """Find the holds whose job was changed before its next run, as far as events tell.

    With 028 events each event shows what the job asks for. What it asked for at the hold is
    compared with what it asked for at its next start, or when the hold was decided. Later
    differences are the business of the next hold: HTCondor evaluates requests, and some grow
    with what a run uses.
    """
    kind = steps["kind"]
    ad = kind == Kind.JOB_AD_INFORMATION
    edited = steps["settings"][:, EDITED] != 0
    telling = np.flatnonzero(ad | edited)
    changed, told = np.zeros(len(hold), np.bool_), np.full(len(hold), -1)
    if not len(hold) or not len(telling):
        return changed, told
    end = np.searchsorted(life, life[hold], side="right") - 1
    begin = np.searchsorted(life, life[hold])
    # The 028 event behind another one tells about that moment.
    behind = np.append(ad[1:], False)
    starts = np.flatnonzero(kind == Kind.EXECUTE)
    start = np.append(starts, len(steps))[np.searchsorted(starts, np.maximum(release, hold))]
    start += np.append(behind, False)[start]
    upto = np.minimum(np.where(decided >= 0, decided, end), start)
    since = np.minimum(hold + behind[hold], end)
    last = _last(telling, upto)
    told = np.where(last > hold, last, -1)
    edits = np.flatnonzero(edited)
    changed = np.searchsorted(edits, upto, side="right") > np.searchsorted(edits, hold, "right")
    columns = [(steps[name], ~np.isnan(steps[name])) for name in _REQUESTS]
    settings = steps["settings"].T
    columns += [
        (settings[place], settings[place] != 0) for place in range(EDITED + 1, len(settings))
    ]
    for values, known in columns:
        rows = np.flatnonzero(known & ad)
        before, after = _last(rows, since), _last(rows, upto)
        differs = (before >= begin) & (after > since) & (values[before] != values[after])
        if differs.any() and values.dtype == settings.dtype:
            differs &= _last(rows[values[rows] == VARIES], upto) < begin
        changed |= differs
    return changed & ((release >= 0) | (decided >= 0)), told


def _last(rows: Ints, upto: Ints) -> Ints:
    """Return the last of some rows up to each of others; -1 where there is none."""
    found: Ints = np.append(-1, rows)[np.searchsorted(rows, upto, side="right")]
    return found


def _index(outcome: Outcome) -> int:
    return OUTCOME_INDEX[outcome]
