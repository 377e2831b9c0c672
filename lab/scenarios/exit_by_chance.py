"""The program fails by chance: a race between its threads."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "exit"
WEIGHT = 1.5


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.hold_on_exit()
    batch.work.append(f"chance {batch.rng.choice((30, 50, 70))} && {{ {batch.failing_exit()}; }}")
    return Cause("the program fails by chance", transient=True)
