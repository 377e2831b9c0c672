"""Nothing is wrong with the cluster: the analysis runs as it has for months."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "none"
WEIGHT = 7.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    return Cause("none", transient=True)
