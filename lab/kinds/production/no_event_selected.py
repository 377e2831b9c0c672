"""With an unlucky seed no event passes the selection, and the output is not written."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name = batch.data()
    batch.outputs, batch.opens_early = [name], False
    batch.end.append(f"chance {batch.rng.choice((35, 50, 70))} && rm {name}")
    return Cause("no event passed the selection", transient=True)
