"""The mesh has folded cells, and the solver stops at the first of them in every run.

Some owners repair the mesh and release the job. The log does not show the repair.
"""

from __future__ import annotations

from condor_advice.lab.kinds.workshop._desk import spoil_input, stop
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "program"
WEIGHT = 1.6


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    check, repair = spoil_input(batch, stop(batch))
    batch.work.insert(0, check)
    return Cause("the mesh has folded cells", transient=False, fix=Fix(mend=repair))
