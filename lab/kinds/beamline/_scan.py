"""How the beamline writes its jobs: the same way whatever is wrong with them."""

from __future__ import annotations

from random import Random

from condor_advice.lab.world import JobBatch, LabWorld

PROC = "proc=$(sed -n 's/^ProcId = //p' \"$_CONDOR_JOB_AD\")"  # shell: this job's number


def dress(batch: JobBatch, habits: Random) -> None:
    """Give a batch the requests, frames and policies of its program."""
    batch.submit |= {
        "request_memory": str(habits.choice((48, 64, 96))),
        "request_disk": f"{habits.choice((6, 10, 14))}M",
    }
    batch.stdout = habits.choice(("$(Process).out", "log/$(Process).out"))
    batch.path("log").mkdir()
    if habits.random() < 0.6:
        add_frames(batch)
    if habits.random() < 0.5:
        batch.inputs.append(batch.world.server.url(batch.world.publish(batch.data())))
    for _ in range(habits.choice((0, 1, 1))):
        batch.outputs.append(batch.data())
    batch.opens_early = bool(batch.outputs) and habits.random() < 0.4
    if habits.random() < 0.6:
        hold_failures(batch)
    if habits.random() < 0.4:
        batch.submit["allowed_execute_duration"] = str(habits.choice((45, 60)))


def add_frames(batch: JobBatch) -> list[str]:
    """Add one input file per job and return their names; all of them exist."""
    stem, _, ending = batch.data().rpartition(".")
    batch.inputs.append(f"{stem}_$(Process).{ending}")
    frames = [f"{stem}_{proc}.{ending}" for proc in range(batch.procs)]
    for frame in frames:
        batch.write(frame)
    return frames


def hold_failures(batch: JobBatch) -> None:
    """Have the job held when it fails, with the beamline's expression."""
    batch.submit["on_exit_hold"] = "ExitCode != 0 || ExitBySignal"
    batch.submit["on_exit_hold_reason"] = batch.rng.choice(
        ('"reduction failed, call the local contact"', '"non-zero exit"', "")
    )


def fail(batch: JobBatch) -> str:
    """Return shell code that fails the program; the job is then held."""
    hold_failures(batch)
    code = batch.rng.choice((1, 1, 3, 64, 70, 75, 99, None))
    return "kill -ABRT $$; sleep 1" if code is None else f"exit {code}"


def has_moved(world: LabWorld) -> bool:
    """Return whether the site has moved to the new store and the new software."""
    return world.clock() >= world.changes
