"""The input exists, but the submit description names another directory.

A typing error: editing TransferInput fixes it, waiting does not.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    name = batch.data()
    right, wrong = batch.rng.sample(("data", "store", "in"), k=2)
    batch.write(f"{right}/{name}")
    edited = batch.file_list([*batch.inputs, f"{right}/{name}"])
    batch.inputs.append(f"{wrong}/{name}")
    return Cause(
        "the path of an input file is wrong",
        transient=False,
        fix=Fix(edits={"TransferInput": f'"{edited}"'}),
    )
