"""The outcomes of a hold. Advice loads this module, so it imports nothing heavy."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """The outcome of a hold. Only the first four show what a release did."""

    SUCCEEDED = "succeeded"  # exit 0 without another hold
    HELD_SAME = "held_same"
    HELD_OTHER = "held_other"
    FAILED = "failed"  # non-zero exit, or a signal
    REMOVED = "removed"  # after the release
    NEVER_RELEASED = "never_released"  # censored: removed while held, or still held
    UNKNOWN = "unknown"  # the log ends


OUTCOMES = tuple(Outcome)  # the index numbers an outcome in tables
OUTCOME_INDEX = {outcome: index for index, outcome in enumerate(OUTCOMES)}
