"""The job writes more to its scratch directory than it asked for, in each run."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "disk"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    need = int(batch.submit["request_disk"].rstrip("M")) * 2 + 6
    batch.work.append(f"head -c {need}000000 /dev/zero > .w; sleep 14; rm -f .w")
    return Cause(
        "the job always needs more disk than requested",
        transient=False,
        fix=Fix(edits={"RequestDisk": str(need * 1024 * 2)}),
    )
