"""The allowed duration of the whole job, transfers included, is too short."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "time"
WEIGHT = 0.6


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.submit["allowed_job_duration"] = "4"
    batch.seconds = batch.rng.uniform(2, 16)
    return Cause(
        "the job with its transfers is longer than allowed",
        transient=False,
        fix=Fix(edits={"AllowedJobDuration": "90"}),
    )
