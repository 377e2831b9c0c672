"""The input of some jobs has a record that the program cannot read. It never will."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import PROC
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "data"
WEIGHT = 1.3


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    last = batch.rng.randrange(1, 3)
    batch.work.append(f"[ $(( {PROC} % 3 )) -lt {last} ] && {{ {batch.failing_exit()}; }}")
    return Cause("a record of the input is corrupt", transient=False)
