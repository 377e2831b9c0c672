"""The group's file system is over quota, so results cannot be written back.

Somebody deletes old files after a while, or the owner makes room.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "quota"
WEIGHT = 0.9


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name = batch.outputs[0] if batch.outputs else batch.data()
    batch.outputs = [name]
    ends, full = batch.clears(450, 1.2), batch.path("results") / name
    full.parent.mkdir()
    full.symlink_to("/dev/full")
    batch.submit["transfer_output_remaps"] = f'"{name}=results/{name}"'

    def make_room() -> None:
        if full.is_symlink():
            full.unlink()

    world.at(ends, make_room)
    return Cause("the group's quota is used up", transient=True, ends=ends, fix=Fix(mend=make_room))
