"""Conditions that scenarios of several kinds of pools put their programs under.

A condition is a file below the lab's directory, outside of any job: the program looks at it
and fails while it is there, as it would while a server is down or a ticket has expired.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from condor_advice.lab.world import Cause, Fix, JobBatch, LabPoint, LabWorld

# Shell: the job's proc number.
PROC = "$(sed -n 's/^ProcId = //p' \"$_CONDOR_JOB_AD\")"


def state(batch: JobBatch, name: str) -> Path:
    """Return the path of a condition; slashes in the name make folders."""
    path = batch.world.root / "state" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def fail_while(batch: JobBatch, condition: Path) -> str:
    """Return shell code that fails while a condition lasts."""
    return f"[ -e {condition} ] && {{ {batch.failing_exit()}; }}"


def shared_condition(
    batch: JobBatch, name: str, draw_end: Callable[[], float], fixable: bool = True
) -> tuple[Path, float, Fix | None]:
    """Begin a condition that several batches share, or join the one that lasts.

    Return its file, when it ends by itself, and the fix that ends it for all.
    """
    world, condition = batch.world, state(batch, name)
    ends = world.outage(name, draw_end)
    condition.touch()

    def repair() -> None:
        world.end_outage(name)
        condition.unlink(missing_ok=True)

    def end() -> None:
        if not world.in_outage(name):
            condition.unlink(missing_ok=True)

    world.at(ends + 0.1, end)
    return condition, ends, Fix(mend=repair) if fixable else None


def fail_in_outage(
    batch: JobBatch,
    name: str,
    description: str,
    draw_end: Callable[[], float],
    fixable: bool = True,
) -> Cause:
    """Let the program fail while a shared condition lasts."""
    condition, ends, fix = shared_condition(batch, name, draw_end, fixable)
    batch.work.append(fail_while(batch, condition))
    return Cause(description, transient=True, ends=ends, fix=fix)


def some_points(batch: JobBatch, share: float) -> list[LabPoint]:
    """Draw some of the execution points: at least one, and not all."""
    points = batch.world.points
    count = min(max(round(share * len(points)), 1), len(points) - 1)
    return batch.rng.sample(points, k=count)


def arrive_later(batch: JobBatch, name: str, ends: float) -> Fix:
    """Leave an input file missing until `ends`; return the fix that writes it at once."""
    path = batch.path(name)
    path.parent.mkdir(parents=True, exist_ok=True)

    def write() -> None:
        if not path.exists():
            batch.write(name)

    batch.world.at(ends, write)
    return Fix(mend=write)


def edit_memory(megabytes: int) -> Fix:
    """Return the fix that raises the memory request."""
    return Fix(edits={"RequestMemory": str(megabytes)})


def none_wrong(batch: JobBatch, world: LabWorld) -> Cause:
    """Change nothing."""
    return Cause("none", transient=True)
