"""A crashed session holds the lock of the results database; the program gives up on it."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import fail_in_outage
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "database"
WEIGHT = 0.9


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    return fail_in_outage(
        batch,
        f"database/{batch.owner}",
        "the results database is locked by a dead session",
        lambda: batch.clears(120, 1.5),
    )
