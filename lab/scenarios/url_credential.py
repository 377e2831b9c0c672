"""The credential for the data has expired, so the server refuses the transfer.

A cron job renews it for some owners; the others must log in again.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "url"
WEIGHT = 1.5


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path = world.publish(batch.data())
    batch.inputs.append(world.server.url(path))
    status = batch.rng.choice((401, 403))
    if batch.rng.random() < 0.5:
        ends = batch.lasts()
        world.server.add_fault(path, status, until=ends)
        return Cause("the credential waits for its renewal", transient=True, ends=ends)
    renewed: list[bool] = []
    world.server.add_fault(path, status, unless=lambda: bool(renewed))
    return Cause(
        "the credential has expired", transient=False, fix=Fix(mend=lambda: renewed.append(True))
    )
