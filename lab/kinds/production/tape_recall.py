"""The file is on tape: the server answers 404 until the robot has staged it."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "url"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path, ends = world.publish(batch.data()), batch.clears(40, 1.3)
    world.server.add_fault(path, 404, until=ends)
    batch.inputs.append(world.server.url(path))
    return Cause("the file is not staged from tape yet", transient=True, ends=ends)
