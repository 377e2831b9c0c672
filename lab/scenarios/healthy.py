"""Nothing is wrong with the job itself.

Most jobs of a real access point are like this. They are held only when they pass through
an execution point in trouble.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "none"
WEIGHT = 10.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    if batch.rng.random() < 0.15:
        batch.run_installed()
        world.install(world.points, batch)
    return Cause("none", transient=True)
