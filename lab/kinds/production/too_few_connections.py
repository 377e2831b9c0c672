"""The conditions database takes few connections: jobs released together shut each other out."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import state
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "database"
WEIGHT = 1.1


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    seats, count = state(batch, f"seats/{batch.project}"), batch.rng.randrange(3, 6)
    seats.mkdir(exist_ok=True)
    batch.begin.append(
        f"seat=; for n in $(seq {count}); do "
        f"mkdir {seats}/$n 2>/dev/null && seat={seats}/$n && break; "
        f'done; [ -z "$seat" ] && {{ find {seats} -mindepth 1 -mmin +1 -delete; '
        f"{batch.failing_exit()}; }}; trap 'rmdir $seat' EXIT"
    )
    batch.seconds = max(batch.seconds, 4.0)
    return Cause("the database has too few connections", transient=True)
