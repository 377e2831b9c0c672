"""The file server answers 503 for a while.

A release during the outage is futile, one after it succeeds; the hold reason is the same.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "url"
WEIGHT = 2.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path, ends = world.publish(batch.data()), batch.lasts()
    world.server.add_fault(path, 503, until=ends)
    batch.inputs.append(world.server.url(path))
    return Cause("the file server is down", transient=True, ends=ends)
