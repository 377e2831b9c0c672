"""The nodes of a DAG fail by chance and are held on exit."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "dag"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.make_dag()
    batch.hold_on_exit()
    batch.work.append(f"chance {batch.rng.choice((30, 50))} && {{ {batch.failing_exit()}; }}")
    return Cause("the nodes fail by chance", transient=True)
