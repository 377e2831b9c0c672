"""The sequencer makes the directory of the results after the jobs start.

Before the move it always does, within a minute. After it, it has no right to in half of the cases.
"""

from __future__ import annotations

import shutil
from functools import partial

from condor_advice.lab.kinds.beamline._scan import has_moved
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.stdout = "log/$(Process).out"
    make = partial(batch.path("log").mkdir, exist_ok=True)

    def not_yet(cluster: int) -> None:
        shutil.rmtree(batch.path("log"), ignore_errors=True)

    if has_moved(world) and batch.rng.random() < 0.5:
        return Cause(
            "the sequencer may not make the directory",
            transient=False,
            fix=Fix(mend=make),
            on_submit=not_yet,
        )
    ends = batch.clears(median=20, spread=0.7)
    world.at(ends, make)
    return Cause("the directory is made later", True, ends, Fix(mend=make), not_yet)
