"""The group's share is not mounted on some workstations, and nobody has noticed."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import fail_while, some_points, state
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "host"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    points = some_points(batch, 0.7)
    ends = batch.clears(900, 0.8)
    gone = state(batch, f"unmounted/{batch.number}")
    gone.touch()
    world.at(ends, lambda: gone.unlink(missing_ok=True))
    batch.work.append(batch.on_points(points, fail_while(batch, gone)))
    return Cause("the share is not mounted on some points", transient=True, ends=ends)
