"""The script's interpreter is in a software area that is not mounted at the moment.

The hold reason is the same as for a wrong interpreter.
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
