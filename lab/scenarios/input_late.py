"""An input file comes from another program, which is late.

The hold reason is the same as for a file that never comes.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 2.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    name, ends = batch.input_name(), batch.lasts()
    batch.inputs.append(name)
    world.at(ends, lambda: batch.write(name))
    return Cause("an input file is not written yet", transient=True, ends=ends)
