"""The program is installed on one execution point after another while jobs already want it.

Before the move the rollout takes seconds per point, after it minutes.
"""

from __future__ import annotations

from functools import partial

from condor_advice.lab.kinds.beamline._scan import has_moved
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 0.9


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.run_installed()
    typical = 70 if has_moved(world) else 12
    points, when = batch.rng.sample(world.points, k=len(world.points)), world.clock()
    world.install(points[:2], batch)
    for point in points[2:]:
        when += world.pace * batch.rng.expovariate(1 / typical)
        world.at(when, partial(world.install, [point], batch))
    return Cause("the program is not on every execution point yet", transient=True, ends=when)
