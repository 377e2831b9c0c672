"""A file named in transfer_output_files is never written.

The program writes it under another name. A release repeats the whole run for nothing.
"""

from __future__ import annotations

from condor_advice.lab.world import Cause, Fix, JobBatch, LabWorld

FAMILY = "output"
WEIGHT = 1.0


def set_up(batch: JobBatch, world: LabWorld) -> Cause:
    promised, real = batch.data(), batch.data()
    kept = [*batch.outputs, real]
    batch.outputs.append(promised)
    batch.work.append(f"head -c 500 /dev/urandom > {real}")
    batch.end.insert(0, f"rm -f {promised}")
    edited = ", ".join(kept)
    return Cause(
        "an output file is never written",
        transient=False,
        fix=Fix(edits={"TransferOutput": f'"{edited}"'}),
    )
