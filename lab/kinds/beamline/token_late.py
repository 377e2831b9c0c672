"""The new store wants a token, which arrives late. Before the move nobody needs one."""

from __future__ import annotations

from condor_advice.lab.kinds.beamline._scan import has_moved
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "url"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path = world.publish(batch.data())
    batch.inputs.append(world.server.url(path))
    if not has_moved(world):
        return Cause("none", transient=True)
    ends = batch.clears(median=70, spread=1.0)
    world.server.add_fault(path, 403, until=ends)
    return Cause("the store does not know the token yet", transient=True, ends=ends)
