"""The job writes an animation that does not fit into the disk it asked for, in every run."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "disk"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    asked = int(batch.submit["request_disk"].rstrip("M"))
    written = asked + batch.rng.randrange(6, 20)
    batch.work.append(f"head -c {written}000000 /dev/zero > frames.tmp; sleep 14; rm frames.tmp")
    return Cause(
        f"writes {written} MB",
        transient=False,
        fix=Fix(edits={"RequestDisk": str(3 * 1024 * written)}),
    )
