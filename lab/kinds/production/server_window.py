"""The file server has its maintenance window; every file on it answers 503 until it is over."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "url"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path = world.publish(batch.data())
    server = batch.rng.randrange(3)
    ends = world.outage(f"server/{server}", lambda: batch.clears(45, 0.9))
    world.server.add_fault(path, 503, until=ends)
    batch.inputs.append(world.server.url(path))
    return Cause("the file server is in maintenance", transient=True, ends=ends)
