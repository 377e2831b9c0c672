"""Draw what a world is like: its size, its pace, its causes of holds and its owners' habits.

Numbers are drawn wide on purpose, over orders of magnitude where a real site could be anywhere.
Times are in seconds; `delay` is the usual time from a hold to its release, and most other times
are drawn relative to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Cause(StrEnum):
    """Why the jobs of a cluster are held."""

    PERSISTENT = "persistent"  # until somebody repairs it
    TRANSIENT = "transient"  # clears after a time
    BY_CHANCE = "by_chance"  # each run may fail
    POINTS = "points"  # fails on some execution points
    SERVER = "server"  # a server that goes down and comes back
    STICKY = "sticky"  # once it has failed, it fails for good
    BY_JOB = "by_job"  # some jobs of the cluster are bad, others are not
    TWO_STAGES = "two_stages"  # clears, and another fault shows behind it
    BY_HAND = "by_hand"  # somebody held it
    REASON_WIDE = "reason_wide"  # one outage behind all holds of a reason
    PROGRAM = "program"  # the program is broken until its owner mends it
    NONE = "none"


class Kind(StrEnum):
    """The sort of site; models are chosen by how they do on kinds left out."""

    LABORATORY = "laboratory"  # quick, dense, all causes
    NATIONAL = "national"  # many unrelated users, small clusters, slow owners
    DEPARTMENT = "department"  # few users who run the same programs again and again
    PRODUCTION = "production"  # large clusters, sweeps, servers and bad execution points
    CHANGING = "changing"  # another mix of causes after some time


CAUSES = tuple(cause for cause in Cause if cause is not Cause.NONE)
_USUAL_SHARES = {
    Cause.PERSISTENT: 1.8,
    Cause.TRANSIENT: 2.5,
    Cause.BY_CHANCE: 1.6,
    Cause.POINTS: 1.2,
    Cause.SERVER: 1.3,
    Cause.STICKY: 0.5,
    Cause.BY_JOB: 0.5,
    Cause.TWO_STAGES: 0.8,
    Cause.BY_HAND: 0.6,
    Cause.REASON_WIDE: 0.8,
    Cause.PROGRAM: 1.2,
}
Window = tuple[float, float]


@dataclass(frozen=True, slots=True)
class OwnerHabits:
    """How one owner reacts to a hold."""

    patience: int  # holds of one job after which they give up
    fixes: float  # how often they repair before a release
    resubmits: float  # how often they remove the cluster and submit it again
    haste: float  # multiplies their delays
    releases: float  # how often they release at all
    sweeps: float  # how often they release everything at set times
    programs: int


@dataclass(slots=True)
class Regime:
    """The mix of causes during a part of the time."""

    since: float
    shares: list[list[float]]  # of each cause, for each reason


@dataclass(slots=True)
class Character:
    """Everything about a world that is drawn before its jobs are."""

    kind: Kind
    unit: float  # seconds; the pace of the pool itself
    delay: float
    clear: tuple[float, float]  # mean and spread of log10(clear time / delay)
    clear_shape: float
    points: int
    owners: list[OwnerHabits]
    reasons: int
    family: list[int]  # of each reason
    code: list[int]
    reason_weights: list[float]
    regimes: list[Regime]
    run: float
    queue: float
    clusters: int
    span: float
    healthy: float
    cluster_size: float
    most_episodes: int
    chance: tuple[float, float]  # of the beta distribution of chances by cluster
    randomised: bool  # every hold is released, after a delay that depends on nothing
    most_releases: int
    delay_shape: int
    visible_fixes: float  # share of repairs that leave a trace in the log
    flaky_points: list[bool]
    flaky_chance: float
    black_holes: list[list[Window]]
    black_hole_reason: int
    servers: list[list[Window]]
    failures: float  # of runs, without a hold
    never_starts: float  # share of early faults that show before the job starts
    reason_points: list[list[bool]]  # where a reason's jobs fail, if a cause is bound to points
    reason_windows: list[Window]
    point_known: float


def draw_character(rng: Random, kind: Kind | None = None) -> Character:
    """Draw a world's character; `kind` fixes the sort of site."""
    kind = kind or rng.choice(tuple(Kind))
    unit = _unit(rng, kind)
    points, reasons = rng.randint(2, 12), rng.randint(5, 51)
    families = rng.randint(3, 21)
    family = [rng.randrange(families) for _ in range(reasons)]
    delay = unit * 10 ** rng.uniform(0.7, 1.8)
    span = delay * 10 ** rng.uniform(1.2, 2.2)
    randomised = rng.random() < 0.5 and kind is not Kind.DEPARTMENT
    clusters, size = _clusters(rng, kind)
    end = span * 2 + 50 * delay
    black_hole_share = rng.choice((0, 0.1, 0.3, 0.5))
    flaky_share = rng.choice((0, 0.1, 0.3))
    windows = []
    for _ in range(reasons):
        until = span * rng.random() * 1.2
        windows.append((until - delay * 10 ** rng.uniform(0, 1.2), until))
    changes = [0.0]
    if kind is Kind.CHANGING or rng.random() < 0.15:
        changes.append(span * rng.uniform(0.3, 0.7))
    concentration = rng.choice((0.4, 1.0, 2.0))
    return Character(
        kind=kind,
        unit=unit,
        delay=delay,
        clear=(rng.uniform(-1.6, 0.8), rng.uniform(0.2, 0.7)),
        clear_shape=rng.uniform(0.7, 2.0),
        points=points,
        owners=_owners(rng, kind, randomised),
        reasons=reasons,
        family=family,
        code=[number * 10 + rng.randrange(3) for number in family],
        reason_weights=_dirichlet(rng, [0.5] * reasons),
        regimes=[Regime(since, _cause_shares(rng, reasons, concentration)) for since in changes],
        run=unit * 10 ** rng.uniform(0.3, 1.7),
        queue=unit * 10 ** rng.uniform(-0.3, 1.3),
        clusters=clusters,
        span=span,
        healthy=rng.uniform(0.0, 0.6),
        cluster_size=size,
        most_episodes=int(10 ** rng.uniform(2.3, 3.1)),
        chance=(rng.uniform(0.3, 3.0), rng.uniform(0.3, 3.0)),
        randomised=randomised,
        most_releases=rng.randint(1, 7),
        delay_shape=rng.randrange(3),
        visible_fixes=rng.choice((0.0, 0.5, 1.0)),
        flaky_points=[rng.random() < flaky_share for _ in range(points)],
        flaky_chance=rng.uniform(0.1, 0.7),
        black_holes=[
            _black_hole(rng, delay, span) if rng.random() < black_hole_share else []
            for _ in range(points)
        ],
        black_hole_reason=rng.randrange(reasons),
        servers=[_outages(rng, delay, end) for _ in range(rng.randint(1, 3))],
        failures=rng.choice((0.0, 0.02, 0.08)),
        never_starts=rng.uniform(0.2, 0.9),
        reason_points=[
            [rng.random() < share for _ in range(points)]
            for share in (rng.uniform(0.1, 0.7) for _ in range(reasons))
        ],
        reason_windows=windows,
        point_known=rng.choice((0.5, 0.8, 1.0)),
    )


