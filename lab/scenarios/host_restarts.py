"""The starter of the job is killed again and again, and site policy holds the job.

The count is never reset, so the policy holds the job again whenever it is idle.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "host"
WEIGHT = 0.6


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.procs = 1
    batch.seconds = batch.rng.uniform(10, 15)
    limit = 2
    batch.submit["My.RestartLimit"] = str(limit)  # the policy of the pool reads this

    def evict(cluster: int) -> None:
        for nth in range(limit + 1):
            world.at(
                world.after(5 + 12 * nth, 9 + 12 * nth, batch.rng),
                lambda: world.queue_command("condor", "condor_vacate_job", "-fast", str(cluster)),
            )

    return Cause(
        "too many restarts for the site policy",
        transient=False,
        fix=Fix(edits={"RestartLimit": "99"}),
        on_submit=evict,
    )
