"""The program needs a licence server that is down for a while.

It exits with an error; the owner's submit file asks for a hold in that case.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "exit"
WEIGHT = 2.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    path, ends = world.publish(batch.data()), batch.lasts()
    world.server.add_fault(path, 503, until=ends)
    batch.hold_on_exit()
    ask = batch.python(f"import urllib.request as u; u.urlopen({world.server.url(path)!r})")
    batch.work.append(f"{ask} 2>/dev/null || {{ {batch.failing_exit()}; }}")
    return Cause("the licence server is down", transient=True, ends=ends)
