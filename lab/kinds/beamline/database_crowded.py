"""The database takes few connections: jobs of one cluster crowd each other out.

Released one by one they succeed. Released all at once, most are held again.
"""

from __future__ import annotations

from condor_advice.lab.kinds.beamline._scan import fail
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "program"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    seats = [batch.path(f".seat{number}") for number in range(batch.rng.choice((1, 2, 3)))]
    batch.seconds = batch.rng.uniform(4, 8)
    tries = " || ".join(f"{{ exec 9>{seat}; flock -n 9; }}" for seat in seats)
    batch.begin.append(f"if {tries}; then :; else {fail(batch)}; fi")
    return Cause(f"the database takes {len(seats)} connections", transient=True)
