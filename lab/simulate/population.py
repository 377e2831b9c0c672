"""Users, execution points and clusters, and how they are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from condor_advice.lab import names
from condor_advice.lab.simulate.profile import Shape

HOUR, DAY = 3600, 86400


@dataclass(slots=True)
class User:
    """A user and their habits."""

    name: str
    weight: float
    faults: list[float]  # propensity, in the order of the profile's faults
    visit_hours: float  # mean time until they look at a hold
    release: float  # probability that a look ends in a release
    fix: float  # probability that they try a fix first
    skill: float
    automatic: float  # share of clusters with a periodic_release
    deadlines: list[float]  # they hurry in the two days before each


@dataclass(slots=True)
class Machine:
    """An execution point, which has bad hours at times."""

    name: str
    ip: str
    address: str
    old: bool  # words its hold reasons as an older HTCondor does
    bad: list[tuple[float, float]]  # sorted and disjoint

    def is_bad(self, when: float) -> bool:
        """Return whether the execution point is in its bad hours."""
        return any(since <= when < until for since, until in self.bad)


@dataclass(slots=True)
class Cluster:
    """A cluster of jobs and the fault that some of them have."""

    number: int
    user: User
    submit: int
    procs: int
    memory: int
    disk: int
    run_seconds: float
    uses_url: bool
    automatic: bool
    batch: str
    program: str
    data: str
    fault: str | None = None
    hits: int = 0  # jobs with the fault
    ends: float = math.inf  # when the fault passes
    chance: float = 0.0  # that the fault strikes again in a later run
    # Head of the usage table; see event_writer.
    tables: dict[bool, str] = field(default_factory=dict)
    factor: float = 1.5  # memory used over memory requested, when it is too much


def draw_user(
    rng: Random, rank: int, shape: Shape, weights: Sequence[float], start: int, span: float
) -> User:
    """Draw the user of this rank; rank 0 submits most."""
    name = names.OWNER_NAMES[rank % len(names.OWNER_NAMES)]
    if rank >= len(names.OWNER_NAMES):
        name += str(rank // len(names.OWNER_NAMES) + 1)
    # Every user has favourite mistakes.
    faults = [weight * rng.gammavariate(0.7, 1 / 0.7) + 1e-9 for weight in weights]
    deadline, deadlines = float(start), []
    while deadline < start + span:
        deadline += rng.uniform(10, 60) * DAY
        deadlines.append(deadline)
    return User(
        name,
        (rank + 1) ** -shape.user_exponent,
        faults,
        visit_hours=rng.lognormvariate(0.8, 0.8),
        release=rng.uniform(0.35, 0.95),
        fix=rng.uniform(0.2, 0.7),
        skill=rng.uniform(0.5, 0.95),
        automatic=rng.choice((0, 0, 0, 0, 0.1, 0.4)),
        deadlines=deadlines,
    )


def draw_machine(rng: Random, number: int, shape: Shape, start: int, span: float) -> Machine:
    """Draw an execution point; a few have bad hours."""
    name = f"e{number:04d}.example.org"
    ip = f"10.{1 + number // 60000}.{number // 250 % 240}.{number % 250 + 1}"
    address = (
        f"<{ip}:9618?addrs={ip}-9618&alias={name}&noUDP&sock=startd_{2000 + number}_"
        f"{rng.getrandbits(16):04x}>"
    )
    old = rng.random() < shape.old_wordings
    bad = rng.random() < shape.bad_execution_points
    return Machine(
        name, ip, address, old, draw_windows(rng, start, span, 6 * DAY, 1.5 * HOUR) if bad else []
    )


def draw_windows(
    rng: Random, start: float, span: float, between: float, lasting: float
) -> list[tuple[float, float]]:
    """Draw periods (since, until), sorted and disjoint, from mean gap and usual length."""
    windows, now = [], start + rng.expovariate(1 / between)
    while now < start + span:
        until = now + lasting * rng.lognormvariate(-0.5, 1)
        windows.append((now, until))
        now = until + rng.expovariate(1 / between)
    return windows


def mean_cluster_size(shape: Shape) -> float:
    """Return the mean size of the clusters drawn, by integrating the Pareto tail."""
    sizes = np.arange(2, shape.largest_cluster + 1, dtype=np.float64)
    # P(1 + Pareto >= size), up to the largest cluster.
    tail = np.where(sizes <= 2, 1.0, np.maximum(sizes - 1, 1.0) ** -shape.cluster_exponent)
    return shape.single_job_share + (1 - shape.single_job_share) * (1 + float(tail.sum()))
