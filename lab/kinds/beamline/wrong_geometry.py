"""The geometry file belongs to another detector position. Every job of the cluster fails.

Some owners put the right file in its place. The log does not show that.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from condor_advice.lab.kinds.beamline._scan import fail
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "program"
WEIGHT = 0.7


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name = batch.input_name()
    batch.write(name).write_text("elsewhere")
    batch.inputs.append(name)
    batch.work.append(f"grep -q elsewhere {PurePosixPath(name).name} && {{ {fail(batch)}; }}")
    return Cause("the geometry is wrong", transient=False, fix=Fix(mend=lambda: batch.write(name)))
