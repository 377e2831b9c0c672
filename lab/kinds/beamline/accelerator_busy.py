"""The reconstruction finds its accelerator busy in about half of the runs."""

from __future__ import annotations

from condor_advice.lab.kinds.beamline._scan import fail
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "program"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.begin.append(f"chance {batch.rng.choice((35, 50, 65))} && {{ {fail(batch)}; }}")
    return Cause("the accelerator is busy in some runs", transient=True)
