"""The file server fails again and again for short periods.

Transfers work in between, so a quick second try often succeeds.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "url"
WEIGHT = 1.5


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path, now = world.publish(batch.data()), world.clock()
    since = now
    while since < now + 240 * world.pace:
        until = since + world.pace * batch.rng.uniform(5, 40)
        world.server.add_fault(path, batch.rng.choice((500, 502, 503)), since=since, until=until)
        since = until + world.pace * batch.rng.uniform(5, 40)
    batch.inputs.append(world.server.url(path))
    return Cause("the file server is unsteady", transient=True, ends=since)
