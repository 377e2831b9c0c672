"""The time step in the arguments is too large, so every run blows up.

The fix is to edit the job's arguments.
"""

from __future__ import annotations

from condor_advice.lab import names
from condor_advice.lab.kinds.workshop._desk import stop
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "program"
WEIGHT = 1.3


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    step = batch.rng.randrange(100)
    batch.submit["arguments"] = f'"--step {step} {names.arguments(batch.rng)}"'
    batch.work.append(f'[ "$2" = {step} ] && {{ {stop(batch)}; }}')
    return Cause(
        "the time step is too large",
        transient=False,
        fix=Fix(edits={"Arguments": f'"--step {step / 10}"'}),
    )
