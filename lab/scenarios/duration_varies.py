"""The run time varies by chance around the allowed execution time."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "time"
WEIGHT = 1.3


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.submit["allowed_execute_duration"] = "6"
    batch.seconds = 1.0
    batch.work.append(f"chance {batch.rng.choice((35, 55, 75))} && sleep 15")
    return Cause(
        "some runs are longer than allowed",
        transient=True,
        fix=Fix(edits={"AllowedExecuteDuration": "60"}),
    )
