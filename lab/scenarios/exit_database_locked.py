"""A database that the program writes to is locked for some time.

It fails late, so each futile release costs a whole run.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "exit"
WEIGHT = 1.2


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    lock, ends = world.root / "soft" / f"{batch.number:04d}.lock", batch.lasts()
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    world.at(ends, lambda: lock.unlink(missing_ok=True))
    batch.hold_on_exit()
    batch.seconds = batch.rng.uniform(4, 9)
    batch.end.insert(0, f"[ -e {lock} ] && {{ {batch.failing_exit()}; }}")
    return Cause("a data base is locked", transient=True, ends=ends)
