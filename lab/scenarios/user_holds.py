"""The owner holds the batch to wait for something, and plans to release it.

Nothing is wrong; only the owner knows when to release it.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "people"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.seconds = batch.rng.uniform(6, 12)
    why = batch.rng.choice(("waiting for new calibration", "to be checked", ""))

    def hold(cluster: int) -> None:
        words = ("-reason", why) if why else ()
        world.at(
            world.after(2, 12, batch.rng),
            lambda: world.queue_command(batch.owner, "condor_hold", *words, str(cluster)),
        )

    return Cause("the owner held it", transient=True, on_submit=hold)
