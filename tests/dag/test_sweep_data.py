"""A sweep and `condor-advice train` learn from the same episodes, row by row."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from condor_advice.advise.commands.episode_sources import Sources
from condor_advice.advise.commands.gather import gather
from condor_advice.dag import nodes
from condor_advice.dag.episodes import SPLITS, load_split, merge_shards, read_shard
from condor_advice.dag.plan import PREPROCESSING, SweepPlan
from condor_advice.dag.scripts import EXIT_HOPELESS
from condor_advice.lab.recording import unpack
from condor_advice.lab.truth import in_order
from condor_advice.model.held.data import HeldData
from condor_advice.model.held.evidence_rows import EvidenceTensors
from condor_advice.model.held.load import log_chains
from condor_advice.preprocess.holds.labels import NO_LABEL


def assert_same(sweep: HeldData, train: HeldData) -> None:
    for field in fields(HeldData):
        ours, theirs = getattr(sweep, field.name), getattr(train, field.name)
        if field.name == "sources":
            assert ours == theirs
        elif isinstance(ours, EvidenceTensors):
            for part in fields(EvidenceTensors):
                assert np.array_equal(getattr(ours, part.name), getattr(theirs, part.name))
        else:
            equal_nan = np.asarray(ours).dtype.kind == "f"
            assert np.array_equal(ours, theirs, equal_nan=equal_nan), field.name


@pytest.fixture
def event_logs(tmp_path: Path) -> list[Path]:
    """The event log of a recording, with its rotations."""
    return in_order(unpack("pool_a", tmp_path / "recording") / "events" / "EventLog")


def shard_of(plan: SweepPlan) -> Path:
    return plan.directory / "shards" / "0"


def test_a_recording_gives_the_same_episodes_in_a_sweep_and_in_train(planned, tmp_path):
    plan = planned()
    sweep = read_shard(shard_of(plan), PREPROCESSING)
    train = Sources(recordings=("pool_a",)).read(())
    assert_same(sweep, train)
    assert train.changed.any()
    assert np.all(train.label[train.changed] == NO_LABEL)
    # Trials get the same data as `train`.
    merged, rows = merge_shards([sweep], plan.split)
    assert_same(merged, train)
    merged.save(tmp_path / "data.npz", rows)
    parts = load_split(tmp_path / "data.npz")
    for name in SPLITS:
        assert_same(parts[name], train.take(rows[name]))
        assert not parts[name].changed.any(), "no split has repaired jobs"


def test_logs_give_the_same_episodes_in_a_sweep_and_in_train(planned, event_logs):
    plan = planned(section={"data": [{"logs": str(event_logs[-1])}]})
    sweep = read_shard(shard_of(plan), PREPROCESSING)
    train = Sources(logs=tuple(event_logs)).read(())
    assert sweep.sources == (event_logs[-1].name,)
    assert len(sweep) > 1000
    assert np.array_equal(sweep.features, train.features, equal_nan=True)
    assert np.array_equal(sweep.label, train.label)
    assert np.array_equal(sweep.steps, train.steps)


def test_a_store_gives_the_same_episodes_in_a_sweep_and_in_train(
    planned: Callable[..., SweepPlan], event_logs: list[Path], tmp_path: Path
):
    store = tmp_path / "store.sqlite"
    done = CliRunner().invoke(gather, [str(event_logs[-1]), "--store", str(store), "--zone", "UTC"])
    assert done.exit_code == 0, done.output
    plan = planned(section={"data": [{"store": str(store)}]})
    assert_same(read_shard(shard_of(plan), PREPROCESSING), Sources(stores=(store,)).read(()))


def test_neighbours_steps_come_before_the_jobs_own(planned):
    plan = planned()
    alone = read_shard(shard_of(plan), PREPROCESSING)
    beside = read_shard(shard_of(plan), PREPROCESSING | {"neighbours": 2})
    assert np.array_equal(beside.features, alone.features, equal_nan=True)
    more = beside.lengths() - alone.lengths()
    assert more.min() >= 0
    assert 0 < more.max() <= 2 * PREPROCESSING["neighbour_steps"]
    row = int(np.argmax(more))
    own = beside.steps[beside.offsets[row] + more[row] : beside.offsets[row + 1]]
    assert np.array_equal(own, alone.steps[alone.offsets[row] : alone.offsets[row + 1]])


def test_a_shard_lists_the_known_repairs(planned):
    shard = json.loads((shard_of(planned()) / "source.json").read_text())
    assert shard["zone"] == "UTC"
    assert len(shard["repairs"]) > 50
    assert all("." in job for job in shard["repairs"])


def test_a_shard_of_an_older_version_asks_to_plan_the_sweep_again(
    planned: Callable[..., SweepPlan], tmp_path: Path, monkeypatch, capsys
):
    plan = planned()
    [key] = plan.prepared
    shard = shutil.copytree(shard_of(plan), tmp_path / "0")
    shutil.copy(plan.directory / "sweep.json", tmp_path)
    source = shard / "source.json"
    content = json.loads(source.read_text())
    del content["repairs"], content["access_point"]
    source.write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["nodes", "prepare", "sweep.json", "0", key])
    with pytest.raises(SystemExit) as ended:
        nodes.main()
    assert ended.value.code == EXIT_HOPELESS
    message = capsys.readouterr().err
    assert "0/source.json: has no 'access_point': another version of condor-advice" in message
    assert "plan the sweep again with `condor-advice sweep init`" in message


def test_rotations_of_a_log_are_one_log_and_other_logs_are_not():
    names = ["EventLog", "EventLog.2", "EventLog.10", "user.log", "run.1", "run.2", "EventLog.1"]
    assert log_chains([Path(name) for name in names]) == [
        [Path("EventLog.10"), Path("EventLog.2"), Path("EventLog.1"), Path("EventLog")],
        [Path("user.log")],
        [Path("run.1")],
        [Path("run.2")],
    ]
    assert log_chains([Path("EventLog"), Path("EventLog.old")]) == [
        [Path("EventLog.old"), Path("EventLog")]
    ]
