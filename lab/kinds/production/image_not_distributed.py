"""The container image has not reached some points; there the job's program does not exist."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import some_points
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "image"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    lacking = {point.name for point in some_points(batch, 0.5)}
    world.install([point for point in world.points if point.name not in lacking], batch)
    ends = batch.clears(90, 1.0)
    world.at(ends, lambda: world.install([p for p in world.points if p.name in lacking], batch))
    batch.run_installed()
    return Cause("the image is missing on some points", transient=True, ends=ends)
