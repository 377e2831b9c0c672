"""The program has a bug that this data set always triggers."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "exit"
WEIGHT = 1.3


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.hold_on_exit()
    batch.work.append(batch.failing_exit())
    return Cause("a bug in the program", transient=False)
