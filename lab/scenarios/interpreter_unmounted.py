"""The script begins with an interpreter from a software area that is not mounted now.

Held with the same words as a wrong interpreter, until the area is back.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "executable"
WEIGHT = 1.5


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    tool = world.root / "soft" / f"{batch.number:04d}" / "bin" / "sh"
    batch.shebang = f"#!{tool}"
    ends = batch.lasts()

    def mount() -> None:
        tool.parent.mkdir(parents=True, exist_ok=True)
        if not tool.exists():
            tool.symlink_to("/bin/sh")

    world.at(ends, mount)
    return Cause("the software area is not mounted", transient=True, ends=ends)
