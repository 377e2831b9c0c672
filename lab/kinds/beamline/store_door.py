"""The store's door is overloaded in waves. After the move the old door is shut for good.

Jobs from before the move, released after it, fail for good as well. The fix after the move is
to name the new door.
"""

from __future__ import annotations

from condor_advice.lab.kinds.beamline._scan import has_moved
from condor_advice.lab.outages import next_end, plan_outages
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "url"
WEIGHT = 1.6


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path, waves = world.publish(batch.data()), plan_outages(world, "door", (10, 50), (25, 80))
    for wave in waves:
        world.server.add_fault(path, 503, since=wave.since, until=wave.until)
    world.server.add_fault(path, 404, since=world.changes)
    kept = list(batch.inputs)
    batch.inputs.append(world.server.url(path))
    if not has_moved(world):
        return Cause("the store's door is overloaded", True, ends=next_end(world, waves))
    wanted = batch.file_list([*kept, world.server.url(world.publish(batch.data()))])
    return Cause(
        "the old store's door is shut",
        transient=False,
        fix=Fix(edits={"TransferInput": f'"{wanted}"'}),
    )
