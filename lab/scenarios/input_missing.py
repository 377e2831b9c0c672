"""An input file was never there.

The owner forgot to copy it to the access point. Every release is futile until somebody does.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    name = batch.input_name()
    batch.inputs.append(name)
    return Cause(
        "an input file does not exist", transient=False, fix=Fix(mend=lambda: batch.write(name))
    )
