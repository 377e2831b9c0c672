"""The starter dies; the job is rescheduled, not held.

This costs time and appears as a lost connection in the log. Later holds have other causes.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "host"
WEIGHT = 0.5


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.procs = 1
    batch.seconds = batch.rng.uniform(8, 12)
    batch.hold_on_exit()
    batch.work.append(f"chance 60 && {{ {batch.failing_exit()}; }}")

    def kill(cluster: int) -> None:
        world.at(world.after(4, 8, batch.rng), lambda: world.starters_to_kill.append(cluster))

    return Cause(
        "the starter was killed, and the program fails by chance", transient=True, on_submit=kill
    )
