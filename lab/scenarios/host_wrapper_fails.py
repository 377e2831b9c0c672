"""The job wrapper of an execution point fails, so jobs are requeued and start again.

The owner's policy holds the job after a number of starts.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "host"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.procs = batch.rng.randrange(3, 7)
    batch.submit["periodic_hold"] = "NumShadowStarts > 2 && NumJobStarts == 0"
    batch.submit["periodic_hold_reason"] = '"started too often"'
    fix = Fix(edits={"PeriodicHold": "false"})
    return batch.trouble_a_point("wrapper", "the job wrapper fails on {point}", fix)
