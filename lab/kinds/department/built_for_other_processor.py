"""The program was built on a newer workstation; on the older ones it is no program at all."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import some_points
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    programs = world.install(world.points, batch)
    points = {point.name for point in some_points(batch, 0.7)}
    for point, program in zip(world.points, programs, strict=True):
        if point.name in points:
            program.write_bytes(
                b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00" + bytes(200)
            )
    batch.run_installed()
    return Cause("the program is for another processor on some points", transient=True)
