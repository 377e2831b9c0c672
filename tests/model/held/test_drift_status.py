"""`condor-advice status` warns of drift with the day it began, fast, and only when there is one."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import time
from datetime import datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import write_model

from condor_advice.gather.store import Store
from condor_advice.lab.drifting import (
    AFTER_DAYS,
    BEFORE_DAYS,
    CHANGED,
    FIRST_DAY,
    OTHER_REASONS,
    episodes,
    profile,
    simulated,
)
from condor_advice.model.arrays import save_arrays
from condor_advice.model.held import drift
from condor_advice.model.registry import manifest
from condor_advice.model.registry.versions import Registry
from condor_advice.preprocess.holds.episode_store import KeptEpisodes


def run(*words: object) -> str:
    command = [sys.executable, "-m", "condor_advice", *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    work = tmp_path_factory.mktemp("logs")
    return (
        simulated(work / "before", 3, BEFORE_DAYS, profile(FIRST_DAY)),
        simulated(work / "after", 3, AFTER_DAYS, profile(CHANGED, OTHER_REASONS)),
    )


@pytest.fixture(scope="module")
def store(logs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "store.sqlite"
    # Cluster ids of the two repeat, as they do after a queue was wiped.
    for name, log in zip(("ap1", "ap2"), logs, strict=True):
        run("gather", "--store", path, "--access-point", name, "--zone", "UTC", log)
    return path


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("CONDOR_ADVICE_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Registry()


def trained_on(log: Path, tmp_path: Path) -> Path:
    """Write a model that keeps the reference of a log, in which it predicts nothing."""
    place = write_model(tmp_path, "trained", 0.3)
    observed = drift.Observed.of(episodes(log))
    save_arrays(place / drift.REFERENCE_FILE, drift.reference(observed))
    manifest.write(place, manifest.read_manifest(place)[0])
    return place


def test_status_warns_with_the_day_it_began(
    store: Path, logs: tuple[Path, Path], models: Registry, tmp_path: Path
) -> None:
    models.add(trained_on(logs[0], tmp_path))
    models.promote("trained", force=True)
    began = time.monotonic()
    found: dict[str, Any] = json.loads(run("status", "--store", store, "--json"))["advice"]
    assert time.monotonic() - began < 20  # about 2 s on an idle machine
    assert found["model"] == "trained"
    signals = {one["signal"]: one for one in found["drift"]}
    reasons = signals["hold_reasons"]
    assert reasons["drifted"]
    assert abs(datetime.fromisoformat(reasons["began"]) - CHANGED) < timedelta(days=2)
    [line] = [one for one in found["warnings"] if one.startswith("drift: the mix of hold reasons")]
    assert f"since {reasons['began'][:10]}" in line
    assert any("in training" in detail for detail in reasons["details"])
    pytest.importorskip("matplotlib")
    text = run("status", "--store", store, "--report", tmp_path / "status.html")
    page = (tmp_path / "status.html").read_text()
    assert escape(line) in page
    assert page.count('src="data:image/png;base64,') == 1
    assert not re.search(r"https?://", page)
    assert line in text
    assert "condor-advice train --store" in text


def test_a_model_without_a_reference_says_that_drift_cannot_be_measured(
    store: Path, models: Registry, tmp_path: Path
) -> None:
    models.add(write_model(tmp_path, "plain", 0.3))
    models.promote("plain", force=True)
    found = json.loads(run("status", "--store", store, "--json"))["advice"]
    assert found["drift"] == []
    assert "no reference data for drift" in found["drift_note"]


def test_a_damaged_model_does_not_hide_the_rest_of_the_status(
    store: Path, models: Registry, tmp_path: Path
) -> None:
    models.add(write_model(tmp_path, "plain", 0.3))
    models.promote("plain", force=True)
    (models.path("plain") / "trees.npz").write_bytes(b"")
    found = json.loads(run("status", "--store", store, "--json"))
    assert found["events"] > 1000
    assert "trees.npz" in found["advice"]["drift_note"]
    assert found["advice"]["feedback"]["holds"] == 0


def test_the_newest_holds_can_be_asked_for_alone(store: Path) -> None:
    with Store(store, readonly=True) as opened:
        kept = KeptEpisodes(opened)
        everything = np.sort(kept.samples().episodes["time"])
        since = kept.since_newest(500)
        assert since is not None
        newest = kept.samples(since)
        assert 500 <= len(newest) <= 500 + int((everything == everything[-500]).sum())
        assert kept.since_newest(10**9) is None


def test_holds_kept_with_other_features_are_not_compared(
    store: Path, models: Registry, tmp_path: Path, logs: tuple[Path, Path]
) -> None:
    models.add(trained_on(logs[0], tmp_path))
    models.promote("trained", force=True)
    copy = tmp_path / "store.sqlite"
    copy.write_bytes(store.read_bytes())
    with sqlite3.connect(copy) as db:
        [[names]] = db.execute("SELECT features FROM kept_pass").fetchall()
        other = ["new_feature", *json.loads(names)[1:]]
        db.execute("UPDATE kept_pass SET features = ?", (json.dumps(other),))
    found = json.loads(run("status", "--store", copy, "--json"))["advice"]
    assert (found["model"], found["drift"]) == ("trained", [])
    assert "of another version; run `condor-advice gather` once" in found["drift_note"]
