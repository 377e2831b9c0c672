"""The owner submits while `make` still links: the executable is missing for some seconds."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    ends = batch.lasts(low=4, typical=14)

    def start_linking(cluster: int) -> None:
        batch.path(batch.program).unlink(missing_ok=True)
        world.at(ends, batch.write_program)

    return Cause("the executable is being linked", True, ends=ends, on_submit=start_linking)
