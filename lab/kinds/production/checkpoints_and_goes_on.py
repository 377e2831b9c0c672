"""The job needs more time than one run may take. It checkpoints, and the next run goes on."""

from __future__ import annotations

from condor_advice.lab.kinds.conditions import PROC, state
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "duration"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    progress, runs = state(batch, f"progress/{batch.number}/"), batch.rng.randrange(2, 4)
    progress.mkdir(parents=True, exist_ok=True)
    batch.submit["allowed_execute_duration"] = "8"
    batch.work.append(
        f"echo run >> {progress}/{PROC}; [ $(wc -l < {progress}/{PROC}) -lt {runs} ] && sleep 40"
    )
    return Cause(
        "one run is too short for the job",
        transient=True,
        fix=Fix(edits={"AllowedExecuteDuration": "90"}),
    )
