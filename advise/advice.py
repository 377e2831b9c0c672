"""From a hold episode to an Advice: the one answer that every face of the tool shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from condor_advice.gather.events import JobEvent, JobEventType
from condor_advice.model.rules import Rule, Verdict, posterior, rule_for
from condor_advice.preprocess.episodes import HoldEpisode, Outcome, outcome_of

# Only these outcomes say what a release does.
_TOLD = {
    Outcome.SUCCEEDED: True,
    Outcome.HELD_SAME: False,
    Outcome.HELD_OTHER: False,
    Outcome.FAILED: False,
}
_SIZES = (("memory_mb", "MemoryUsage", 256, "MB"), ("disk_kb", "DiskUsage", 1024, "KB"))
_STOPS = (
    JobEventType.JOB_EVICTED,
    JobEventType.JOB_TERMINATED,
    JobEventType.JOB_HELD,
    JobEventType.JOB_ABORTED,
    JobEventType.SHADOW_EXCEPTION,
)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do with one held job, why, how sure, and what it costs to be wrong."""

    episode: HoldEpisode
    verdict: Verdict
    p_success: float
    interval: tuple[float, float]
    rule: Rule
    outcomes: tuple[bool, ...]  # of like holds whose outcome is known
    releases: int  # of this job that led back to the same hold
    commands: tuple[str, ...]
    remedy: str
    failed_release_cpu_hours: float
    wrong_remove_cpu_hours: float

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints; its shape is a contract."""
        hold = self.episode
        return {
            "job": str(hold.job),
            "access_point": hold.job.access_point or None,
            "verdict": self.verdict.value,
            "p_success": round(self.p_success, 4),
            "confidence_interval": [round(bound, 4) for bound in self.interval],
            "source": "rules",
            "model": None,
            "hold": {
                "code": hold.code,
                "subcode": hold.subcode,
                "reason": hold.reason,
                "template": self.rule.name,
                "at": hold.hold.time.isoformat().replace("+00:00", "Z"),
                "number": hold.number,
            },
            "evidence": {
                "like_cases": len(self.outcomes),
                "like_cases_succeeded": sum(self.outcomes),
                "releases_that_came_back": self.releases,
                "why": self.rule.why,
                "source": self.rule.source,
            },
            "remedy": {"commands": list(self.commands), "text": self.remedy},
            "cost": {
                "failed_release_cpu_hours": round(self.failed_release_cpu_hours, 4),
                "wrong_remove_cpu_hours": round(self.wrong_remove_cpu_hours, 4),
            },
        }


def advise_on(episode: HoldEpisode, others: Sequence[HoldEpisode] = ()) -> Advice:
    """Judge one hold by what was known then, in the light of other holds.

    `others` may hold any episodes; only those with the same code and subcode whose outcome
    was known before this hold count.
    """
    like = [other for other in others if _alike(other, episode) and _known_before(other, episode)]
    own = [other for other in like if other.job == episode.job and other.number < episode.number]
    came_back = sum(outcome_of(other) is Outcome.HELD_SAME for other in own)
    outcomes = tuple(_TOLD[outcome_of(other)] for other in like)
    rule = rule_for(episode.code, episode.subcode, episode.reason, came_back)
    chance, interval = posterior(rule.prior, outcomes)
    run_hours = [seconds / 3600 for seconds in run_seconds(episode.history)]
    cpus = _requested(episode.history, "RequestCpus", "Cpus") or 1.0
    commands, remedy = _remedy(rule, episode)
    return Advice(
        episode=episode,
        verdict=rule.verdict,
        p_success=chance,
        interval=interval,
        rule=rule,
        outcomes=outcomes,
        releases=came_back,
        commands=commands,
        remedy=remedy,
        failed_release_cpu_hours=max(run_hours, default=0.0) * cpus,
        wrong_remove_cpu_hours=sum(run_hours) * cpus,
    )


def run_seconds(events: Sequence[JobEvent]) -> list[float]:
    """Return how long each run of a job took, as far as its events tell."""
    runs: list[float] = []
    started = None
    for event in events:
        if event.type == JobEventType.EXECUTE:
            started = event.time
        elif event.type in _STOPS and started is not None:
            runs.append(max(0.0, (event.time - started).total_seconds()))
            started = None
    return runs


def _alike(other: HoldEpisode, episode: HoldEpisode) -> bool:
    return (other.code, other.subcode) == (episode.code, episode.subcode)


def _known_before(other: HoldEpisode, episode: HoldEpisode) -> bool:
    """Tell whether the outcome of `other` had been decided when this job was held."""
    if (other.job, other.number) == (episode.job, episode.number):
        return False
    outcome = outcome_of(other)
    return outcome in _TOLD and other.aftermath[-1].time <= episode.hold.time


def _remedy(rule: Rule, episode: HoldEpisode) -> tuple[tuple[str, ...], str]:
    """Fill in the rule's commands; what cannot be filled in is said in words instead."""
    events = (*episode.history, episode.hold)
    remedy = rule.remedy
    values: dict[str, Any] = {"job": str(episode.job)}
    # It was stopped at the peak that was measured, so its real need is above that.
    for field, attribute, unit, words in _SIZES:
        used = _peak(events, attribute)
        if used and any(field in command for command in rule.commands):
            values[field] = _step_up(used, unit)
            remedy += f" (measured when it was stopped: {used:.0f} {words}; it needs more)"
    longest = max(run_seconds(events), default=0.0)
    if longest:
        values["duration_s"] = _step_up(longest, 3600)
    commands = []
    for command in rule.commands:
        try:
            commands.append(command.format(**values))
        except KeyError:  # not measured: leave the number to the owner
            return (), remedy
    return tuple(commands), remedy


def _step_up(used: float, unit: int) -> int:
    """Return the next whole multiple of a unit above half as much again as was used."""
    return int(used * 1.5 // unit + 1) * unit


def _peak(events: Sequence[JobEvent], name: str) -> float | None:
    found = [event.ad[name] for event in events if name in event.ad]
    numbers = [float(value) for value in found if isinstance(value, int | float)]
    return max(numbers, default=None)


def _requested(events: Sequence[JobEvent], *names: str) -> float | None:
    for event in reversed(events):
        for name in names:
            value = event.ad.get(name, event.ad.get("ExecuteProps", {}).get(name))
            if isinstance(value, int | float):
                return float(value)
    return None
