"""Failure models: trained on the past alone, saved as plain arrays, honest about themselves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from condor_advice.gather.workloads.table import JobState, JobTable
from condor_advice.lab.workload import simulate_jobs
from condor_advice.model.arrays import UnusableModel
from condor_advice.model.calibration import fit_line
from condor_advice.model.failure.evaluate import evaluate
from condor_advice.model.failure.model import FailureModels, NotAPrediction, states
from condor_advice.model.failure.train import (
    TooFewJobs,
    TrainSettings,
    time_folds,
    train_horizon,
    train_models,
)
from condor_advice.model.infer import sigmoid
from condor_advice.model.metrics import (
    bootstrap,
    pr_auc,
    roc_auc,
    scores,
    threshold_for_cost,
    threshold_for_f1,
    threshold_for_precision,
)
from condor_advice.preprocess.jobs.horizons import Horizon, JobFeatures, Labels, TimeSplit

pytest.importorskip("xgboost")

QUICK = TrainSettings(trials=2, members=2, max_rounds=40, threads=1, seed=1)


@pytest.fixture(scope="module")
def table() -> JobTable:
    return simulate_jobs(3000, seed=8, users=15)


@pytest.fixture(scope="module")
def models(table: JobTable) -> FailureModels:
    return train_models(table, [Horizon.SUBMIT, Horizon.START], Labels(), QUICK)


def test_trees_beat_the_rule_of_the_last_outcome(table: JobTable) -> None:
    report, _ = evaluate(table, [Horizon.SUBMIT], Labels(), 0.6, QUICK, bootstrap_rounds=20)
    found = report["horizons"]["submit"]
    for name in (
        "roc_auc",
        "pr_auc",
        "f1",
        "precision",
        "recall",
        "accuracy",
        "n_test",
        "base_rate",
    ):
        assert name in found
    assert found["roc_auc"] > found["baselines"]["last_outcome"]["roc_auc"]
    assert found["baselines"]["majority"]["accuracy"] == pytest.approx(1 - found["base_rate"])
    low, high = found["intervals"]["roc_auc"]
    assert low < found["roc_auc"] < high
    assert report["states"]["cancelled"] > 0
    json.dumps(report)


def test_nothing_is_chosen_on_the_test_part(table: JobTable) -> None:
    split = TimeSplit.at_share(table, 0.6)
    state = table["state"].copy()
    later = table["submit_time"] >= split.moment
    state[later] = np.where(state[later] == JobState.SUCCEEDED, JobState.FAILED, JobState.SUCCEEDED)
    turned = JobTable(table.job, {**table.numbers, "state": state}, table.text, table.vocabularies)
    found = []
    for jobs in (table, turned):
        data = JobFeatures.for_table(jobs.known_at(split.moment)).datasets(jobs, [Horizon.SUBMIT])[
            Horizon.SUBMIT
        ]
        found.append(train_horizon(data, split, QUICK))
    one, other = found
    assert one.thresholds == other.thresholds
    assert one.notes["parameters"] == other.notes["parameters"]
    assert (one.slope, one.offset) == (other.slope, other.offset)
    for name in ("feature", "threshold", "value"):
        assert np.array_equal(getattr(one.trees, name), getattr(other.trees, name))


def test_folds_learn_only_from_jobs_that_ended_before_the_fold(table: JobTable) -> None:
    data = JobFeatures.for_table(table).datasets(table, [Horizon.SUBMIT])[Horizon.SUBMIT]
    rows = np.flatnonzero(TimeSplit.at_share(table, 0.6).past(data))
    folds = time_folds(data, rows, 3)
    assert len(folds) == 3
    for fold in folds:
        assert data.end[fold.learn].max() < data.submit[fold.judge].min()


def test_one_seed_gives_one_model(table: JobTable) -> None:
    small = table.take(np.arange(1200))
    first, second = (train_models(small, [Horizon.SUBMIT], Labels(), QUICK) for _ in range(2))
    assert np.array_equal(
        first.models[Horizon.SUBMIT].trees.value, second.models[Horizon.SUBMIT].trees.value
    )


def test_a_saved_model_says_the_same_after_loading(
    models: FailureModels, table: JobTable, tmp_path: Path
) -> None:
    models.save(tmp_path)
    again = FailureModels.load(tmp_path)
    jobs = table.take(np.arange(len(table) - 20, len(table)))
    now = float(jobs["submit_time"].max()) + 60.0
    before, after = models.at_submit(jobs, now)[1], again.at_submit(jobs, now)[1]
    assert np.array_equal(before, after)
    assert set(again.sizes) == {"memory_mb", "disk_mb", "run_seconds"}
    assert again.anomalies is not None
    assert again.models[Horizon.START].thresholds == models.models[Horizon.START].thresholds
    names = "".join(path.read_bytes().decode("latin1") for path in tmp_path.iterdir())
    assert "user3" not in names  # users' names stay out of a model


def test_post_mortem_is_refused_for_prediction_everywhere(
    models: FailureModels, table: JobTable, tmp_path: Path
) -> None:
    with pytest.raises(NotAPrediction, match="knows how the job ended"):
        models.get(Horizon.POST_MORTEM)
    data = models.maker.datasets(table, [Horizon.POST_MORTEM])[Horizon.POST_MORTEM]
    end = train_horizon(data, TimeSplit.at_share(table, 0.6), QUICK)
    assert any(name.startswith("post_mortem.") for name in end.names)
    sneaky = FailureModels(models.maker, {Horizon.POST_MORTEM: end}, models.history)
    with pytest.raises(NotAPrediction):
        sneaky.save(tmp_path)
    models.save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["horizons"]["post_mortem"] = manifest["horizons"]["submit"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(NotAPrediction):
        FailureModels.load(tmp_path)
    with pytest.raises(UnusableModel, match=r"needs post_mortem\."):
        end.probability(models.maker.at_submit(table.take([0]), models.history, 2e9))


def test_a_model_of_another_horizon_or_none_is_a_clear_error(
    models: FailureModels, tmp_path: Path
) -> None:
    with pytest.raises(UnusableModel, match="not trained for running"):
        models.get(Horizon.RUNNING)
    with pytest.raises(UnusableModel, match="failures train"):
        FailureModels.load(tmp_path / "nothing")


def test_too_few_jobs_is_said_so(table: JobTable) -> None:
    with pytest.raises(TooFewJobs, match="at least 200 are needed"):
        train_models(table.take(np.arange(100)), [Horizon.SUBMIT], Labels(), QUICK)


def test_reasons_add_up_to_the_log_odds(models: FailureModels, table: JobTable) -> None:
    data, probability = models.at_submit(table.take([5]), 2e9)
    model = models.get(Horizon.SUBMIT)
    row = model.select(data)[0]
    shares = sum(share for _, _, share in model.reasons(row))
    usual = model.slope * model.trees.contributions(row, len(model.names))[-1] + model.offset
    assert sigmoid(np.array([shares + usual]))[0] == pytest.approx(probability[0])


def test_areas_agree_with_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(4)
    label = (rng.random(500) < 0.3).astype(float)
    score = np.round(label * 0.3 + rng.random(500), 1)  # many ties
    assert roc_auc(label, score) == pytest.approx(metrics.roc_auc_score(label, score))
    assert pr_auc(label, score) == pytest.approx(metrics.average_precision_score(label, score))
    found = scores(label, np.clip(score, 0, 1), 0.6)
    said = np.clip(score, 0, 1) >= 0.6
    assert found.f1 == pytest.approx(metrics.f1_score(label, said))
    assert found.brier == pytest.approx(metrics.brier_score_loss(label, np.clip(score, 0, 1)))
    assert found.log_loss == pytest.approx(
        metrics.log_loss(label, np.clip(score, 1e-7, 1 - 1e-7)), rel=1e-6
    )


def test_thresholds_keep_what_they_promise() -> None:
    rng = np.random.default_rng(9)
    label = (rng.random(2000) < 0.2).astype(float)
    score = sigmoid(2.0 * label + rng.normal(size=2000))
    best = threshold_for_f1(label, score)
    assert (
        scores(label, score, best).f1
        >= max(scores(label, score, other).f1 for other in np.linspace(0.05, 0.95, 40)) - 1e-12
    )
    exact = scores(label, score, threshold_for_precision(label, score, 0.9))
    assert exact.precision >= 0.9
    assert exact.recall > 0
    assert threshold_for_precision(np.zeros(50), score[:50], 0.9) > 1.0
    careful = threshold_for_cost(label, score, 20.0)
    assert careful < threshold_for_cost(label, score, 1.0)


def test_calibration_finds_the_line_and_intervals_hold_the_figure() -> None:
    rng = np.random.default_rng(2)
    margin = rng.normal(size=20_000)
    label = (rng.random(20_000) < sigmoid(0.5 * margin - 1.0)).astype(float)
    slope, offset = fit_line(margin, label, 1e-6)
    assert (slope, offset) == (pytest.approx(0.5, abs=0.05), pytest.approx(-1.0, abs=0.05))
    probability = sigmoid(slope * margin + offset)
    low, high = bootstrap(label, probability, 0.3, np.arange(20_000) % 300.0, 0, 50)["roc_auc"]
    assert low < roc_auc(label, probability) < high


def test_which_states_count_as_failed_is_a_setting(table: JobTable) -> None:
    usual = Labels().of(table)
    cancelled = table.state == JobState.CANCELLED
    assert np.isnan(usual[cancelled]).all()
    wide = Labels(failed=states(["failed", "cancelled"]))
    assert np.all(wide.of(table)[cancelled] == 1.0)
    with pytest.raises(Exception, match="unknown state sad; choose from"):
        states(["sad"])


def test_a_real_public_log_is_predicted_better_than_by_its_last_outcome(shared: Path) -> None:
    from condor_advice.gather.workloads import read_swf

    jobs = read_swf(shared / "data" / "workloads" / "KTH-SP2-1996-2.1-cln.swf.xz")
    quick = TrainSettings(trials=1, members=1, max_rounds=60, threads=1)
    report, _ = evaluate(jobs, [Horizon.SUBMIT], Labels(), 0.6, quick, bootstrap_rounds=20)
    found = report["horizons"]["submit"]
    assert found["roc_auc"] > 0.83
    assert found["f1"] > found["baselines"]["last_outcome"]["f1"]
