"""Programs that owners run again and again, in kinds of pools that have them.

A program has the same executable name, batch name stem, project and requests in all its
clusters. It also has a scenario, which its next cluster usually shares: a broken program stays
broken until somebody fixes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

from condor_advice.lab.kinds import BatchNaming, PoolKind
from condor_advice.lab.scenarios import Scenario
from condor_advice.lab.world import JobBatch, LabWorld

FIRST_DATE = date(2026, 3, 2)


@dataclass(slots=True)
class Program:
    """One program of one owner."""

    owner: str
    executable: str
    stem: str  # of its batch names
    project: str
    seed: str  # of what all its batches have in common
    activity: float  # how often it is submitted, relative to other programs
    clusters: int = 0  # submitted so far
    scenario: Scenario | None = None  # of its last cluster

    def next_scenario(
        self, rng: Random, scenarios: Sequence[Scenario], persistence: float
    ) -> Scenario:
        """Keep the scenario of the last cluster, or draw a new one."""
        if self.scenario is None or rng.random() >= persistence:
            [self.scenario] = rng.choices(scenarios, [s.weight for s in scenarios])
        return self.scenario

    def batch_name(self, kind: PoolKind) -> str:
        """Return the name of the next batch."""
        match kind.naming:
            case BatchNaming.NUMBERED:
                return f"{self.stem}-{self.clusters:03d}"
            case BatchNaming.DATED:
                day = FIRST_DATE + timedelta(days=self.clusters)
                return f"{self.stem}_{day:%Y%m%d}"
            case BatchNaming.SAME:
                return self.stem


def draw_programs(kind: PoolKind, owners: Iterable[str], seed: str) -> list[Program]:
    """Draw the programs of all owners; names do not depend on what will go wrong."""
    programs = []
    for owner in owners:
        rng = Random(f"{seed}/programs/{owner}")
        count = min(rng.randint(*kind.programs_per_owner), len(kind.programs))
        for executable in rng.sample(list(kind.programs), k=count):
            project = rng.choice(list(kind.projects))
            programs.append(
                Program(
                    owner,
                    executable,
                    stem=f"{project}-{rng.choice(list(kind.data_words))}",
                    project=project,
                    seed=f"{seed}/program/{owner}/{executable}",
                    activity=rng.lognormvariate(0, kind.activity_spread),
                )
            )
    return programs


def program_batch(world: LabWorld, number: int, program: Program, kind: PoolKind) -> JobBatch:
    """Make the next batch of a program, with nothing wrong."""
    program.clusters += 1
    rng = Random(f"{world.seed}/batch/{number}")
    directory = world.root / "home" / program.owner / program.project / f"run{number:04d}"
    directory.mkdir(parents=True)
    [procs] = rng.choices(list(kind.cluster_sizes), list(kind.cluster_sizes.values()))
    low, typical = kind.run_seconds
    batch = JobBatch(
        number,
        program.owner,
        procs,
        directory,
        world,
        rng,
        name=program.batch_name(kind),
        project=program.project,
        program=program.executable,
        seconds=min(low + rng.expovariate(1 / typical), low + 4 * typical),
        data_words=kind.data_words,
    )
    if kind.dress is not None:
        kind.dress(batch, Random(program.seed))
    return batch
