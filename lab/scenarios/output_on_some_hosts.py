"""An output file is not written on some execution points.

A library is older there, and the program silently skips its last step.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 1.5


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name = batch.data()
    bad = batch.rng.sample(world.points, k=max(1, len(world.points) // 2))
    batch.outputs.append(name)
    batch.end.insert(0, batch.on_points(bad, f"rm -f {name}"))
    return Cause("some execution points do not write an output file", transient=True)
