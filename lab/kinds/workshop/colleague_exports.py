"""The job waits for a file that a colleague exports by hand: late, or never."""

from __future__ import annotations

from functools import partial

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.3


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    name = batch.input_name()
    batch.inputs.append(name)
    export = partial(batch.write, name)
    if batch.rng.random() < 0.6:
        return Cause("a colleague never exports the input", transient=False, fix=Fix(mend=export))
    ends = batch.lasts(low=60, typical=240)
    world.at(ends, export)
    return Cause(
        "a colleague exports the input later", transient=True, ends=ends, fix=Fix(mend=export)
    )
