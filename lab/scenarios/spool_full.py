"""The access point cannot store the job's output: its spool is full for a while.

The job was spooled, so its output goes to the spool directory, and the write fails there.
"""

from __future__ import annotations

from pathlib import Path

from condor_advice.lab.world import Cause, JobBatch, LabWorld, unlink_links

FAMILY = "output"
WEIGHT = 0.7


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    name, ends = batch.data(), batch.lasts()
    batch.outputs.append(name)
    batch.spool = True
    links: list[Path] = []

    def fill(cluster: int) -> None:
        for proc in range(batch.procs):
            link = (
                world.spool
                / str(cluster % 10000)
                / str(proc)
                / f"cluster{cluster}.proc{proc}.subproc0"
                / name
            )
            link.symlink_to("/dev/full")
            links.append(link)

    world.at(ends, lambda: unlink_links(links))
    return Cause("the spool is full", transient=True, ends=ends, on_submit=fill)
