"""The owner holds runs that take too long, and this data set always does."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "policy"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.submit["periodic_hold"] = "JobStatus == 2 && time() - EnteredCurrentStatus > 9"
    if batch.rng.random() < 0.5:
        batch.submit["periodic_hold_reason"] = '"ran too long"'
    batch.seconds = batch.rng.uniform(18, 24)
    return Cause(
        "the data set takes longer than the owner thought",
        transient=False,
        fix=Fix(edits={"PeriodicHold": "false"}),
    )
