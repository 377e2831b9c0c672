"""The inputs together are larger than the owner allowed with max_transfer_input_mb.

The job is held at every match; only a larger limit helps.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 0.6


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name = batch.input_name()
    batch.write(name, size=2_600_000)
    batch.inputs.append(name)
    batch.submit["max_transfer_input_mb"] = "1"
    return Cause(
        "inputs exceed the transfer limit",
        transient=False,
        fix=Fix(edits={"MaxTransferInputMB": "20"}),
    )
