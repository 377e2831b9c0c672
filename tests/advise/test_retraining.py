"""Retraining by one command, as from cron: train, compare, promote or keep."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from condor_advice.lab.drifting import FIRST_DAY, profile, simulated
from condor_advice.model.held.model import HeldModel
from condor_advice.model.registry.versions import Registry

pytest.importorskip("xgboost")


def run(*words: object, expect: int = 0) -> str:
    command = [sys.executable, "-m", "condor_advice", *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == expect, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("retraining")
    log = simulated(work / "log", 6, 12, profile(FIRST_DAY))
    run("gather", "--store", work / "store.sqlite", "--zone", "UTC", log)
    return work / "store.sqlite"


def test_retraining_decides_by_holds_that_it_did_not_learn_from(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDOR_ADVICE_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    train = ["train", "--store", store, "--since", "2026-03-01", "--parts", "rules", "--json"]
    found: dict[str, Any] = json.loads(run(*train, "--name", "first"))
    gate = found["gate"]
    assert gate["episodes"] > 300
    assert gate["left_out"] == 0
    ended = datetime.fromisoformat(found["trained_on"]["until"])
    assert ended <= datetime.fromisoformat(gate["begins"])
    models = Registry()
    assert found["promoted"] == gate["passed"]
    assert models.current_name() == ("first" if gate["passed"] else "shipped")
    assert models.history()[-1].gate == gate
    # The same again can be no worse than itself.
    if not gate["passed"]:
        models.promote("first", force=True)
    again = json.loads(run(*train, "--name", "second"))
    assert again["gate"]["current"] == "first"
    assert again["gate"]["verdict"] == "not worse", again["gate"]["reason"]
    assert again["gate"]["difference"] == 0.0
    assert HeldModel.load(models.current()).name == "second"
    assert run("model", "rollback").startswith("first is now in use")
    status = json.loads(run("status", "--store", store, "--json"))["advice"]
    assert status["model"] == "first"
    assert [signal["signal"] for signal in status["drift"]] == [
        "hold_reasons",
        "features",
        "calibration",
    ]
