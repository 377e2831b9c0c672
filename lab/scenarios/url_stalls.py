"""The server stalls longer than the transfer plug-in waits.

The plug-in gives up after thirty seconds without progress. Load on the server comes and goes.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "url"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path, ends = world.publish(batch.data()), batch.lasts(low=35, typical=60)
    world.server.add_fault(path, 0, until=ends)
    batch.inputs.append(world.server.url(path))
    return Cause("the file server is too slow", transient=True, ends=ends)
