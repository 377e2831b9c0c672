"""The run starts from a random state and diverges from most of them."""

from __future__ import annotations

from condor_advice.lab.kinds.workshop._desk import stop
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "program"
WEIGHT = 1.3


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.work.append(f"chance {batch.rng.choice((70, 80, 90))} && {{ {stop(batch)}; }}")
    return Cause("diverges from most random states", transient=True)
