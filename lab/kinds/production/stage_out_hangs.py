"""At times the stage-out hangs, and the campaign's own periodic_hold stops the run."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "policy"
WEIGHT = 0.9


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.submit["periodic_hold"] = "JobStatus == 2 && time() - JobCurrentStartDate > 14"
    batch.end.append(f"chance {batch.rng.choice((30, 45, 60))} && sleep 60")
    return Cause("the stage-out hangs at times", transient=True)
