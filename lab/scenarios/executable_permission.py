"""The program on the execution points is not executable until staff fix it."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.run_installed()
    programs = world.install(world.points, batch)

    def permit(mode: int = 0o755) -> None:
        for program in programs:
            program.chmod(mode)

    permit(0o644)
    if batch.rng.random() < 0.4:
        return Cause("the program may not be executed", transient=False)
    ends = batch.lasts()
    world.at(ends, permit)
    return Cause("the program may not be executed for a while", transient=True, ends=ends)
