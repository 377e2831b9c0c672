"""Will it match? Compare an edit that a remedy proposes with the slots of the pool.

An edit that leaves a job without a slot would turn a held job into one that is idle for ever. So it
is not printed: the largest size that a slot has takes its place, or words that say what else can be
done. Where the collector does not answer, the remedy stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from condor_advice.advise.holds import Hold
from condor_advice.advise.remedies import Remedy, SlotCount, qedit_command, release_command

if TYPE_CHECKING:
    from condor_advice.gather.slots import PoolSlots, SlotMatch

REQUESTS = ("RequestMemory", "RequestDisk")
# An edit of Requirements keeps a job away from machines by these.
PLACES = "Machine && Name"


class Matcher:
    """Asks the collector at most once, and only if a remedy changes what a job requires."""

    def __init__(self, holds: Iterable[Hold] = ()) -> None:
        self._holds = holds
        self._slots: PoolSlots | None = None

    def checked(self, hold: Hold, remedy: Remedy) -> Remedy:
        """Return a remedy whose edits leave the job slots that could run it."""
        edits = dict(remedy.edits)
        changes = remedy.raised or any(name in edits for name in (*REQUESTS, "Requirements"))
        if not hold.ad or hold.past or not changes:
            return remedy
        match = self._pool_slots().match(hold.ad, edits)
        if match is None or not match.slots:
            return remedy
        if match.matching:
            return _counted(remedy, match)
        if "Requirements" in edits:
            return _nowhere_else(hold, remedy, match)
        return _too_large(hold, remedy, match)

    def _pool_slots(self) -> PoolSlots:
        if self._slots is None:
            from condor_advice.gather.slots import PoolSlots

            texts = [hold.ad.get("Requirements") for hold in self._holds]
            self._slots = PoolSlots([*texts, PLACES])
        return self._slots


def of_slots(count: int, slots: int) -> str:
    """Return a share of the slots in words, as `2 of 14 slots`."""
    return f"{count:,} of {slots:,} slot{'' if slots == 1 else 's'}"


def _counted(remedy: Remedy, match: SlotMatch) -> Remedy:
    shown = of_slots(match.matching, match.slots)
    has, remains = ("has", "remains") if match.matching == 1 else ("have", "remain")
    words = f"{shown} {remains}" if "Requirements" in dict(remedy.edits) else (
        f"{shown} {has} that much"
    )  # fmt: skip
    count = SlotCount(match.matching, match.slots)
    return replace(remedy, text=f"{remedy.text}; {words}", slots=count)


def _nowhere_else(hold: Hold, remedy: Remedy, match: SlotMatch) -> Remedy:
    """No slot is left if the job avoids the execution point that is at fault."""
    return _in_words(
        remedy,
        match,
        f"{hold.point} is at fault, and no other slot of this pool could run the job: tell the "
        "staff, and release it once the execution point works",
    )


def _too_large(hold: Hold, remedy: Remedy, match: SlotMatch) -> Remedy:
    """Request the most that a slot has, or say that the job needs more than the pool has."""
    for condition in match.conditions:
        resource, asked = condition.resource, condition.asked
        if resource is None or resource.request not in REQUESTS:
            continue
        most = int(match.most.get(resource, 0.0))
        if not most or asked <= most:
            continue
        none = f"no slot of this pool has that much: largest is {resource.words(most)}"
        if remedy.raised:
            return _in_words(
                remedy,
                match,
                f"it requests {resource.words(asked)} now, but {none}; request less before you "
                "release it, or ask the staff for a larger slot",
            )
        if remedy.above is not None and most > remedy.above:
            return replace(
                remedy,
                text=(
                    f"request {resource.words(most)}, then release; {resource.words(asked)} would "
                    f"be safer, but {none}; if that does not suffice, make it use less"
                ),
                commands=(
                    qedit_command(hold, resource.request, str(most)),
                    release_command(hold),
                ),
                edits=((resource.request, str(most)),),
                risk=None,
                slots=SlotCount(0, match.slots),
            )
        return _in_words(
            remedy,
            match,
            f"it should request {resource.words(asked)}, but {none}; make it use less, split the "
            "work, or ask the staff for a larger slot",
        )
    terms = [c.expression for c in match.conditions if not c.slots]
    named = f" (none has `{terms[0]}`)" if terms else ""
    return _in_words(
        remedy,
        match,
        f"no slot of this pool meets the job's requirements{named}: correct them first; see "
        f"`condor_q -better-analyze {hold.job}`",
    )


def _in_words(remedy: Remedy, match: SlotMatch, text: str) -> Remedy:
    """Return a remedy that has no commands, because none of them would help."""
    return replace(
        remedy,
        text=text,
        commands=(),
        edits=(),
        risk=None,
        gone=False,
        by_hand=True,
        raised=False,
        slots=SlotCount(match.matching, match.slots),
    )
