"""A job of counted steps, for the tests: with the hook or without, leaking or not.

    python steps_job.py TOTAL MEGABYTES_PER_STEP STEP_LOG [hook | plain | trouble]

Its state is the number of steps done, and memory is part of the state: a restart allocates it
again. Every step that is executed, also a second time, is a line in STEP_LOG. A job that uses
more memory than it requested waits at its end until HTCondor has noticed.
"""

import os
import re
import sys
import time
from pathlib import Path

TOTAL, MEGABYTES, LOG, MODE = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
state = {"step": 0}
memory = []


def run(poll):
    print("start at", state["step"], flush=True)
    with open(LOG, "a") as log:
        while state["step"] < TOTAL:
            while len(memory) < MEGABYTES * state["step"]:
                memory.append(bytearray(b"x") * (1 << 20))
            time.sleep(0.1)
            state["step"] += 1
            log.write(f"{state['step']}\n")
            log.flush()
            poll()
        if len(memory) > given_mb():
            time.sleep(60)
    print("done", state["step"])


def given_mb():
    """Return the memory that the job requested, from its ad on the execution point."""
    ad = Path(os.environ["_CONDOR_JOB_AD"]).read_text()
    return int(re.search(r"^RequestMemory = (\d+)", ad, re.MULTILINE)[1])


if MODE == "plain":
    run(lambda: None)
    sys.exit(0)

from condor_checkpoint import Checkpoint  # noqa: E402


def save(reason):
    checkpoint.files.write(b"%d" % state["step"])
    print("saved", state["step"], reason, flush=True)


def save_in_trouble(reason):
    """The first save is good; then one raises, one hangs, and one finds the disk full."""
    checkpoint.tries = getattr(checkpoint, "tries", 0) + 1
    checkpoint._not_before = 0.0
    if checkpoint.tries == 1:
        return save(reason)
    if checkpoint.tries == 2:
        raise RuntimeError("no")
    if checkpoint.tries == 3:
        time.sleep(100)
    with checkpoint.files.writing() as path:
        os.symlink("/dev/full", path)
        with open(path, "w") as file:
            file.write("x" * 100000)


settings = {"exit_after": "auto"} if MODE == "hook" else {"period": 1.0, "save_timeout": 0.5}
checkpoint = Checkpoint(
    save if MODE == "hook" else save_in_trouble,
    directory="checkpoints",
    interval=0.5,
    cost=1.0,
    **settings,
)
state["step"] = checkpoint.files.load(lambda path: int(Path(path).read_text())) or 0
if MODE == "trouble":
    # A failed save is tried again after half a minute; here, at once.
    failed, checkpoint._save_failed = (
        checkpoint._save_failed,
        lambda *what: (
            failed(*what),
            setattr(checkpoint, "_not_before", 0.0),
            setattr(checkpoint, "_next", 0.0),
        ),
    )
with checkpoint:
    run(checkpoint.poll)
