"""The input lies on tape. The recall brings it back for all jobs at once, sometimes very late."""

from __future__ import annotations

from functools import partial

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name, ends = batch.input_name(), batch.clears(median=50, spread=1.2)
    batch.inputs.append(name)
    world.at(ends, partial(batch.write, name))
    return Cause("the input is on tape", transient=True, ends=ends)
