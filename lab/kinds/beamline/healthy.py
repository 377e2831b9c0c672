"""Nothing is wrong with the jobs; a hutch's machine can still fail them."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "none"
WEIGHT = 2.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    return Cause("none", transient=True)
