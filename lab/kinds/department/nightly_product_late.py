"""Another group's nightly product is late; the job's input is missing until it arrives."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import arrive_later
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name, ends = batch.input_name(), batch.clears(350, 1.3)
    batch.inputs.append(name)
    fix = arrive_later(batch, name, ends)
    return Cause("the nightly product is late", transient=True, ends=ends, fix=fix)
