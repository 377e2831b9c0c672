"""The directory for standard output does not exist any more at the access point.

It was cleaned away while the job waited; now and then its owner restores it.
"""

from __future__ import annotations

from condor_advice.lab.world import Batch, Cause, Fix, World

FAMILY = "output"
WEIGHT = 1.0


def set_up(batch: Batch, world: World) -> Cause:
    directory = batch.path("out")
    batch.stdout = "out/$(Process).out"
    batch.spool = False
    restored = batch.rng.random() < 0.6
    ends = batch.lasts() if restored else None

    def take_away(cluster: int) -> None:
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
        if ends is not None:
            world.at(ends, lambda: directory.mkdir(exist_ok=True))

    return Cause("the output directory is away" if restored else "the output directory is gone",
                 transient=restored, ends=ends,
                 fix=Fix(mend=lambda: directory.mkdir(exist_ok=True)), on_submit=take_away)