def _unit(rng: Random, kind: Kind) -> float:
    """Draw the pace: seconds in a laboratory, up to hours on a national pool."""
    if kind is Kind.LABORATORY or rng.random() < 0.35:
        return float(10 ** rng.uniform(-0.2, 0.4))
    return float(10 ** rng.uniform(-0.2, 3.5))


def _clusters(rng: Random, kind: Kind) -> tuple[int, float]:
    """Draw the number of clusters, and the mean of their exponential sizes."""
    if kind is Kind.NATIONAL:
        return rng.randint(150, 600), 10 ** rng.uniform(-0.8, 0.3)
    if kind is Kind.PRODUCTION:
        return rng.randint(30, 200), 10 ** rng.uniform(0.5, 1.6)
    if kind is Kind.DEPARTMENT:
        return rng.randint(80, 400), 10 ** rng.uniform(-0.6, 0.7)
    return rng.randint(50, 420), 10 ** rng.uniform(-0.4, 0.9)


def _owners(rng: Random, kind: Kind, randomised: bool) -> list[OwnerHabits]:
    count = {
        Kind.NATIONAL: rng.randint(10, 60),
        Kind.DEPARTMENT: rng.randint(1, 6),
    }.get(kind, rng.randint(1, 16))
    fixing = rng.random() < 0.6
    resubmitting = rng.uniform(0.2, 0.7) if kind is Kind.DEPARTMENT else rng.choice((0, 0.15, 0.4))
    return [
        OwnerHabits(
            patience=rng.randint(2, 8),
            fixes=rng.uniform(0, 0.35) if fixing and not randomised else 0.0,
            resubmits=0.0 if randomised else resubmitting * rng.random(),
            haste=rng.lognormvariate(0, 0.5),
            releases=1.0 if randomised else rng.betavariate(4, 1.2),
            sweeps=0.0 if randomised else rng.uniform(0, 0.6),
            programs=rng.randint(1, 3 if kind is Kind.DEPARTMENT else 6),
        )
        for _ in range(count)
    ]


def _cause_shares(rng: Random, reasons: int, concentration: float) -> list[list[float]]:
    """Draw for each reason how often each cause stands behind it: few causes explain most."""
    usual = dict(_USUAL_SHARES)
    usual[Cause.PERSISTENT] *= 10 ** rng.uniform(-0.7, 0.22)
    overall = _dirichlet(rng, [usual[cause] * concentration + 0.02 for cause in CAUSES])
    return [
        _dirichlet(rng, [share * sharpness + 1e-3 for share in overall])
        for sharpness in (rng.choice((1.5, 4, 10)) for _ in range(reasons))
    ]


def _black_hole(rng: Random, delay: float, span: float) -> list[Window]:
    windows: list[Window] = []
    time = 0.0
    while time < span * 2 and len(windows) < 60:
        time += rng.expovariate(1 / (delay * 10 ** rng.uniform(0.5, 1.3)))
        windows.append((time, time + delay * 10 ** rng.uniform(-0.7, 0.3)))
        time = windows[-1][1]
    return windows


def _outages(rng: Random, delay: float, end: float) -> list[Window]:
    """Draw when a server is down."""
    up, down = delay * 10 ** rng.uniform(0.2, 1.5), delay * 10 ** rng.uniform(-0.6, 0.9)
    windows: list[Window] = []
    time = -rng.expovariate(1 / up)
    while time < end and len(windows) < 400:
        time += rng.expovariate(1 / up)
        until = time + rng.expovariate(1 / down)
        windows.append((time, until))
        time = until
    return windows


def _dirichlet(rng: Random, weights: list[float]) -> list[float]:
    drawn = [rng.gammavariate(weight, 1.0) + 1e-12 for weight in weights]
    total = sum(drawn)
    return [value / total for value in drawn]
