"""Kinds of pools: every scenario can be set up, no name gives it away, and a short run holds."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from condor_advice.gather.errors import UsageError
from condor_advice.lab.fileserver import FileServer
from condor_advice.lab.kinds import kind_names, load_kind
from condor_advice.lab.pool import Pool
from condor_advice.lab.programs import draw_programs, program_batch
from condor_advice.lab.recording import thin
from condor_advice.lab.run import LabSettings, make_points, run_lab
from condor_advice.lab.scenarios import load_scenarios
from condor_advice.lab.truth import in_order, read_holds, read_truth
from condor_advice.lab.world import JobBatch, LabWorld

KINDS = kind_names()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[LabWorld]:
    settings = LabSettings.of_kind(kind, minutes=5, seed=1)
    with FileServer() as server:
        yield LabWorld(tmp_path, "1", server, make_points(settings, tmp_path))


def batches_of(kind: str, world: LabWorld, each: int) -> Iterator[tuple[str, JobBatch]]:
    """Set up each scenario several times, every time for another program."""
    values, number = load_kind(kind), 0
    for name, scenario in load_scenarios(kind).items():
        for _ in range(each):
            number += 1
            [program] = draw_programs(values, ["amara"], str(number))[:1]
            batch = program_batch(world, number, program, values)
            cause = scenario.set_up(batch, world)
            assert cause.description
            assert cause.ends is None or (cause.transient and cause.ends > world.clock())
            yield name, batch


def test_each_kind_has_15_scenarios_and_a_healthy_one(kind: str) -> None:
    scenarios = load_scenarios(kind)
    assert len(scenarios) >= 15
    assert "healthy" in scenarios
    assert all(len(scenario.about) > 30 for scenario in scenarios.values())


def test_htcondor_accepts_each_scenario(kind: str, world: LabWorld, pool: Pool) -> None:
    refused = {}
    for name, batch in batches_of(kind, world, each=1):
        batch.write_submit_files()
        done = pool.run(
            ["condor_submit", "-dry-run", "ads", "job.sub"], cwd=batch.directory, check=False
        )
        if done.returncode != 0:
            refused[name] = done.stderr + done.stdout
    assert refused == {}


def information(pairs: list[tuple[str, str]]) -> float:
    both, left, right = Counter(pairs), Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    return sum(
        n / len(pairs) * math.log(n * len(pairs) / (left[a] * right[b]))
        for (a, b), n in both.items()
    )


def test_names_do_not_give_the_scenario_away(kind: str, world: LabWorld) -> None:
    seen: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, batch in batches_of(kind, world, each=30):
        files = [re.split(r"[/=]", file)[-1] for file in [*batch.inputs, *batch.outputs]]
        seen["program"].append((batch.program, name))
        seen["project"].append((batch.project, name))
        seen["stem"].append((batch.name[:-4], name))
        seen["file"] += [(file.split("_")[0], name) for file in files]
    shuffle = Random(1)
    for what, pairs in seen.items():
        chance = []
        for _ in range(40):
            mixed = [scenario for _, scenario in pairs]
            shuffle.shuffle(mixed)
            chance.append(information(list(zip((w for w, _ in pairs), mixed, strict=True))))
        assert information(pairs) <= max(chance) * 1.03, what


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown kind of pool 'moon'"):
        LabSettings.of_kind("moon", 1, 1)


@pytest.mark.pool
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_short_run_gives_several_holds_and_can_be_thinned(kind: str, tmp_path: Path) -> None:
    settings = LabSettings.of_kind(kind, 1.0, 5, pace=0.3, batches_per_minute=45)
    recording = run_lab(settings, tmp_path / "run", say=lambda line: None)
    holds = read_holds(in_order(tmp_path / "run" / "events" / "EventLog"))
    assert len(holds) >= 10
    assert len({(hold.code, hold.subcode) for hold in holds}) >= 3
    ads = [json.loads(line) for line in (tmp_path / "run" / "jobs.jsonl").open()]
    clusters = defaultdict(set)
    for ad in ads:
        clusters[ad["Owner"], Path(ad["Cmd"]).name].add(ad["ClusterId"])
    assert max(len(of_program) for of_program in clusters.values()) >= 2

    smaller = thin(tmp_path / "run", tmp_path / "thin", 0.5, seed=1)
    assert 0 < smaller.manifest["jobs"] < recording.manifest["jobs"]
    left = read_holds(in_order(tmp_path / "thin" / "events" / "EventLog"))
    kept = set(read_truth(tmp_path / "thin" / "truth.jsonl"))
    outcomes = [(hold.job, hold.number, hold.outcome) for hold in holds if hold.job in kept]
    assert [(hold.job, hold.number, hold.outcome) for hold in left] == outcomes
