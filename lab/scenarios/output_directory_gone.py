"""The directory for standard output has become a file at the access point.

Somebody packed the results into an archive of the same name. HTCondor creates a missing
directory, but not where a file is.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    directory = batch.path("out")
    batch.stdout = "out/$(Process).out"
    batch.spool = False
    restored = batch.rng.random() < 0.6
    ends = batch.lasts() if restored else None

    def restore() -> None:
        if directory.is_file():
            directory.unlink()
            directory.mkdir()

    def take_away(cluster: int) -> None:
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
        batch.write(directory.name)
        if ends is not None:
            world.at(ends, restore)

    return Cause(
        "the output directory is a file for a while"
        if restored
        else "the output directory is a file",
        transient=restored,
        ends=ends,
        fix=Fix(mend=restore),
        on_submit=take_away,
    )
