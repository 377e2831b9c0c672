"""Nothing is wrong with this part of the campaign."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "none"
WEIGHT = 6.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    return Cause("none", transient=True)
