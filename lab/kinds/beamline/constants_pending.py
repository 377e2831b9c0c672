"""The program stops until the calibration constants of the run are there.

The new release gives up by chance instead: it asks only once, and the service is slow.
"""

from __future__ import annotations

from condor_advice.lab.kinds.beamline._scan import fail, has_moved
from condor_advice.lab.outages import Outage, during
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "program"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    if has_moved(world):
        batch.work.append(f"chance 55 && {{ {fail(batch)}; }}")
        return Cause("the constants come too late in some runs", transient=True)
    ends = batch.clears(median=35, spread=0.8)
    batch.begin.append(during([Outage(0, ends)], fail(batch)))
    return Cause("the constants are not there yet", transient=True, ends=ends)
