"""The owner's Kerberos ticket has expired, so the program cannot write to the group's share.

All clusters of this owner fail until somebody renews it, often on the next working day.
"""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import fail_in_outage
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "credential"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    return fail_in_outage(
        batch,
        f"ticket/{batch.owner}",
        "the owner's Kerberos ticket has expired",
        lambda: batch.clears(600, 1.1),
    )
