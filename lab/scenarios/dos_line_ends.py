"""The script was edited on Windows: its first line ends in a carriage return."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    path = batch.path(batch.program)

    def edit(cluster: int) -> None:
        # condor_submit would refuse it; what is edited afterwards it does not see.
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))

    def mend() -> None:
        path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n"))

    return Cause(
        "the script has DOS line ends", transient=False, fix=Fix(mend=mend), on_submit=edit
    )
