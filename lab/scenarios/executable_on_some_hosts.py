"""The program is installed on some execution points only.

The same job succeeds where it is and is held where it is not.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 2.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.run_installed()
    world.install([point for point in world.points if point.has_software], batch)
    return Cause("some execution points do not have the program", transient=True)
