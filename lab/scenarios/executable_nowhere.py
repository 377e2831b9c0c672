"""The program is expected on the execution points and is on none of them."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.run_installed()
    return Cause(
        "the program is installed nowhere",
        transient=False,
        fix=Fix(mend=lambda: world.install(world.points, batch)),
    )
