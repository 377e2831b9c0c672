"""Some runs write more than requested, depending on the data they draw."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "disk"
WEIGHT = 1.3


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    need = int(batch.submit["request_disk"].rstrip("M")) * 2 + 6
    chance = batch.rng.choice((30, 50, 70))
    batch.work.append(
        f"chance {chance} && {{ head -c {need}000000 /dev/zero > .w; sleep 14; rm -f .w; }}"
    )
    return Cause(
        "some runs need more disk than requested",
        transient=True,
        fix=Fix(edits={"RequestDisk": str(need * 1024 * 2)}),
    )
