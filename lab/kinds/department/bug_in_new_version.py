"""The owner changed the program yesterday, and it fails on every input until they mend it."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import fail_while, state
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "software"
WEIGHT = 1.3


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    bug = state(batch, f"bug/{batch.number}")
    bug.touch()
    batch.work.append(fail_while(batch, bug))
    return Cause(
        "a bug in the program", transient=False, fix=Fix(mend=lambda: bug.unlink(missing_ok=True))
    )
