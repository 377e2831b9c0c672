"""The owner is over quota at the access point, so output cannot be written.

Space is freed at a random time, when somebody deletes files.
"""

from __future__ import annotations

from functools import partial

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld, unlink_links

FAMILY = "output"
WEIGHT = 1.5


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    ends = batch.lasts()
    batch.spool = False
    links = []
    for proc in range(batch.procs):
        link = batch.path(batch.stdout.replace("$(Process)", str(proc)))
        link.symlink_to("/dev/full")  # every write fails: no space left on device
        links.append(link)

    free = partial(unlink_links, links)
    world.at(ends, free)
    return Cause("the owner is over quota", transient=True, ends=ends, fix=Fix(mend=free))
