"""The software mount of some points serves an old catalogue, and the release is not in it."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import fail_while, some_points, state
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "host"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    points, ends = some_points(batch, 0.5), batch.clears(100, 1.1)
    stale = state(batch, f"stale/{batch.number}")
    stale.touch()
    world.at(ends, lambda: stale.unlink(missing_ok=True))
    batch.work.append(batch.on_points(points, fail_while(batch, stale)))
    return Cause("the software mount of some points is stale", transient=True, ends=ends)
