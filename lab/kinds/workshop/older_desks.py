"""The program uses instructions that only the newest desk has. On all others it is killed."""

from __future__ import annotations

from condor_advice.lab.kinds.workshop._desk import hold_failures
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "host"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    hold_failures(batch)
    newest = batch.rng.choice(world.points)
    older = [point for point in world.points if point is not newest]
    batch.begin.append(batch.on_points(older, "kill -ILL $$; sleep 1"))
    return Cause(f"only {newest.name} has the instructions", transient=True)
