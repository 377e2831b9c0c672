"""The program writes far more than its owner's own limit on output lets through."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 0.6


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name = batch.outputs[0] if batch.outputs else batch.data()
    batch.outputs = [name]
    batch.submit["max_transfer_output_mb"] = "1"
    batch.end.append(f"head -c 2500000 /dev/zero > {name}")
    return Cause(
        "the output is above max_transfer_output_mb",
        transient=False,
        fix=Fix(edits={"MaxTransferOutputMB": "20"}),
    )
