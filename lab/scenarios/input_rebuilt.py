"""A directory of inputs is being rebuilt: gone now, back later.

A typical case: a data set is replaced in place while jobs start.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    directory = batch.rng.choice(("data", "store", "in"))
    name, ends = f"{directory}/{batch.data()}", batch.lasts(typical=50)
    batch.inputs.append(name)
    world.at(ends, lambda: batch.write(name))
    return Cause("a data set is being replaced", transient=True, ends=ends)
