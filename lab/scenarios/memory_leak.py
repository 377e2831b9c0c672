"""Memory leaks slowly: short runs get through, long ones do not."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "memory"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    request = int(batch.submit["request_memory"])
    leak = batch.python(
        "import os, time\n"
        "steps = 6 + os.urandom(1)[0] % 12\n"
        "b = []\n"
        "for _ in range(steps):\n"
        f"    b.append(b'x' * {request * 110_000})\n"
        "    time.sleep(1)"
    )
    batch.work.append(leak)
    return Cause(
        "a leak: long runs outgrow the request",
        transient=True,
        fix=Fix(edits={"RequestMemory": str(request * 2 + 48)}),
    )
