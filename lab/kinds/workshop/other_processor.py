"""The executable was built for another processor, so no desk can start it."""

from __future__ import annotations

import os

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 0.9

_ELF_HEADER = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00"  # 64-bit Arm


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    batch.binary = _ELF_HEADER + os.urandom(batch.rng.randrange(2000, 9000))

    def rebuild() -> None:
        batch.binary = None
        batch.write_program()

    return Cause("built for another processor", transient=False, fix=Fix(mend=rebuild))
