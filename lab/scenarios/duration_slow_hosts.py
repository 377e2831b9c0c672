"""The job is fast on most execution points and too slow on some."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "time"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    slow = batch.rng.sample(world.points, k=max(1, len(world.points) // 2))
    batch.submit["allowed_execute_duration"] = "6"
    batch.seconds = 1.0
    batch.work.append(batch.on_points(slow, "sleep 15"))
    return Cause(
        "some execution points are too slow",
        transient=True,
        fix=Fix(edits={"AllowedExecuteDuration": "60"}),
    )
