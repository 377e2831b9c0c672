"""The shift crew holds a cluster, once or again and again, until the beam is back."""

from __future__ import annotations

from functools import partial

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "user"
WEIGHT = 0.8


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.seconds = batch.rng.uniform(6, 10)
    ends = batch.clears(median=30, spread=0.9)

    def hold_until_beam(cluster: int) -> None:
        when = world.after(2, 6, batch.rng)
        while when < ends:
            world.at(when, partial(world.queue_command, "shiftcrew", "condor_hold", str(cluster)))
            when += batch.rng.uniform(8, 14)

    return Cause("the beam is off", transient=True, ends=ends, on_submit=hold_until_beam)
