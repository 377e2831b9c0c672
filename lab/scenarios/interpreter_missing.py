"""The script names an interpreter that exists nowhere."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    batch.shebang = f"#!{world.root}/soft/{batch.number:04d}/bin/sh"
    path = batch.path(batch.program)

    def mend() -> None:
        path.write_text(path.read_text().replace(batch.shebang, "#!/bin/sh", 1))

    return Cause("the interpreter does not exist", transient=False, fix=Fix(mend=mend))
