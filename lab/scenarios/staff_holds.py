"""Staff hold the batch because of its load, and release it later.

If its owner releases it too early, they hold it again.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "people"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.seconds = batch.rng.uniform(9, 14)
    ends = batch.lasts(typical=50)
    why = batch.rng.choice(
        (
            "load on the file server, please contact us",
            "too many open files",
            "held by the administrators",
        )
    )

    def hold(cluster: int) -> None:
        when = world.after(3, 9, batch.rng)
        while when < ends:
            world.at(
                when,
                lambda: world.queue_command(
                    "condor", "condor_hold", "-reason", why, "-subcode", "77", str(cluster)
                ),
            )
            when += world.pace * 12
        if batch.rng.random() < 0.5:
            world.at(
                ends + 2, lambda: world.queue_command("condor", "condor_release", str(cluster))
            )

    return Cause("staff held it", transient=True, ends=ends, on_submit=hold)
