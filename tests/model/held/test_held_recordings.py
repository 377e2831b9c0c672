"""The recordings as training data, the rules read from features, and the two commands."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch_lstm import torch_margins

from condor_advice.gather.clock import Clock, find_zone
from condor_advice.lab.recording import unpack
from condor_advice.lab.training_data import recorded, simulated
from condor_advice.lab.truth import in_order, read_holds
from condor_advice.model.held import lstm_training
from condor_advice.model.held.repairs import without_repairs
from condor_advice.model.held.rule_scores import rules_of
from condor_advice.model.held.rules import rule_for
from condor_advice.model.infer import TreeEnsemble
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.job_numbers import job_parts
from condor_advice.preprocess.holds.samples import Samples, collect
from condor_advice.preprocess.holds.timeline import log_timeline


@pytest.fixture(scope="module")
def pool_a(tmp_path_factory) -> tuple[Path, Samples]:
    directory = unpack("pool_a", tmp_path_factory.mktemp("recording"))
    log = directory / "joined"
    parts = in_order(directory / "events" / "EventLog")
    log.write_bytes(b"".join(part.read_bytes() for part in parts))
    return log, collect(log_timeline([log], Clock(find_zone("UTC")), "pool_a"))


def advice(*arguments: object, models: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "condor_advice", *map(str, arguments)]
    env = {"PATH": "/usr/bin:/bin", "CONDOR_ADVICE_MODELS": str(models), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=280)


def test_the_rules_say_the_same_of_features_as_of_the_reason(pool_a):
    log, samples = pool_a
    by_features = rules_of(samples.features, FEATURE_NAMES)
    holds = {(hold.job, hold.number): hold for hold in read_holds([log])}
    back = samples.features[:, FEATURE_NAMES.index("past_holds_same_template")]
    same = close = 0
    for row, rule in enumerate(by_features):
        _, cluster, proc = job_parts(int(samples.episodes["job"][row]))
        hold = holds[(cluster, proc), int(samples.episodes["number"][row])]
        by_text = rule_for(hold.code, hold.subcode, hold.reason, int(min(back[row], 3)))
        same += by_text.name == rule.name
        close += abs(by_text.prior - rule.prior) < 0.2
    assert same / len(by_features) > 0.95
    assert close / len(by_features) > 0.99


def test_without_repairs_to_forget_the_rates_are_those_of_the_pass(pool_a):
    """Two ways to count what was known at a hold agree on every column and row."""
    _, samples = pool_a
    changed = samples.outcomes["changed"] != 0
    assert changed.any()
    counted = without_repairs(samples, changed)
    assert np.allclose(counted, samples.features, rtol=1e-5, equal_nan=True)


def test_a_repaired_job_no_longer_counts_as_a_success_of_its_kind(pool_a):
    _, samples = pool_a
    lab = recorded("pool_a")
    changed = lab.data.changed
    assert 50 < changed.sum() < 500
    assert np.all(lab.data.label[changed] == -1)
    column = FEATURE_NAMES.index("pool_good_total")
    all_counted = without_repairs(samples, np.zeros(len(samples), bool))
    fewer = all_counted[:, column] - lab.data.features[:, column]
    assert fewer.min() == 0
    assert 30 < fewer.max() <= changed.sum()


def test_a_simulated_access_point_is_training_data_too():
    lab = simulated(1500, seed=3)
    assert len(lab.data.labelled) > 20
    assert len(lab.scenario) == len(lab.data)
    assert lab.data.sources == ("simulated-3",)


def test_train_registers_a_candidate_asks_the_gate_and_says_what_it_found(tmp_path):
    models = tmp_path / "models"
    done = advice(
        "train", "--recording", "pool_a", "--parts", "rules,linear", "--json", models=models
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 0.6 < found["metrics"]["validation"]["roc_auc"] < 0.95
    assert found["gate"]["verdict"] in ("better", "not worse", "worse", "unclear")
    assert found["promoted"] == (found["gate"]["verdict"] in ("better", "not worse"))
    assert found["trained_on"]["sources"] == ["pool_a"]
    [kept] = list(models.rglob("manifest.json"))
    assert (kept.parent / "card" / "card.md").exists()
    # The candidate is there by name, and can be judged.
    done = advice(
        "evaluate",
        *("--recording", "pool_b", "--model", found["model"], "--bootstrap", 20, "--json"),
        *("--figures", tmp_path / "png", "--report", tmp_path / "page.html"),
        models=models,
    )
    assert done.returncode == 0, done.stderr
    judged = json.loads(done.stdout)
    assert judged["learned_from"] == []
    assert judged["figures"]["roc_auc"]["value"] > 0.6
    assert set(judged["regret_cpu_hours"]) >= {"always release", "always remove", "rules", "oracle"}
    assert judged["regret_cpu_hours"]["oracle"] == 0
    assert {path.suffix for path in (tmp_path / "png").iterdir()} == {".png"}
    assert len(judged["pictures"]) >= 5
    page = (tmp_path / "page.html").read_text()
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")


def test_evaluate_says_when_the_model_has_seen_the_episodes(tmp_path):
    done = advice("evaluate", "--recording", "pool_a", "--bootstrap", 5, models=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "learned from pool_a" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said", "status"),
    [
        (("train", "--recording", "pool_x"), "no recording named 'pool_x'", 1),
        (("train", "--parts", "magic"), "choose from rules, linear, trees, evidence, lstm", 2),
        (("train", "--recording", "pool_a", "--since", "soon"), "'soon' is not a time", 2),
        (("train", "--recording", "pool_a", "--since", "2090-01-01"), "0 hold episodes", 1),
        (("train", "--store", "/nowhere.db"), "/nowhere.db", 4),
        (("train", "--export", "/nowhere"), "not an export of condor-advice", 1),
        (("evaluate", "--model", "no-such"), "no model named 'no-such'", 2),
    ],
)
def test_what_cannot_be_done_is_said_where_and_what_next(arguments, said, status, tmp_path):
    done = advice(*arguments, models=tmp_path)
    assert said in done.stderr
    assert done.returncode == status
    assert "Traceback" not in done.stderr


def test_numpy_is_xgboost_and_torch_on_the_whole_test_recording():
    import xgboost

    learned, test = recorded("pool_b").data, recorded("pool_c").data
    rows = learned.labelled
    booster = xgboost.train(
        {"objective": "binary:logistic", "max_depth": 4, "nthread": 1},
        xgboost.DMatrix(learned.features[rows], learned.label[rows]),
        60,
    )
    theirs = booster.predict(xgboost.DMatrix(test.features), output_margin=True)
    ours = TreeEnsemble.from_xgboost(booster).predict_margin(test.features)
    assert len(test) > 2500
    assert np.max(np.abs(ours - theirs)) < 1e-5
    some = learned.take(rows[:300])
    network = lstm_training.train(some, some, replace(lstm_training.LstmSettings(), epochs=1))
    ours = network.network.margins(test.steps, test.offsets)
    assert np.max(np.abs(ours - torch_margins(network, test))) < 1e-5
