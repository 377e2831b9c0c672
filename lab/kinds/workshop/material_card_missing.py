"""The deck includes a file that the job does not transfer, so the program stops at once.

The file lies beside the deck. The fix is to add it to the job's input files.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from condor_advice.lab.kinds.workshop._desk import stop
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.3


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    name = batch.input_name()
    batch.write(name)
    batch.begin.append(f"[ -e {PurePosixPath(name).name} ] || {{ {stop(batch)}; }}")
    wanted = batch.file_list([*batch.inputs, name])
    return Cause(
        "the deck includes a file that is not transferred",
        transient=False,
        fix=Fix(edits={"TransferInput": f'"{wanted}"'}),
    )
