"""Every scenario can be set up, HTCondor accepts its jobs, and no name gives it away."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from condor_advice.lab.fileserver import FileServer
from condor_advice.lab.pool import Pool
from condor_advice.lab.run import LabSettings, make_points, plan_shares
from condor_advice.lab.scenarios import load_scenarios
from condor_advice.lab.world import Cause, JobBatch, LabWorld, healthy_batch

SCENARIOS = load_scenarios()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LabWorld]:
    settings = LabSettings(minutes=5, seed=1)
    with FileServer() as server:
        world = LabWorld(tmp_path, "1", server, make_points(settings, tmp_path))
        plan_shares(world, settings)
        yield world


def set_up(name: str, world: LabWorld, number: int) -> tuple[JobBatch, Cause]:
    batch = healthy_batch(world, number, "amara")
    cause = SCENARIOS[name].set_up(batch, world)
    batch.write_program()
    batch.path("job.sub").write_text(batch.description())
    return batch, cause


def test_there_are_enough_scenarios_in_every_family() -> None:
    families = Counter(scenario.family for scenario in SCENARIOS.values())
    assert len(SCENARIOS) >= 30
    assert {family: count for family, count in families.items() if count < 2} == {}


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_says_what_happens_and_why(name: str) -> None:
    scenario = SCENARIOS[name]
    assert len(scenario.about) > 30
    assert scenario.weight > 0


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_cause_that_ends_is_transient_and_ends_after_it_began(name: str, world: LabWorld) -> None:
    for number in range(1, 9):
        _, cause = set_up(name, world, number)
        assert cause.description
        if cause.ends is not None:
            assert cause.transient
            assert world.clock() < cause.ends < world.clock() + 1000


def test_htcondor_accepts_the_submit_description_of_each(world: LabWorld, pool: Pool) -> None:
    refused = {}
    for number, name in enumerate(SCENARIOS, start=1):
        batch, _ = set_up(name, world, number)
        assert not (batch.spool and batch.submit.get("hold")), "condor_submit refuses the two"
        done = pool.run(
            ["condor_submit", "-dry-run", "ads", "job.sub"], cwd=batch.directory, check=False
        )
        if done.returncode != 0 or f"{batch.procs} job(s) dry-run" not in done.stdout:
            refused[name] = done.stderr + done.stdout
    assert refused == {}


def words_of(batch: JobBatch) -> dict[str, list[str]]:
    """Return the names in a batch that an observer can see, by kind."""
    files = [re.split(r"[/=\"]", name)[-1] for name in [*batch.inputs, *batch.outputs]]
    return {
        "program": [batch.program],
        "batch name": batch.name.split("-")[:2],
        "directory": [batch.directory.parent.name],
        "file": [name.split("_")[0] for name in files if "_" in name],
        "file ending": [name.rpartition(".")[2] for name in files],
        "argument": re.findall(
            r"-+[a-z]+", batch.description().split("arguments = ")[1].split("\n")[0]
        ),
    }


def mutual_information(pairs: list[tuple[str, str]]) -> float:
    both, left, right = Counter(pairs), Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    return sum(
        n / len(pairs) * math.log(n * len(pairs) / (left[a] * right[b]))
        for (a, b), n in both.items()
    )


def test_names_do_not_give_the_scenario_away(world: LabWorld) -> None:
    seen: dict[str, list[tuple[str, str]]] = defaultdict(list)
    number = 0
    for name in SCENARIOS:
        for _ in range(40):
            number += 1
            batch = healthy_batch(world, number, "amara")
            SCENARIOS[name].set_up(batch, world)
            for kind, words in words_of(batch).items():
                seen[kind] += [(word, name) for word in words]
    shuffle = Random(1)
    told = {}
    for kind, pairs in seen.items():
        chance = []
        for _ in range(60):
            mixed = [scenario for _, scenario in pairs]
            shuffle.shuffle(mixed)
            chance.append(mutual_information(list(zip((w for w, _ in pairs), mixed, strict=True))))
        if mutual_information(pairs) > max(chance) * 1.03:
            told[kind] = mutual_information(pairs), max(chance)
    assert told == {}


def test_the_same_seed_plans_the_same_batches(tmp_path: Path) -> None:
    descriptions = []
    for run in ("first", "second"):
        with FileServer() as server:
            settings = LabSettings(minutes=5, seed=7)
            (tmp_path / run).mkdir()
            world = LabWorld(tmp_path / run, "7", server, make_points(settings, tmp_path / run))
            batches = [healthy_batch(world, number, "mei") for number in range(1, 20)]
            text = "\n".join(batch.description() for batch in batches)
            descriptions.append(
                text.replace(str(tmp_path / run), "").replace(str(server.port), "PORT")
            )
    assert descriptions[0] == descriptions[1]
