"""The kinds of pools that judge models: each scenario can be set up, and no name gives it away."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from condor_advice.lab.fileserver import FileServer
from condor_advice.lab.kinds import load_kind
from condor_advice.lab.outages import during, next_end, plan_outages
from condor_advice.lab.pool import Pool
from condor_advice.lab.programs import Program, draw_programs, program_batch
from condor_advice.lab.run import LabSettings, make_points
from condor_advice.lab.scenarios import load_scenarios
from condor_advice.lab.world import Cause, JobBatch, LabWorld

KINDS = ("beamline", "workshop")
EACH = [(kind, name) for kind in KINDS for name in load_scenarios(kind)]


@pytest.fixture(params=["before the change", "after it"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LabWorld]:
    settings = LabSettings.of_kind("beamline", minutes=5, seed=1)
    with FileServer() as server:
        world = LabWorld(tmp_path, "1", server, make_points(settings, tmp_path))
        if request.param == "after it":
            world.changes = world.began
        yield world


def programs_of(kind: str) -> list[Program]:
    return draw_programs(load_kind(kind), ("amara", "bjorn", "chiara", "dmitri"), "1")


def set_up(kind: str, name: str, world: LabWorld, number: int) -> tuple[JobBatch, Cause]:
    programs = programs_of(kind)
    batch = program_batch(world, number, programs[number % len(programs)], load_kind(kind))
    return batch, load_scenarios(kind)[name].set_up(batch, world)


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_enough_scenarios(kind: str) -> None:
    scenarios = load_scenarios(kind)
    assert len(scenarios) >= 15
    assert all(len(s.about) > 30 and s.weight > 0 for s in scenarios.values())


@pytest.mark.parametrize(("kind", "name"), EACH)
def test_each_can_be_set_up_and_a_cause_that_ends_is_transient(
    kind: str, name: str, world: LabWorld
) -> None:
    for number in range(1, 7):
        batch, cause = set_up(kind, name, world, number)
        batch.write_submit_files()
        assert cause.description
        if cause.ends is not None:
            assert cause.transient
            assert world.clock() < cause.ends


@pytest.mark.pool
def test_htcondor_accepts_the_submit_description_of_each(world: LabWorld, pool: Pool) -> None:
    refused = {}
    for number, (kind, name) in enumerate(EACH, start=1):
        batch, _ = set_up(kind, name, world, number)
        batch.write_submit_files()
        done = pool.run(
            ["condor_submit", "-dry-run", "ads", "job.sub"], cwd=batch.directory, check=False
        )
        if done.returncode != 0 or f"{batch.procs} job(s) dry-run" not in done.stdout:
            refused[name] = done.stderr + done.stdout
    assert refused == {}


def words_of(batch: JobBatch) -> dict[str, list[str]]:
    files = [re.split(r"[/=\"]", name)[-1] for name in [*batch.inputs, *batch.outputs]]
    return {
        "program": [batch.program],
        "batch name": [batch.name.rpartition("-")[0]],
        "file": [name.split("_")[0] for name in files],
        "file ending": [name.rpartition(".")[2] for name in files],
    }


def mutual_information(pairs: list[tuple[str, str]]) -> float:
    both, left, right = Counter(pairs), Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    return sum(
        n / len(pairs) * math.log(n * len(pairs) / (left[a] * right[b]))
        for (a, b), n in both.items()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_names_do_not_give_the_scenario_away(kind: str, world: LabWorld) -> None:
    seen: dict[str, list[tuple[str, str]]] = defaultdict(list)
    programs, draw, number = programs_of(kind), Random(2), 0
    for name, scenario in load_scenarios(kind).items():
        for _ in range(40):
            number += 1
            batch = program_batch(world, number, draw.choice(programs), load_kind(kind))
            scenario.set_up(batch, world)
            for what, words in words_of(batch).items():
                seen[what] += [(word, name) for word in words]
    told = {}
    for what, pairs in seen.items():
        chance = []
        for _ in range(60):
            mixed = [scenario for _, scenario in pairs]
            draw.shuffle(mixed)
            chance.append(mutual_information(list(zip((w for w, _ in pairs), mixed, strict=True))))
        if mutual_information(pairs) > max(chance) * 1.03:
            told[what] = mutual_information(pairs), max(chance)
    assert told == {}


@pytest.mark.parametrize("kind", KINDS)
def test_no_scenario_is_named_in_a_submit_description(kind: str, world: LabWorld) -> None:
    for number, name in enumerate(load_scenarios(kind), start=1):
        batch, _ = set_up(kind, name, world, number)
        assert name not in batch.description()


def test_all_batches_share_the_outages_of_a_service(world: LabWorld) -> None:
    outages = plan_outages(world, "seats", up=(10, 20), down=(30, 40))
    assert outages == plan_outages(world, "seats", up=(10, 20), down=(30, 40))
    assert outages != plan_outages(world, "door", up=(10, 20), down=(30, 40))
    assert all(30 <= outage.until - outage.since <= 40 for outage in outages)
    assert next_end(world, outages) == outages[0].until
    assert f"-lt {outages[0].until:.0f}" in during(outages, "exit 1")
