"""The file is published later than the jobs start: 404 until then."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "url"
WEIGHT = 1.3


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path, ends = world.publish(batch.data()), batch.lasts()
    world.server.add_fault(path, 404, until=ends)
    batch.inputs.append(world.server.url(path))
    return Cause("the file is not published yet", transient=True, ends=ends)
