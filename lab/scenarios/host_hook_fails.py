"""The hook that prepares jobs on an execution point fails.

HTCondor holds the job at once, though the job is not at fault.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "host"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.procs = batch.rng.randrange(3, 7)
    able = world.points_with("hook")
    if not able:
        return Cause("none", transient=True)
    point, ends = batch.rng.choice(able), batch.lasts(typical=45)
    world.trouble(point, "hook", until=ends)
    return Cause(f"the prepare hook fails on {point.name}", transient=True, ends=ends)
