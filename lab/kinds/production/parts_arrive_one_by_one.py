"""The step before writes its parts one by one; a job whose part is not there yet is held."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import arrive_later
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.1


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    stem, ends = batch.data(), world.clock()
    for proc in range(batch.procs):
        ends += world.pace * batch.rng.expovariate(1 / 6)
        arrive_later(batch, f"{proc}/{stem}", ends)
    batch.inputs.append(f"$(Process)/{stem}")
    return Cause("the step before has not written this part yet", transient=True, ends=ends)
