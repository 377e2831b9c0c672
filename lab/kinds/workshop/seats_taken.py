"""All seats of the solver's licence are taken, for minutes at a time.

Every job that needs a seat then stops, whoever owns it, and all clear together.
"""

from __future__ import annotations

from condor_advice.lab.kinds.workshop._desk import stop
from condor_advice.lab.outages import during, next_end, plan_outages
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "licence"
WEIGHT = 1.3


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    taken = plan_outages(world, "seats", up=(15, 60), down=(80, 260))
    batch.begin.append(during(taken, stop(batch)))
    return Cause("no seat is free", transient=True, ends=next_end(world, taken))
