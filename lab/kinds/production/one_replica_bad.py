"""One of the replicas behind the server's name answers with an error; the others are fine."""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "url"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path, good = world.publish(batch.data()), batch.rng.choice((0.4, 0.6, 0.75))
    world.server.add_fault(path, 500, unless=lambda: world.rng.random() < good)
    batch.inputs.append(world.server.url(path))
    return Cause("one replica of the file server is broken", transient=True)
