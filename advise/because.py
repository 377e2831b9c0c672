"""Why a verdict was reached or a step chosen: ids that code compares, sentences for people.

A `Grounds` joins a reason with the values that its sentence names. Nothing may depend on the
wording: every sentence here can be rewritten without changing what is advised or done.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Self


class WordedReason(Enum):
    """A reason with an id (its value) and a sentence, which may name values in braces."""

    words: str

    def __new__(cls, id: str, words: str) -> Self:
        """Make the id the member's value, so that members with the same words stay distinct."""
        member = object.__new__(cls)
        member._value_ = id
        member.words = words
        return member

    def given(self, **values: object) -> Grounds:
        """Return this reason with the values that its sentence names."""
        return Grounds(self, tuple(values.items()))


@dataclass(frozen=True, slots=True)
class Grounds:
    """A reason with the values of one case; as a string, the sentence that people read."""

    reason: WordedReason
    values: tuple[tuple[str, object], ...] = ()

    @property
    def id(self) -> str:
        """The reason's id, as `--json` prints it."""
        return str(self.reason.value)

    def __str__(self) -> str:
        return self.reason.words.format(**dict(self.values))


class Because(WordedReason):
    """Why a hold got its verdict."""

    OWNER_HELD = "owner_held", "its owner held it"
    SOMEBODY_ELSE_HELD = "somebody_else_held", "somebody other than its owner held it"
    SOMEBODY_HELD = "somebody_held", "somebody held it"
    ON_PURPOSE = "on_purpose", "it is on hold on purpose"
    STAFF_DECIDES = "staff_decides", "the staff decides about such holds"
    EDITED_WHILE_HELD = "edited_while_held", "its hold was edited while it was held"
    STAFF_HOLD = "staff_hold", "the staff set this hold"
    FATAL_HERE = "fatal_here", "this site never lets such a job run again"
    TOO_MANY_HOLDS = (
        "too_many_holds",
        "it was held {number} times, and the site allows {allowed}",
    )
    CAUSE_GONE = "cause_gone", "already corrected"
    KEEPS_COMING_BACK = "keeps_coming_back", "it keeps coming back"
    EXECUTION_POINT = "execution_point", "its execution point is at fault"
    NO_SLOT = "no_slot", "no slot of this pool could run it"
    SAME_LIMIT = "same_limit", "released as it is, it would reach the same limit again"
    LIKELY_SUCCESS = "likely_success", "it will probably succeed as it is"
    REPAIR_FIRST = "repair_first", "something has to be put right first"
    WORTH_A_TRY = "worth_a_try", "such holds often pass, and a try is worth its cost"
    HIGH_SCORE = "high_score", "nearly all holds scored this high succeeded"
    TOO_LITTLE_KNOWN = "too_little_known", "too little is known to be sure"
    OWNERS_POLICY = "owners_policy", "only its owner knows what the policy guards against"
    CAME_BACK = "came_back", "it came back, and a release will most likely fail again"
    NO_REMEDY = "no_remedy", "a release will probably fail, and no remedy is known"


# Somebody with more authority than the owner must agree before anything is done.
ASK_STAFF_FIRST = frozenset(
    {Because.SOMEBODY_ELSE_HELD, Because.STAFF_DECIDES, Because.EDITED_WHILE_HELD}
)


class StepReason(WordedReason):
    """Why a step was chosen for a job when acting on advice."""

    ADVISED = "advised", "advised"
    LEFT_QUEUE = "left_queue", "it has left the queue"
    NOT_HELD = "not_held", "it is no longer on hold"
    HELD_ANEW = "held_anew", "it has been held again since the advice was given; ask again"
    SOMEBODY_HOLDS = "somebody_holds", "{holder} holds it"
    OWNER_HOLDS = "owner_holds", "its owner holds it"
    SUBMITTED_ON_HOLD = "submitted_on_hold", "it is meant to be on hold"
    SPOOLING = "spooling", "it is being spooled"
    SITE_LEAVES_CODE = (
        "site_leaves_code",
        "the site's configuration leaves holds with code {code} alone",
    )
    SITE_LEAVES_REASON = (
        "site_leaves_reason",
        "the site's configuration leaves holds whose reason matches {pattern!r} alone",
    )
    NO_CHANCE = "no_chance", "its chance of success is not known"
    BELOW_CONFIDENCE = (
        "below_confidence",
        "its chance, {chance:.0%}, is below the {confidence:.0%} that --apply requires; a lower "
        "--confidence releases it",
    )
    SITE_POLICY = "site_policy", "a policy of the site holds it; release it yourself if you may"
    NEEDS_OWNER = "needs_owner", "it needs you first; the advice says what to do"
    NEEDS_FIX_OPTION = "needs_fix_option", "--fix edits and releases it"
    NEEDS_REMOVE_OPTION = "needs_remove_option", "--remove removes it"
    OWNERS_DECISION = "owners_decision", "the decision is yours"
    TOO_MANY_HOLDS = "too_many_holds", "it was held {number} times; the limit is {limit}"
    BACKOFF = "backoff", "it was held {number} times, so it waits longer"
    CAUSE_NEEDS_TIME = "cause_needs_time", "the cause needs time to pass"
    CANARY_FIRST = "canary_first", "goes first, as a test for {jobs} jobs"
    CANARIES_GO_FIRST = "canaries_go_first", "{canaries} similar jobs go first"
    CANARIES_RUNNING = (
        "canaries_running",
        "{canaries} went first and must get past the point where it was held",
    )
    CANARIES_CAME_BACK = (
        "canaries_came_back",
        "{bad} of {decided} that went first failed or were held again",
    )
    HOURLY_CAP = "hourly_cap", "the cap of {cap} actions per hour is reached"
    BREAKER = (
        "breaker",
        "{back} of {decided} releases were held again within {minutes:.0f} minutes; releases stop "
        "until fewer are",
    )
