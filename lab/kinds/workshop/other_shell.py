"""The script names an interpreter that no desk has. `env` cannot find it and exits with 127."""

from __future__ import annotations

from condor_advice.lab.kinds.workshop._desk import hold_failures
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 0.9


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    hold_failures(batch)
    batch.spool = False
    batch.shebang = "#!/usr/bin/env solversh"

    def port() -> None:
        batch.shebang = "#!/bin/sh"
        batch.write_program()

    return Cause("the interpreter is not installed", transient=False, fix=Fix(mend=port))
