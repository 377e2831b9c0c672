"""The site keeps its workstations for people in office hours and holds heavy jobs until evening."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "site"
WEIGHT = 0.4


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.submit["My.HeavyJob"] = "true"
    batch.seconds = max(batch.seconds, 6.0)
    return Cause("heavy jobs may not run in office hours", transient=True)
