"""The executable is not at the access point: a build that failed, or is still going on.

HTCondor words it as a missing input, because the executable is transferred like one.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    path = batch.path(batch.program)
    aside = batch.path("build.tmp")
    built = batch.rng.random() < 0.5
    ends = batch.lasts() if built else None

    def build() -> None:
        if aside.exists():
            aside.rename(path)

    def take_away(cluster: int) -> None:
        # condor_submit insists on an executable, so it goes as soon as the job is in.
        path.rename(aside)
        if ends is not None:
            world.at(ends, build)

    return Cause(
        "the executable is not built yet" if built else "the executable is gone",
        transient=built,
        ends=ends,
        fix=Fix(mend=build),
        on_submit=take_away,
    )
