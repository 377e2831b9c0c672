"""Two execution points are slow, and the limit on the execution time ends the jobs there."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "duration"
WEIGHT = 0.9


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.submit["allowed_execute_duration"] = str(batch.rng.choice((9, 12)))
    batch.seconds = min(batch.seconds, 4.0)
    slow = batch.rng.sample(world.points, k=min(2, len(world.points)))
    batch.begin.append(batch.on_points(slow, "sleep 30"))
    names = " and ".join(point.name for point in slow)
    return Cause(f"slow on {names}", transient=True)
