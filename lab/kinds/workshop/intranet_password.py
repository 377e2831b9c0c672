"""The intranet asks for a password before it sends the file, and the job has none."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "url"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path = world.publish(batch.data())
    opened: list[bool] = []
    world.server.add_fault(path, batch.rng.choice((401, 403)), unless=lambda: bool(opened))
    batch.inputs.append(world.server.url(path))
    return Cause(
        "the intranet asks for a password",
        transient=False,
        fix=Fix(mend=lambda: opened.append(True)),
    )
