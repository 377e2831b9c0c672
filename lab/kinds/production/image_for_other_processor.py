"""One image was built for another processor, and one point in the pool got it."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "image"
WEIGHT = 0.7


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    programs = world.install(world.points, batch)
    batch.rng.choice(programs).write_bytes(
        b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00" + bytes(200)
    )
    batch.run_installed()
    return Cause("one point has an image for another processor", transient=True)
