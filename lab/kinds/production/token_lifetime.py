"""The campaign's token has expired, and the server refuses it until the robot renews it.

Sometimes the robot itself is broken, and only a person helps.
"""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import state
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "credential"
WEIGHT = 0.9


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path, is_broken = world.publish(batch.data()), batch.rng.random() < 0.25
    renewed = state(batch, f"token/{batch.number}")
    ends = None if is_broken else batch.clears(50, 0.8)
    world.server.add_fault(path, 401, until=ends, unless=renewed.exists)
    batch.inputs.append(world.server.url(path))
    return Cause(
        "the token has expired", transient=not is_broken, ends=ends, fix=Fix(mend=renewed.touch)
    )
