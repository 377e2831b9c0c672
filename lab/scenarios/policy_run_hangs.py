"""The owner holds runs that take too long, because some hang for no known reason.

A run hangs by chance, so a release is right.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "policy"
WEIGHT = 1.3


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.submit["periodic_hold"] = "JobStatus == 2 && time() - EnteredCurrentStatus > 9"
    if batch.rng.random() < 0.5:
        batch.submit["periodic_hold_reason"] = '"ran too long"'
    batch.seconds = 1.0
    batch.work.append(f"chance {batch.rng.choice((30, 50))} && sleep 20")
    return Cause("some runs hang", transient=True)
