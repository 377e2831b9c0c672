"""The solver stalls in most runs until the limit on its execution time ends it."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "duration"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.seconds = min(batch.seconds, 4.0)
    batch.submit["allowed_execute_duration"] = str(batch.rng.choice((9, 12)))
    batch.work.append("chance 80 && sleep 45")
    return Cause(
        "most runs stall",
        transient=True,
        fix=Fix(edits={"AllowedExecuteDuration": "90"}),
    )
