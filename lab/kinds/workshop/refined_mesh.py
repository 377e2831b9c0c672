"""The refined mesh needs more memory than the submit file asks for, in every run."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "memory"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    asked = int(batch.submit["request_memory"])
    needed = asked + batch.rng.randrange(40, 110)
    batch.work.append(batch.use_memory(needed, 14))
    return Cause(
        f"needs {needed} MB of memory",
        transient=False,
        fix=Fix(edits={"RequestMemory": str(2 * needed)}),
    )
