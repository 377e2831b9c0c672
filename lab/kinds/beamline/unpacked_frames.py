"""Frames that compress badly fill more disk than the job asks for, in some runs."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "disk"
WEIGHT = 0.6


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.procs = min(batch.procs, 6)
    written = int(batch.submit["request_disk"].rstrip("M")) + batch.rng.randrange(4, 12)
    fill = f"head -c {written}000000 /dev/zero > raw.tmp; sleep 14; rm raw.tmp"
    batch.work.append(f"chance 50 && {{ {fill}; }}")
    return Cause(
        f"some runs write {written} MB",
        transient=True,
        fix=Fix(edits={"RequestDisk": str(3 * 1024 * written)}),
    )
