"""The department's file share has another name now, and the submit file still has the old one.

The path will never be right again. The fix is to edit the job's input files.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.4


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    right = batch.input_name()
    batch.write(right)
    kept = list(batch.inputs)
    batch.inputs.append(batch.input_name())
    wanted = batch.file_list([*kept, right])
    return Cause(
        "the input's directory has another name now",
        transient=False,
        fix=Fix(edits={"TransferInput": f'"{wanted}"'}),
    )
