"""An output file is written in some runs and not in others.

The search starts at random and may not converge; each run is a new draw.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 2.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name, chance = batch.data(), batch.rng.choice((25, 50, 75))
    batch.outputs.append(name)
    batch.end.insert(0, f"chance {chance} && rm -f {name}")
    return Cause("an output file is sometimes written", transient=True)
