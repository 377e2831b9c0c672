"""The storage element takes no uploads for a while: it drains, or its disk pool is full."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "upload"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name = batch.data()
    batch.outputs = [name]
    path = world.publish(name)
    ends = world.outage(f"storage/{batch.rng.randrange(2)}", lambda: batch.clears(60, 0.9))
    world.server.add_fault(path, batch.rng.choice((503, 507)), until=ends)
    batch.submit["transfer_output_remaps"] = f'"{name}={world.server.url(path)}"'
    return Cause("the storage element refuses uploads", transient=True, ends=ends)
