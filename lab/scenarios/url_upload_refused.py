"""The output goes to a server whose storage is full, or that is closed for writing."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    name, ends = batch.data(), batch.lasts()
    path = world.publish(name)
    world.server.add_fault(path, batch.rng.choice((503, 507)), until=ends)
    batch.outputs.append(name)
    batch.submit["transfer_output_remaps"] = f'"{name}={world.server.url(path)}"'
    return Cause("the output server takes no data", transient=True, ends=ends)
