"""A licence has lapsed. The order for the new one takes most of the recording.

Nothing the owner does helps before it arrives; afterwards every release succeeds.
"""

from __future__ import annotations

from condor_advice.lab.kinds.workshop._desk import stop
from condor_advice.lab.outages import during, next_end, plan_outages
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "licence"
WEIGHT = 1.1


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    lapsed = plan_outages(world, "licence", up=(60, 120), down=(640, 760))
    batch.begin.append(during(lapsed, stop(batch)))
    return Cause("the licence has lapsed", transient=True, ends=next_end(world, lapsed))
