"""The job uses far more memory than requested, and the access point's policy holds it first.

The hold has the code of SYSTEM_PERIODIC_HOLD, not that of the execution point.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "memory"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.submit["request_memory"] = "32"
    need = batch.rng.randrange(90, 140)
    batch.work.append(batch.use_memory(need, seconds=14))
    return Cause(
        "the job needs more memory than the site allows it",
        transient=False,
        fix=Fix(edits={"RequestMemory": str(need + 48)}),
    )
