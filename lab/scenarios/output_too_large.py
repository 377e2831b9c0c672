"""The output is larger than max_transfer_output_mb, for some data sets only."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name = batch.data()
    batch.outputs.append(name)
    batch.submit["max_transfer_output_mb"] = "1"
    fix = Fix(edits={"MaxTransferOutputMB": "20"})
    grow = f"head -c 2300000 /dev/zero >> {name}"
    if batch.rng.random() < 0.5:
        batch.end.insert(0, grow)
        return Cause("the output exceeds the transfer limit", transient=False, fix=fix)
    batch.end.insert(0, f"chance {batch.rng.choice((30, 60))} && {grow}")
    return Cause("the output sometimes exceeds the transfer limit", transient=True, fix=fix)
