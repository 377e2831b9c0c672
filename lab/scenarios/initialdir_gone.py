"""The initial directory of the job has been removed.

A clean-up script was too eager, or a file system is not mounted for a while.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    initial = batch.use_initialdir()
    comes_back = batch.rng.random() < 0.6
    ends = batch.lasts(typical=50) if comes_back else None

    def take_away(cluster: int) -> None:
        initial.rmdir()
        if ends is not None:
            world.at(ends, lambda: initial.mkdir(exist_ok=True))

    return Cause(
        "the initial directory is not mounted"
        if comes_back
        else "the initial directory was removed",
        transient=comes_back,
        ends=ends,
        fix=Fix(mend=lambda: initial.mkdir(exist_ok=True)),
        on_submit=take_away,
    )
