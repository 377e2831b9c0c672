"""The owner tidied up while the job was idle: the directory of its output is gone.

Some make it again, and the log does not show that. Some never notice.
"""

from __future__ import annotations

import shutil
from functools import partial

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 1.1


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    folder = batch.rng.choice(("out", "done", "res"))
    batch.path(folder).mkdir(exist_ok=True)
    batch.stdout = f"{folder}/$(Process).out"

    def tidy_up(cluster: int) -> None:
        shutil.rmtree(batch.path(folder), ignore_errors=True)

    make_again = partial(batch.path(folder).mkdir, exist_ok=True)
    ends = None
    if batch.rng.random() < 0.3:
        ends = batch.lasts(low=30, typical=160)
        world.at(ends, make_again)
    return Cause(
        "the directory of the output is gone",
        transient=ends is not None,
        ends=ends,
        fix=Fix(mend=make_again),
        on_submit=tidy_up,
    )
