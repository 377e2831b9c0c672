"""The owner refined the grid and forgot that memory grows with it."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import edit_memory
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "memory"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    need = batch.rng.choice((90, 120, 150))
    batch.procs = min(batch.procs, 3)
    batch.submit["request_memory"] = "48"
    batch.work.append(batch.use_memory(need, 12))
    return Cause("the refined grid needs more memory", transient=False, fix=edit_memory(need + 60))
