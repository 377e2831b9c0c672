"""A policy of the access point holds the jobs of a project for some time.

SYSTEM_PERIODIC_HOLD is true while the project is over its share; SYSTEM_PERIODIC_RELEASE
releases the jobs some time later, whether it still is or not.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "people"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.seconds = batch.rng.uniform(8, 12)
    over = [window for window in world.over_share if window.until > world.clock() + 10]
    if not over:
        return Cause("none", transient=True)
    window = min(over, key=lambda window: window.since)
    batch.project = window.point
    return Cause("the project is over its share", transient=True, ends=window.until)
