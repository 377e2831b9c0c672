"""The URL is wrong and always fails."""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "url"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name = batch.data()
    wrong, right = world.publish(name), world.publish(name)
    world.server.add_fault(wrong, 404)
    kept = list(batch.inputs)
    batch.inputs.append(world.server.url(wrong))
    edited = batch.file_list([*kept, world.server.url(right)])
    return Cause(
        "the URL is wrong", transient=False, fix=Fix(edits={"TransferInput": f'"{edited}"'})
    )
