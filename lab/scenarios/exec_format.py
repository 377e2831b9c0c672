"""The executable was built for another kind of machine."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.binary = b"\x7fELF" + batch.rng.randbytes(batch.rng.randrange(2000, 8000))
    return Cause("the executable is for another architecture", transient=False)
