"""A scan that was cut short gives no map, which the submit file names as an output."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.opens_early = False
    result = batch.data()
    batch.outputs.append(result)
    batch.end.append(f"chance {batch.rng.choice((35, 55))} || rm -f {result}")
    return Cause("some runs give no map", transient=True)
