"""How the department writes its jobs: the same way whatever is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from random import Random

from condor_advice.lab.world import JobBatch

_SPOILT = "folded"


def dress(batch: JobBatch, habits: Random) -> None:
    """Give a batch the requests, files and policies of its program."""
    batch.submit |= {
        "request_memory": str(habits.choice((32, 48, 64, 80))),
        "request_disk": f"{habits.choice((5, 8, 10, 16))}M",
    }
    batch.stdout = habits.choice(("$(Process).out", "listing_$(Process).txt", "out/$(Process).out"))
    batch.path("out").mkdir()
    for _ in range(habits.choice((0, 1, 1, 2, 3))):
        name = batch.input_name()
        batch.write(name)
        batch.inputs.append(name)
    if habits.random() < 0.2:
        batch.inputs.append(batch.world.server.url(batch.world.publish(batch.data())))
    for _ in range(habits.choice((0, 1, 1))):
        batch.outputs.append(batch.data())
    batch.opens_early = bool(batch.outputs) and habits.random() < 0.7
    if habits.random() < 0.5:
        hold_failures(batch)
    if habits.random() < 0.25:
        batch.submit["allowed_execute_duration"] = str(habits.choice((40, 75)))
    if habits.random() < 0.25:
        batch.submit["periodic_hold"] = "JobStatus == 2 && time() - EnteredCurrentStatus > 70"
    if habits.random() < 0.1:
        batch.use_initialdir()


def hold_failures(batch: JobBatch) -> None:
    """Have the job held when it fails, with the department's expression."""
    batch.submit["on_exit_hold"] = "ExitBySignal =?= true || ExitCode =!= 0"
    batch.submit["on_exit_hold_reason"] = batch.rng.choice(
        ('"Solver did not finish"', 'strcat("return code ", ExitCode)', "")
    )


def stop(batch: JobBatch) -> str:
    """Return shell code that fails the program; the job is then held."""
    hold_failures(batch)
    code = batch.rng.choice((1, 1, 2, 5, 16, 44, 201, 255, None))
    return "kill -FPE $$; sleep 1" if code is None else f"exit {code}"


def spoil_input(batch: JobBatch, command: str) -> tuple[str, Callable[[], object]]:
    """Add an input that is no good; return shell code that notices, and the repair."""
    batch.spool = False
    name = batch.input_name()
    batch.write(name).write_text(_SPOILT)
    batch.inputs.append(name)
    check = f"grep -q {_SPOILT} {PurePosixPath(name).name} && {{ {command}; }}"
    return check, lambda: batch.write(name)
