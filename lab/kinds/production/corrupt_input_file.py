"""A few files of the data set are corrupt; their jobs fail until the files are copied anew."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import PROC, fail_while, state
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "data"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    corrupt, part = state(batch, f"corrupt/{batch.number}"), batch.rng.randrange(3)
    corrupt.touch()
    batch.work.append(f"[ $(( {PROC} % 3 )) -eq {part} ] && {fail_while(batch, corrupt)}")
    return Cause(
        "some files of the data set are corrupt",
        transient=False,
        fix=Fix(mend=lambda: corrupt.unlink(missing_ok=True)),
    )
