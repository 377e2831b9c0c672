"""The program writes its report only if it converges, which it rarely does.

The submit file names the report as an output, so every other run ends in a hold.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.opens_early = False
    report = batch.data()
    batch.outputs.append(report)
    batch.end.append(f"chance {batch.rng.choice((8, 12, 20))} || rm -f {report}")
    return Cause("the report is written only if the run converges", transient=True)
