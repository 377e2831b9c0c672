"""A black hole: an execution point that ends every job at once with an error.

It is always free, so it attracts job after job; they would have run elsewhere.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "host"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.procs = batch.rng.randrange(4, 9)
    batch.hold_on_exit()
    return batch.trouble_a_point("exit", "{point} fails every job")
