"""Split a job's events into hold episodes: what was known at the hold, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass

from condor_advice.gather.events import JobEvent, JobEventType, JobId
from condor_advice.gather.sequences import JobSequence
from condor_advice.preprocess.holds.outcomes import Outcome

_HELD, _RELEASED = JobEventType.JOB_HELD, JobEventType.JOB_RELEASED
_TERMINATED, _ABORTED = JobEventType.JOB_TERMINATED, JobEventType.JOB_ABORTED


@dataclass(frozen=True, slots=True)
class HoldEpisode:
    """One 012 event: everything before it, and everything up to the next one or the end."""

    job: JobId
    number: int  # 1 for the job's first hold
    history: tuple[JobEvent, ...]  # before the hold, oldest first
    hold: JobEvent
    aftermath: tuple[JobEvent, ...]  # for the label only

    @property
    def code(self) -> int | None:
        """HoldReasonCode, if the log has one."""
        return self.hold.ad.get("HoldReasonCode")

    @property
    def subcode(self) -> int | None:
        """HoldReasonSubCode, if the log has one."""
        return self.hold.ad.get("HoldReasonSubCode")

    @property
    def reason(self) -> str:
        """HoldReason, empty if HTCondor gave none."""
        return str(self.hold.ad.get("HoldReason", ""))


def hold_episodes(sequence: JobSequence) -> list[HoldEpisode]:
    """Return all hold episodes of one job; each is a sample."""
    holds = [row for row, event in enumerate(sequence.events) if event.type == _HELD]
    episodes = []
    for number, row in enumerate(holds, start=1):
        following = holds[number] + 1 if number < len(holds) else len(sequence.events)
        episodes.append(
            HoldEpisode(
                sequence.job,
                number,
                sequence.events[:row],
                sequence.events[row],
                sequence.events[row + 1 : following],
            )
        )
    return episodes


def is_held(sequence: JobSequence) -> bool:
    """Tell whether the job is on hold after its last event."""
    for event in reversed(sequence.events):
        if event.type in (_RELEASED, _TERMINATED, _ABORTED):
            return False
        if event.type == _HELD:
            return True
    return False


def outcome_of(episode: HoldEpisode) -> Outcome:
    """Return the outcome of a hold.

    A job that was removed while held says nothing about a release, and if the log ends the outcome
    is unknown: neither counts as a failure.
    """
    released = False
    for event in episode.aftermath:
        if event.type == _RELEASED:
            released = True
        elif event.type == _HELD:
            if not released:
                return Outcome.NEVER_RELEASED  # held again for another reason while on hold
            same = event.ad.get("HoldReasonCode") == episode.code
            return Outcome.HELD_SAME if same else Outcome.HELD_OTHER
        elif event.type == _ABORTED:
            return Outcome.REMOVED if released else Outcome.NEVER_RELEASED
        elif event.type == _TERMINATED:
            return Outcome.SUCCEEDED if event.ad.get("ReturnValue") == 0 else Outcome.FAILED
    return Outcome.UNKNOWN if released else Outcome.NEVER_RELEASED
