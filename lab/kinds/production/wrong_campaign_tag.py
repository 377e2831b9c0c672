"""The campaign was configured with a tag that does not exist. Every job stops at once."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import fail_while, state
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "configuration"
WEIGHT = 0.7


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    wrong = state(batch, f"tag/{batch.number}")
    wrong.touch()
    batch.begin.append(fail_while(batch, wrong))
    return Cause(
        "the campaign's tag does not exist",
        transient=False,
        fix=Fix(mend=lambda: wrong.unlink(missing_ok=True)),
    )
