"""The owner holds a job that has been evicted once, to look at it.

The expression stays true while the job is idle, so it is often held again before it runs.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "policy"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.submit["periodic_hold"] = "NumJobStarts >= 1 && JobStatus == 1"
    batch.seconds = batch.rng.uniform(9, 14)

    def evict(cluster: int) -> None:
        world.at(
            world.after(4, 12, batch.rng),
            lambda: world.queue_command(batch.owner, "condor_vacate_job", "-fast", str(cluster)),
        )

    return Cause(
        "the job was evicted and its policy does not allow a second start",
        transient=False,
        fix=Fix(edits={"PeriodicHold": "false"}),
        on_submit=evict,
    )
