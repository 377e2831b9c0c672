"""Another job has filled the scratch disk of a point; transfers to it fail until it is cleaned."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "host"
WEIGHT = 0.6


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    return batch.trouble_a_point("scratch", "the scratch disk of {point} is full")
