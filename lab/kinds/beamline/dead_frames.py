"""One frame in a few is unreadable. Its job fails in every run, the others succeed.

Some owners ask the detector group for the frame again. The log does not show that.
"""

from __future__ import annotations

from condor_advice.lab.kinds.beamline._scan import PROC, add_frames, fail
from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "input"
WEIGHT = 1.4


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    frames = add_frames(batch)
    dead = [frame for frame in frames if batch.rng.random() < 0.35] or frames[:1]
    for frame in dead:
        batch.path(frame).write_text("unreadable")
    frame = batch.inputs[-1].replace("$(Process)", "${proc}")
    batch.work.append(f"{PROC}; grep -q unreadable {frame} && {{ {fail(batch)}; }}")

    def send_again() -> None:
        for name in dead:
            batch.write(name)

    return Cause("some frames are unreadable", transient=False, fix=Fix(mend=send_again))
