"""The program is not there: `make clean` ran after the submission, and the build takes its time."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 0.6


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    ends = batch.clears(200, 1.6)
    program, aside = batch.path(batch.program), batch.path(f".{batch.program}.new")

    def take_away(cluster: int) -> None:
        if program.exists():
            program.rename(aside)

    def build() -> None:
        if aside.exists():
            aside.rename(program)

    world.at(ends, build)
    return Cause(
        "the program is being rebuilt",
        transient=True,
        ends=ends,
        fix=Fix(mend=build),
        on_submit=take_away,
    )
