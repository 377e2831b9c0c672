"""The owner moved the results folder to an archive; jobs in the queue still want to write there."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name = batch.outputs[0] if batch.outputs else batch.data()
    batch.outputs = [name]
    batch.submit["transfer_output_remaps"] = f'"{name}=results/{name}"'
    return Cause(
        "the folder for the results is gone",
        transient=False,
        fix=Fix(mend=lambda: batch.path("results").mkdir(exist_ok=True)),
    )
