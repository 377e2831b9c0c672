"""The detector still writes: the frames of a scan arrive one after another, within a minute."""

from __future__ import annotations

from functools import partial

from condor_advice.lab.kinds.beamline._scan import add_frames
from condor_advice.lab.world import Cause, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    when = world.clock()
    for frame in add_frames(batch):
        batch.path(frame).unlink()
        when += world.pace * batch.rng.uniform(1, 8)
        world.at(when, partial(batch.write, frame))
    return Cause("the detector still writes the frames", transient=True, ends=when)
