"""The department's licence has run out: nobody's solver starts until it is renewed."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import fail_in_outage
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "licence"
WEIGHT = 0.6


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    return fail_in_outage(
        batch,
        "licence/solver",
        "the department's licence has expired",
        lambda: batch.clears(400, 0.8),
        fixable=False,
    )
