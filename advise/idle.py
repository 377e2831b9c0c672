"""Why a job is idle: which of its requirements leaves no slot, in words.

The analysis is that of `condor_q -better-analyze`: each term of Requirements, and each amount that
the job requests, is compared with every slot of the pool.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from condor_advice.advise.matching import of_slots
from condor_advice.advise.overview import compact_ids, span_words
from condor_advice.advise.report import labelled_line
from condor_advice.advise.terminal_style import Style
from condor_advice.gather.live import LiveJob
from condor_advice.gather.slots import Condition, PoolSlots, Resource, SlotMatch

SHOWN_IDS = 8
LONGEST_TERM = 200  # characters
IDLE_COLOUR = 36


@dataclass(frozen=True, slots=True)
class IdleAnswer:
    """Idle jobs that ask for the same, and the slots that could run them."""

    jobs: tuple[LiveJob, ...]
    match: SlotMatch | None  # None: the collector did not answer

    @property
    def ids(self) -> str:
        """The ids of the jobs."""
        return compact_ids((live.job for live in self.jobs), SHOWN_IDS)

    @property
    def unmet(self) -> tuple[Condition, ...]:
        """The conditions that no slot meets."""
        match = self.match
        return tuple(c for c in match.conditions if not c.slots) if match else ()

    def __str__(self) -> str:
        """Say in one sentence whether a slot could run them."""
        match = self.match
        if match is None:
            return "the collector did not answer, so its slots are unknown"
        if not match.slots:
            return "the pool has no slots now"
        if match.matching:
            return f"{of_slots(match.matching, match.slots)} could run it; it waits for its turn"
        if match.refusing:
            return (
                f"{of_slots(match.refusing, match.slots)} would do, but their own policy "
                "refuses it now"
            )
        if self.unmet:
            return "; ".join(_words(condition, match) for condition in self.unmet)
        return "each requirement is met by some slot, but no slot meets all of them"

    def what_to_do(self) -> str:
        """Say what a person can do about it."""
        match = self.match
        if match is None:
            return "ask again once the collector answers"
        if not match.slots:
            return "wait until execution points have joined the pool, or ask the staff"
        if match.matching:
            return "wait; `condor_userprio` shows how the pool shares its slots among users"
        if match.refusing:
            return "wait until the execution points accept jobs, or ask the staff"
        unmet = self.unmet
        changes = [
            f"request at most {c.resource.words(match.most.get(c.resource) or c.largest)}"
            if c.largest
            else f"request no {c.resource.value}, which no slot here has"
            for c in unmet
            if c.resource is not None
        ]
        if any(c.resource is None for c in unmet) or not unmet:
            changes.append("correct its requirements")
        return (
            f"{' and '.join(changes)} (`condor_qedit` changes a job that is idle), or ask the "
            "staff which execution points are meant for it"
        )


def idle_answers(jobs: Sequence[LiveJob]) -> list[IdleAnswer]:
    """Judge idle jobs; those that ask for the same are judged together."""
    slots = PoolSlots(live.ad.get("Requirements") for live in jobs)
    like: dict[tuple[object, ...], list[LiveJob]] = {}
    matches: dict[tuple[object, ...], SlotMatch | None] = {}
    for live in jobs:
        ad = live.ad
        match = slots.match(ad, whole=True)
        requests = tuple(ad.get(resource.request) for resource in Resource)
        key = (live.job.cluster, ad.get("Requirements"), requests, id(match))
        like.setdefault(key, []).append(live)
        matches[key] = match
    return [IdleAnswer(tuple(members), matches[key]) for key, members in like.items()]


def idle_text(answers: Sequence[IdleAnswer], style: Style) -> str:
    """Return the answers as text: what to do, then why."""
    blocks = []
    now = style.now.timestamp() if style.now else time.time()
    for answer in answers:
        count = len(answer.jobs)
        who = answer.ids if count == 1 else f"{count:,} jobs, {answer.ids}"
        could = answer.match is not None and answer.match.matching > 0
        state = "waiting for a slot" if could else "no slot could run it"
        if answer.match is None:
            state = "not on hold"
        lines = [f"{style.paint('IDLE', IDLE_COLOUR)}     {who}: {state}"]
        lines.append(labelled_line("do", answer.what_to_do(), style))
        lines.append(labelled_line("why", str(answer), style))
        lines += _narrowing(answer, style)
        since = min(float(live.ad.get("EnteredCurrentStatus", now)) for live in answer.jobs)
        lines.append(labelled_line("idle", f"for {span_words(max(0.0, now - since))}", style))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _narrowing(answer: IdleAnswer, style: Style) -> list[str]:
    """Show what each condition leaves where no single one is at fault."""
    match = answer.match
    if match is None or match.matching or match.refusing or answer.unmet:
        return []
    few = [c for c in match.conditions if c.slots < match.slots]
    return [labelled_line("slots", _words(condition, match), style) for condition in few]


def _words(condition: Condition, match: SlotMatch) -> str:
    count = of_slots(condition.slots, match.slots)
    if condition.resource is not None:
        words = condition.resource.words
        return f"{count} has {words(condition.asked)}: largest is {words(condition.largest)}"
    term = condition.expression
    shown = term if len(term) <= LONGEST_TERM else f"{term[:LONGEST_TERM]} ..."
    return f"{count} meets `{shown}`"
