"""The owner's own limit holds the job when the desk's user comes back in the morning.

Most runs need longer than the limit; a few converge early.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "policy"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    limit = batch.rng.choice((8, 10, 12))
    batch.submit["periodic_hold"] = f"JobStatus == 2 && time() - EnteredCurrentStatus > {limit}"
    batch.seconds = min(batch.seconds, 4.0)
    batch.work.append(f"chance 82 && sleep {limit + 20}")
    return Cause(
        "most runs are longer than the night",
        transient=True,
        fix=Fix(edits={"PeriodicHold": "false"}),
    )
