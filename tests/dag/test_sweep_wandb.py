"""Nodes write offline W&B runs, and the access point sends them with the real client."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from wandb_server import WandbServer

from condor_advice.dag import sync
from condor_advice.dag.plan import SweepPlan
from condor_advice.dag.state import SweepState, TrialState
from condor_advice.gather.errors import AdviceError, Unreachable

pytest.importorskip("wandb")

SECRET = "local-0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A W&B server on loopback, and an environment that points to it."""
    for name in list(os.environ):
        if name.startswith("WANDB_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    with WandbServer() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", SECRET)
        yield server


def train(plan: SweepPlan, number: int, losses: list[float]) -> None:
    """Write what a trial's node writes: an offline run in its `out`, with the node's code."""
    rows = [
        {"epoch": epoch, "metrics": {"validation_loss": loss}}
        for epoch, loss in enumerate(losses, 1)
    ]
    with SweepState(plan.directory) as state:
        trial = state.ask(number, lambda _: {"hidden": 4 + number, "epochs": 9})
        task = {
            "trial": number,
            "sweep": plan.name,
            "identity": plan.run_identity(number),
            "wandb_sweep": state.noted("wandb_sweep"),
            "parameters": dict(trial.parameters),
            "texts": dict(plan.texts),
        }
        epochs = {row["epoch"]: row["metrics"] for row in rows}
        state.tell(number, epochs, lambda _trials, _trial: (TrialState.PAUSED, ""))
    place = plan.trial_directory(number)
    place.mkdir(parents=True, exist_ok=True)
    script = (
        "import json, sys; from pathlib import Path; from condor_advice.dag import nodes; "
        "nodes.OUT.mkdir(exist_ok=True); nodes._track(*json.loads(sys.argv[1]))"
    )
    import subprocess
    import sys

    # Without the key, as on an execution point.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    subprocess.run(
        [sys.executable, "-c", script, json.dumps([task, rows])],
        cwd=place,
        env=environment,
        check=True,
        capture_output=True,
    )


def test_offline_runs_are_sent_once_and_again_when_they_have_grown(planned, online):
    plan = planned(trials=2, project="held-jobs", name="night")
    assert sync.create_sweep(plan) == "sweep1"
    assert sync.create_sweep(plan) == "sweep1", "a sweep is created once"
    train(plan, 0, [0.9, 0.8])
    train(plan, 1, [0.7])
    found = sync.sync(plan)
    assert (found.sweep, found.runs, found.problems) == ("sweep1", [0, 1], [])
    # HTCondor does not transfer links to directories, which W&B writes.
    left = plan.trial_directory(0) / "out"
    assert [path for path in left.rglob("*") if path.is_symlink()] == []
    assert sync.sync(plan).runs == []

    identity = plan.run_identity(0)
    run = online.runs[identity]
    assert run["sweep"] == "sweep1"
    assert run["project"] == "held-jobs"
    assert run["groupName"] == "night"
    assert json.loads(run["config"])["hidden"] == {"value": 4}
    logged = [(row["_step"], row["validation_loss"]) for row in online.history[identity].values()]
    assert logged == [(1, 0.9), (2, 0.8)]

    train(plan, 0, [0.9, 0.8, 0.6])
    assert sync.sync(plan).runs == [0]
    assert len(online.runs) == 2, "it is the same run, grown"
    assert [row["_step"] for row in online.history[identity].values()] == [1, 2, 3]
    [sweep] = online.sweeps
    assert "validation_loss" in sweep["config"]
    for path in plan.directory.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_following_ends_with_the_sweep_and_sends_the_last_run(planned, online):
    plan = planned(trials=2)
    train(plan, 0, [0.9])
    asked = []

    def is_running() -> bool:
        asked.append(1)
        if len(asked) == 1:
            return True
        train(plan, 1, [0.5])  # the last trial ends just when the sweep does
        return False

    said: list[str] = []
    found = sync.follow(plan, is_running, said.append, every_seconds=0.1)
    assert found.runs == [0, 1]
    assert said == ["trial-0 sent", "trial-1 sent"]


def test_without_a_key_nothing_is_sent(planned, online, monkeypatch):
    plan = planned()
    monkeypatch.delenv("WANDB_API_KEY")
    assert sync.create_sweep(plan) is None
    with pytest.raises(AdviceError, match="WANDB_API_KEY is not set"):
        sync.sync(plan)
    assert online.operations == []


def test_the_message_of_a_refusing_server_hides_the_key(planned, online):
    plan = planned()
    online.refuse = True
    with pytest.raises(Unreachable, match="W&B did not accept the sweep") as caught:
        sync.create_sweep(plan)
    assert SECRET not in str(caught.value)
    with SweepState(plan.directory) as state:
        assert state.noted("wandb_sweep") is None
