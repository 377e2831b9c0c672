"""The address is wrong and always will be."""

from __future__ import annotations

from condor_advice.lab.world import Batch, Cause, Fix, World

FAMILY = "url"
WEIGHT = 1.0


def set_up(batch: Batch, world: World) -> Cause:
    name = batch.data()
    wrong, right = world.publish(name), world.publish(name)
    world.server.add_fault(wrong, 404)
    kept = list(batch.inputs)
    batch.inputs.append(world.server.url(wrong))
    edited = batch.file_list([*kept, world.server.url(right)])
    return Cause(
        "the URL is wrong", transient=False, fix=Fix(edits={"TransferInput": f'"{edited}"'})
    )
