"""A technician holds jobs on the desks being serviced, again and again, until the work is done."""

from __future__ import annotations

from functools import partial

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "user"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.seconds = batch.rng.uniform(9, 14)
    ends = batch.lasts(low=40, typical=150)

    def hold_until_done(cluster: int) -> None:
        when = world.after(2, 6, batch.rng)
        while when < ends:
            world.at(when, partial(world.queue_command, "technician", "condor_hold", str(cluster)))
            when += batch.rng.uniform(6, 9)

    return Cause("a technician is at work", transient=True, ends=ends, on_submit=hold_until_done)
