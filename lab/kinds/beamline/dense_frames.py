"""Some runs meet dense frames and need more memory than the job asks for."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "memory"
WEIGHT = 0.7


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.procs = min(batch.procs, 6)
    needed = int(batch.submit["request_memory"]) + batch.rng.randrange(40, 90)
    batch.work.append(f"chance 50 && {batch.use_memory(needed, 14)}")
    return Cause(
        f"some runs need {needed} MB",
        transient=True,
        fix=Fix(edits={"RequestMemory": str(2 * needed)}),
    )
