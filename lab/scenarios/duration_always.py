"""The job runs longer than its allowed_execute_duration, always."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "time"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.submit["allowed_execute_duration"] = str(batch.rng.choice((4, 5, 6)))
    batch.seconds = batch.rng.uniform(14, 22)
    return Cause(
        "the job is longer than allowed",
        transient=False,
        fix=Fix(edits={"AllowedExecuteDuration": "60"}),
    )
