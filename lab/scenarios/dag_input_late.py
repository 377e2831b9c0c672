"""A node of a DAG waits for a file that another group delivers late, or never.

The node is held and the DAG waits with it; DAGMan itself does nothing about a hold.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "dag"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.make_dag()
    name = batch.input_name()
    batch.inputs.append(name)
    if batch.rng.random() < 0.35:
        return Cause(
            "an input file of a node does not exist",
            transient=False,
            fix=Fix(mend=lambda: batch.write(name)),
        )
    ends = batch.lasts()
    world.at(ends, lambda: batch.write(name))
    return Cause("an input file of a node is late", transient=True, ends=ends)
