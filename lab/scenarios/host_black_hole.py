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
    able = world.points_with("exit")
    if not able:
        return Cause("none", transient=True)
    point, ends = batch.rng.choice(able), batch.lasts(typical=45)
    world.trouble(point, "exit", until=ends)
    return Cause(f"{point.name} fails every job", transient=True, ends=ends)
