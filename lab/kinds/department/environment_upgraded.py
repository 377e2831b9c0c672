"""Somebody upgraded the shared Python environment, and one package no longer imports.

It stays so until its keeper rebuilds the environment.
"""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import fail_in_outage
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "software"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    return fail_in_outage(
        batch,
        f"environment/{batch.project}",
        "a package of the shared environment does not import",
        lambda: batch.clears(500, 1.2),
    )
