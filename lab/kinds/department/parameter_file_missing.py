"""The job list names a parameter file that nobody has written: next month's, or a typing error."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name = batch.input_name()
    batch.path(name).parent.mkdir(parents=True, exist_ok=True)
    batch.inputs.append(name)
    return Cause(
        "a parameter file does not exist", transient=False, fix=Fix(mend=lambda: batch.write(name))
    )
