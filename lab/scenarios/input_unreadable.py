"""An input file is not readable until its permissions are fixed.

Sometimes a cron job does that, sometimes nobody.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.spool = False
    name = batch.input_name()
    path = batch.write(name)
    path.chmod(0)
    batch.inputs.append(name)
    mend = Fix(mend=lambda: path.chmod(0o644))
    if batch.rng.random() < 0.5:
        return Cause("an input file is not readable", transient=False, fix=mend)
    ends = batch.lasts()
    world.at(ends, lambda: path.chmod(0o644))
    return Cause("an input file is not readable for a while", transient=True, ends=ends, fix=mend)
