"""The production manager pauses the campaign, and holds what is released before its end."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "staff"
WEIGHT = 0.7


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    ends = batch.clears(50, 0.8)
    batch.seconds = max(batch.seconds, 8.0)

    def pause(cluster: int) -> None:
        world.queue_command("manager", "condor_hold", "-reason", "campaign paused", str(cluster))

    def plan(cluster: int) -> None:
        when = world.clock() + world.pace * batch.rng.uniform(2, 6)
        while when < ends:
            world.at(when, lambda: pause(cluster))
            when += world.pace * batch.rng.uniform(8, 16)

    return Cause("the campaign is paused", transient=True, ends=ends, on_submit=plan)
