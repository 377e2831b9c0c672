"""The owner submits on hold and releases when ready: no hold event, only a release."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "people"
WEIGHT = 0.7


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False  # condor_submit does not allow both
    batch.submit["hold"] = "True"
    return Cause("submitted on hold", transient=True)
