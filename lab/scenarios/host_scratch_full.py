"""The scratch disk of an execution point is full, so inputs cannot be written.

Like a black hole it takes one job after another, and all are held.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "host"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.procs = batch.rng.randrange(3, 7)
    return batch.trouble_a_point("scratch", "scratch is full on {point}")
