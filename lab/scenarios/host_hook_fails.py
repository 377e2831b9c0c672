"""The hook that prepares jobs on an execution point fails.

HTCondor holds the job at once, though the job is not at fault.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "host"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.procs = batch.rng.randrange(3, 7)
    return batch.trouble_a_point("hook", "the prepare hook fails on {point}")
