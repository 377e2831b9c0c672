"""The program crashes on execution points that lack an instruction it was built with."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "exit"
WEIGHT = 1.7


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    old = batch.rng.sample(world.points, k=max(1, len(world.points) // 2))
    batch.hold_on_exit()
    batch.work.append(batch.on_points(old, batch.failing_exit()))
    return Cause("the program crashes on some execution points", transient=True)
