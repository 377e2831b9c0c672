"""When a cause strikes: does a run of a job, at a time and on an execution point, end in a hold?"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from random import Random

from condor_advice.lab.worlds.character import CAUSES, Cause, Character, Window


@dataclass(slots=True)
class Program:
    """A program that an owner runs in many clusters, and when it was broken."""

    number: int
    broken: list[Window] = field(default_factory=list)
    in_place: bool = False  # a mended program helps held jobs, too; else only new clusters

    def is_broken(self, time: float) -> bool:
        """Tell whether the program is broken at a time."""
        return any(start <= time < end for start, end in self.broken)


@dataclass(slots=True)
class Trouble:
    """The cause behind the holds of one cluster."""

    cause: Cause
    reason: int
    second_reason: int  # behind it, of TWO_STAGES
    clears: float
    chance: float  # that a run passes
    bad_points: list[bool]
    server: list[Window]
    window: Window
    program: Program
    begun: float  # when the cluster was submitted


@dataclass(slots=True)
class JobTrouble:
    """What one job of the cluster has of it."""

    exposed: bool
    bad: bool  # of BY_JOB
    stuck: bool = False  # of STICKY
    holds: int = 0


def draw_trouble(
    rng: Random, world: Character, reason: int, cause: Cause, begun: float, program: Program
) -> Trouble:
    """Draw the cause of one cluster's holds."""
    mean, spread = world.clear
    after = world.delay * 10 ** (mean + spread * rng.gauss(0, 1))
    share = rng.uniform(0.1, 0.8)
    own_points = [rng.random() < share for _ in range(world.points)]
    return Trouble(
        cause,
        reason,
        rng.randrange(world.reasons),
        begun + after * rng.weibullvariate(1.0, world.clear_shape),
        rng.betavariate(*world.chance),
        world.reason_points[reason] if rng.random() < 0.5 else own_points,
        rng.choice(world.servers),
        world.reason_windows[reason],
        program,
        begun,
    )


def draw_cause(rng: Random, world: Character, reason: int, time: float) -> Cause:
    """Draw the cause behind holds with a reason, as it is at that time."""
    regime = max((r for r in world.regimes if r.since <= time), key=lambda r: r.since)
    [cause] = rng.choices(CAUSES, regime.shares[reason])
    return cause


def strikes(
    rng: Random, trouble: Trouble, job: JobTrouble, start: float, end: float, point: int
) -> int | None:
    """Return the reason that a run is held for, None if it passes.

    `end` is when the fault would show.
    """
    reason = trouble.reason
    match trouble.cause:
        case Cause.NONE:
            return None
        case _ if not job.exposed:
            return None
        case Cause.PERSISTENT:
            return reason
        case Cause.TRANSIENT:
            return reason if end < trouble.clears else None
        case Cause.REASON_WIDE:
            return reason if trouble.window[0] < end < trouble.window[1] else None
        case Cause.BY_CHANCE:
            return reason if rng.random() > trouble.chance else None
        case Cause.POINTS:
            return reason if trouble.bad_points[point] else None
        case Cause.SERVER:
            return reason if is_within(trouble.server, start) else None
        case Cause.STICKY:
            job.stuck = job.stuck or rng.random() > trouble.chance
            return reason if job.stuck else None
        case Cause.BY_JOB:
            return reason if job.bad else None
        case Cause.TWO_STAGES:
            return reason if end < trouble.clears else trouble.second_reason
        case Cause.PROGRAM:
            when = start if trouble.program.in_place else trouble.begun
            return reason if trouble.program.is_broken(when) else None
        case Cause.BY_HAND:
            again = 0.05 + 0.3 * (trouble.chance < 0.3)
            return reason if rng.random() < (again if job.holds else 0.7) else None


def is_within(windows: list[Window], time: float) -> bool:
    """Tell whether a time is in one of some windows, which are in order."""
    place = bisect_right(windows, (time, float("inf"))) - 1
    return place >= 0 and time < windows[place][1]
