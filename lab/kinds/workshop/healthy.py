"""Nothing is wrong with the job.

A desk that computes at night can still fail it.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "none"
WEIGHT = 4.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    return Cause("none", transient=True)
