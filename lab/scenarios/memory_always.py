"""The job needs more memory than it requests, in every run.

Released unchanged it never succeeds; with a larger request it does.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "memory"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    request = int(batch.submit["request_memory"])
    need = int(request * batch.rng.uniform(1.25, 1.9)) + 10
    batch.work.append(batch.use_memory(need, seconds=14))
    return Cause(
        "the job always needs more memory than requested",
        transient=False,
        fix=Fix(edits={"RequestMemory": str(need + 48)}),
    )
