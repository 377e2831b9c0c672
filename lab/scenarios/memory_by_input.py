"""The memory a run needs depends on its data, which is drawn anew for each run.

Under a policy that sees the usage of the previous run, even a small run is held at once.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "memory"
WEIGHT = 1.5


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    request = int(batch.submit["request_memory"])
    need = int(request * batch.rng.uniform(1.25, 1.9)) + 10
    chance = batch.rng.choice((30, 50, 70))
    batch.work.append(f"chance {chance} && {batch.use_memory(need, seconds=14)}")
    return Cause(
        "some runs need more memory than requested",
        transient=True,
        fix=Fix(edits={"RequestMemory": str(need + 48)}),
    )
