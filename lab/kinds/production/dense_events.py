"""Some input files have many more events than others, and their jobs need more memory."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import PROC, edit_memory
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "memory"
WEIGHT = 0.6


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    need = batch.rng.choice((100, 130))
    batch.procs = min(batch.procs, 8)
    batch.submit["request_memory"] = "64"
    batch.work.append(f"[ $(( {PROC} % 4 )) -eq 1 ] && {batch.use_memory(need, 11)}")
    return Cause("some inputs need more memory", transient=False, fix=edit_memory(need + 60))
