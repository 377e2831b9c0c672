"""The program has a bug and exits with an error, and no policy holds it.

Such jobs leave the queue as failed, so that failing does not always mean being held.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "none"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    batch.submit.pop("on_exit_hold", None)
    batch.submit.pop("on_exit_hold_reason", None)
    batch.work.append(batch.failing_exit())
    return Cause("a bug in the program", transient=False)
