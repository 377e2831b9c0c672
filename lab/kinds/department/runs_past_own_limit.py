"""The owner's own periodic_hold stops runs that hang on a file lock; the lock outlives them."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import shared_condition
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "policy"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    condition, ends, fix = shared_condition(
        batch, f"lock/{batch.owner}/{batch.project}", lambda: batch.clears(300, 1.4)
    )
    batch.submit["periodic_hold"] = "JobStatus == 2 && time() - JobCurrentStartDate > 12"
    batch.work.append(f"while [ -e {condition} ]; do sleep 1; done")
    return Cause("a file lock is never given back", transient=True, ends=ends, fix=fix)
