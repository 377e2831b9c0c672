"""Outages that all batches of a recording share: of a licence server, a store, a shift.

A scenario's own cause belongs to its batch alone. An outage belongs to the site: every batch
that needs the service at that time is held, and all of them clear together.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from condor_advice.lab.world import LabWorld

_HORIZON_SECONDS = 7200.0


@dataclass(frozen=True, slots=True)
class Outage:
    """A period, in Unix times."""

    since: float
    until: float


def plan_outages(
    world: LabWorld, service: str, up: tuple[float, float], down: tuple[float, float]
) -> list[Outage]:
    """Return the outages of a service from the start of the recording on.

    `up` and `down` are the shortest and longest seconds between outages and in one, at pace 1.
    The same seed and service always give the same outages, so scenarios need not share state.
    """
    rng = Random(f"{world.seed}/outages/{service}")
    outages = []
    when = world.began
    while when < world.began + _HORIZON_SECONDS:
        since = when + world.pace * rng.uniform(*up)
        when = since + world.pace * rng.uniform(*down)
        outages.append(Outage(since, when))
    return outages


def next_end(world: LabWorld, outages: list[Outage]) -> float | None:
    """Return when the current outage ends, or else the next one."""
    return next((outage.until for outage in outages if world.clock() < outage.until), None)


def during(outages: list[Outage], command: str) -> str:
    """Return shell code that runs a command while one of the outages lasts."""
    periods = " || ".join(
        f"[ $now -ge {outage.since:.0f} -a $now -lt {outage.until:.0f} ]" for outage in outages
    )
    return f"now=$(date +%s); if {periods}; then {command}; fi"
