"""Training of models for held jobs: it learns, keeps kin apart, and refuses what is too little."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from held_world import held_world

from condor_advice.model.arrays import UnusableModel
from condor_advice.model.calibration import choose, fit_isotonic, fit_temperature
from condor_advice.model.held import propensity, stack
from condor_advice.model.held.baselines import BASELINES
from condor_advice.model.held.conformal import choose_bounds, corrected_risk
from condor_advice.model.held.data import CannotTrain, HeldData, join
from condor_advice.model.held.derived_columns import DERIVED, FEW, ReasonRates, derive, direction
from condor_advice.model.held.evaluate import Judged, evaluate, evaluate_baselines
from condor_advice.model.held.model import HeldModel
from condor_advice.model.held.parts import Inputs, trees
from condor_advice.model.held.rule_scores import rule_priors
from condor_advice.model.held.thresholds import Costs, cheapest, job_costs
from condor_advice.model.held.train import (
    HeldSettings,
    Trained,
    assemble,
    learn,
    save,
    train,
)
from condor_advice.model.held.training_rows import folds_of, later_ones
from condor_advice.model.held.words import feature_words
from condor_advice.model.infer import TreeEnsemble, logit, sigmoid
from condor_advice.model.metrics import calibration_error, log_loss, roc_auc
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.labels import NO_LABEL

pytest.importorskip("xgboost")
QUICK = HeldSettings(parts=("rules", "linear", "trees", "lstm"))  # the world has no evidence
QUICK = QUICK.change("trees", members=1, max_rounds=60)
QUICK = QUICK.change("lstm", epochs=6, hidden=8, learning_rate=1e-2)


@pytest.fixture(scope="module")
def two_access_points() -> HeldData:
    return join([held_world(500, seed=1), held_world(500, seed=2, source="ap2")])


@pytest.fixture(scope="module")
def trained(two_access_points) -> Trained:
    return train(two_access_points, QUICK, "a-model")


# ---- the whole


def test_the_stack_beats_every_baseline_and_every_part_has_its_gain(trained):
    unseen = held_world(800, seed=9, source="ap3")
    model = trained.model
    found = evaluate(model, unseen, rounds=20)
    baselines = evaluate_baselines(unseen, rounds=5)
    best = max(one["roc_auc"]["value"] for one in baselines.values())
    assert found["figures"]["roc_auc"]["value"] > best + 0.1
    assert found["figures"]["calibration_error"]["value"] < 0.08
    # In this world trees see the owner's rate, and only the LSTM sees evictions.
    assert set(model.weights) >= {"trees", "lstm"}
    assert trained.notes["gains"]["trees"] > 0.01
    assert trained.notes["gains"]["lstm"] > 0.003


def test_a_saved_model_says_what_the_one_in_memory_says(trained, tmp_path):
    save(trained, tmp_path, QUICK, {"validation": {"brier": 0.1}})
    loaded = HeldModel.load(tmp_path)
    unseen = held_world(50, seed=9)
    ours = trained.model.predict(Inputs.of(unseen))
    theirs = loaded.predict(Inputs.of(unseen))
    assert np.array_equal(ours.p_success, theirs.p_success)
    assert np.array_equal(ours.sure, theirs.sure)
    kinds = {
        one.kind for one in loaded.explain(Inputs.of_one(unseen.features[0], unseen.steps[:5]))
    }
    assert kinds >= {"feature", "event"}


def test_the_same_seed_gives_the_same_model_and_files(two_access_points, tmp_path):
    quick = replace(QUICK, parts=("rules", "trees"), feature_sets=("few",))
    for name in ("one", "two"):
        save(train(two_access_points, quick, "same"), tmp_path / name, quick, {})
    first, second = (
        json.loads((tmp_path / name / "manifest.json").read_text())["files"]
        for name in ("one", "two")
    )
    assert first == second


def test_one_access_point_is_cut_by_time_and_kin_stay_together():
    data = held_world(400)
    rows = data.labelled
    fold = folds_of(data, rows, 4)
    assert sorted(np.unique(fold)) == [0, 1, 2, 3]
    for kin in np.unique(data.kin):
        assert len(np.unique(fold[data.kin[rows] == kin])) == 1
    means = [data.time[rows][fold == nth].mean() for nth in range(4)]
    assert means == sorted(means)
    late = later_ones(data, rows, 0.25)
    assert 0.1 < late.mean() < 0.35
    for kin in np.unique(data.kin):
        assert len(np.unique(late[data.kin[rows] == kin])) == 1


def test_several_access_points_are_left_out_in_turn(two_access_points):
    rows = two_access_points.labelled
    assert np.array_equal(folds_of(two_access_points, rows, 4), two_access_points.source[rows])


def test_episodes_that_count_little_are_learned_from_but_never_judged_by(two_access_points):
    weight = np.where(two_access_points.source == 0, 1.0, 0.1)
    quick = replace(QUICK, parts=("rules", "trees"), feature_sets=("few",))
    learned = learn(two_access_points, quick, weight=weight)
    assert set(learned.data.source.tolist()) == {0}
    assert not np.isnan(learned.margins["trees"]).any()
    assert assemble(learned, quick, ("trees",), "part").model.weights.keys() == {"trees"}


# ---- what cannot be learned from


def test_too_few_episodes_are_refused_with_what_is_missing():
    with pytest.raises(CannotTrain, match=r"100 hold episodes.*at least 200 are needed.*gather"):
        train(held_world(100), QUICK)


def test_one_kind_of_outcome_is_refused():
    data = held_world(400)
    with pytest.raises(CannotTrain, match=r"0 succeeded.*20 successes and 20 failures are needed"):
        train(replace(data, label=np.zeros(400, np.int8)), QUICK)


@pytest.mark.parametrize("part", ["linear", "trees"])
def test_episodes_of_one_cluster_are_refused(part):
    """All are in one fold, and nothing is left to learn from when that fold is left out."""
    data = held_world(400)
    one_cluster = replace(data, kin=np.zeros(400, np.int64))
    with pytest.raises(CannotTrain, match=r"no labelled hold episode is left.*gather more logs"):
        train(one_cluster, replace(QUICK, parts=(part,)))


def test_features_of_another_version_are_refused(trained):
    unseen = held_world(10)
    with pytest.raises(UnusableModel, match="another version of condor-advice"):
        trained.model.predict(replace(Inputs.of(unseen), features=unseen.features[:, :-1]))


def test_training_data_of_another_version_is_refused(tmp_path, monkeypatch):
    held_world(20).save(tmp_path / "data.npz")
    assert len(HeldData.load(tmp_path / "data.npz")) == 20
    monkeypatch.setattr("condor_advice.model.held.data.FEATURE_NAMES", ("other",))
    with pytest.raises(CannotTrain, match="another version"):
        HeldData.load(tmp_path / "data.npz")


def test_a_job_whose_submission_is_unknown_is_answered_and_not_far_off(trained):
    """What depends on the submission is NaN then, and each part copes with NaN."""
    unseen = held_world(200, seed=5)
    whole = trained.model.predict(Inputs.of(unseen))
    torn = unseen.features.copy()
    for name in FEATURE_NAMES:
        if name.startswith("job_") or name == "mates_done":
            torn[:, FEATURE_NAMES.index(name)] = np.nan
    answers = trained.model.predict(replace(Inputs.of(unseen), features=torn))
    assert np.all(np.isfinite(answers.p_success))
    label = (unseen.label == 1).astype(float)
    assert roc_auc(label, answers.p_success) > roc_auc(label, whole.p_success) - 0.1


def test_a_release_after_a_repair_says_nothing_of_a_release_as_is():
    data = held_world(400)
    changed = np.arange(400) % 10 == 0
    label = np.where(changed, NO_LABEL, data.label).astype(np.int8)
    repaired = replace(data, changed=changed, label=label)
    assert len(repaired.labelled) == 360
    assert repaired.summary()["released_after_a_repair"] == 40
    # In training it does not count, or as one that would not have succeeded as it was.
    quick = replace(QUICK, parts=("linear",))
    assert len(learn(repaired, quick).label) == 360
    assert len(learn(repaired, replace(quick, repaired_failed=True)).label) == 400


# ---- trees


def test_numpy_trees_are_xgboosts_on_every_row(two_access_points):
    import xgboost

    rows, label = two_access_points.features, two_access_points.label.astype(float)
    settings = trees.TreeSettings(members=3, max_depth=4)
    directions = [direction(name) for name in FEATURE_NAMES]
    members = trees.boosters(rows, label, np.ones(len(label)), 40, settings, directions)
    ours = TreeEnsemble.average([TreeEnsemble.from_xgboost(one) for one in members])
    unseen = held_world(500, seed=11).features
    theirs = [one.predict(xgboost.DMatrix(unseen), output_margin=True) for one in members]
    assert np.max(np.abs(ours.predict_margin(unseen) - np.mean(theirs, axis=0))) < 1e-5
    shares = [one.predict(xgboost.DMatrix(unseen[:5]), pred_contribs=True) for one in members]
    for row in range(5):
        told = ours.contributions(unseen[row], unseen.shape[1])
        assert np.max(np.abs(told - np.mean(shares, axis=0)[row])) < 1e-5


def test_a_column_with_a_direction_never_speaks_the_other_way(trained):
    model, unseen = trained.model, held_world(100, seed=3)
    column = FEATURE_NAMES.index("owner_family_success_rate")
    low, high = unseen.features.copy(), unseen.features.copy()
    low[:, column], high[:, column] = 0.1, 0.9
    parts = [
        model.part_margins(replace(Inputs.of(unseen), features=x))["trees"] for x in (low, high)
    ]
    assert np.all(parts[0] <= parts[1] + 1e-9)


# ---- reasons


def test_a_reason_of_unknown_wording_and_kind_ends_with_the_rules():
    data = held_world(300)
    rates = ReasonRates.learn(data.features, data.label.astype(float), np.ones(300))
    unknown = data.features[:1].copy()
    unknown[:, FEATURE_NAMES.index("hold_code")] = 99
    unknown[:, FEATURE_NAMES.index("hold_template")] = 1000  # the world's are small numbers
    assert rates.by_template.all[1000] == 0
    margin = logit(rule_priors(unknown, FEATURE_NAMES))
    expected = sigmoid(rates.slope * margin + rates.shift)
    assert rates.chances(unknown).reason == pytest.approx(expected, abs=1e-9)
    assert rates.chances(unknown).again == pytest.approx(expected, abs=1e-9)
    # A wording of a known kind is known by its kind, and one more case moves it a little.
    known = data.features[:1].copy()
    known[:, FEATURE_NAMES.index("hold_template")] = 1000
    assert rates.chances(known).reason != pytest.approx(expected, abs=1e-3)


def test_a_rows_own_kin_do_not_tell_it_its_label():
    """A template that occurs in one cluster only has taught nothing about that cluster."""
    data = held_world(400)
    features = data.features.copy()
    features[:, FEATURE_NAMES.index("hold_template")] = 1 + data.kin
    for name, value in (("hold_code", 3), ("hold_family", 5), ("hold_http_status", np.nan)):
        features[:, FEATURE_NAMES.index(name)] = value
    label, ones = data.label.astype(float), np.ones(400)
    rates = ReasonRates.learn(features, label, ones)
    told = rates.chances(features)
    honest = rates.chances(features, (label, ones, data.kin))
    assert roc_auc(label, told.reason) > 0.65  # looking at one's own label helps
    assert np.ptp(honest.reason) < 0.02  # and here nobody else has anything to tell
    assert derive(features, honest).shape == (400, len(DERIVED))


def test_derived_columns_have_words(trained):
    assert feature_words("reason_chance", 0.0) == ("Success rate of such holds in training: 50%")
    assert feature_words("came_back", 2.0).endswith(": 2")
    assert feature_words("job_age", float("nan")).endswith("not known")
    assert set(FEW) <= set(FEATURE_NAMES)


# ---- stack, calibration, abstention, thresholds


def test_a_part_that_counts_against_itself_gets_no_weight():
    rng = np.random.default_rng(0)
    label = (rng.random(1000) < 0.4).astype(float)
    good = 2.0 * label - 1 + rng.normal(size=1000)
    weights, _ = stack.fit({"good": good, "wrong": -good}, label, np.ones(1000))
    assert weights["wrong"] == 0
    assert weights["good"] > 0.5
    noise = rng.normal(size=1000)
    gains = stack.gains({"good": good, "noise": noise}, label, np.ones(1000), np.arange(1000))
    assert gains["good"] > 0.1 > abs(gains["noise"])


@pytest.mark.parametrize("fit", [fit_temperature, fit_isotonic])
def test_overconfident_answers_are_calmed(fit):
    rng = np.random.default_rng(0)
    margin = rng.normal(scale=2.0, size=4000)
    label = (rng.random(4000) < sigmoid(margin)).astype(float)
    wild = 3.0 * margin + 1.0
    p = fit(wild, label, np.ones(4000))(wild)
    assert calibration_error(label, p) < 0.03 < calibration_error(label, sigmoid(wild))
    assert np.all(np.diff(p[np.argsort(wild)]) >= -1e-12)


def test_calibration_is_chosen_by_what_it_does_to_other_clusters():
    rng = np.random.default_rng(1)
    margin = rng.normal(size=2000)
    label = (rng.random(2000) < sigmoid(margin)).astype(float)
    chosen, losses = choose(5 * margin, label, np.ones(2000), np.arange(2000) // 5)
    assert chosen.kind == min(losses, key=lambda kind: losses[kind]) != "none"
    assert log_loss(label, chosen(5 * margin)) < losses["none"]


def test_the_share_of_wrong_confident_answers_stays_at_the_promised_risk():
    """Many draws of clusters: bounds from one half, wrong answers counted in the other."""
    rng = np.random.default_rng(2)
    wrong, said = 0.0, 0.0
    for _ in range(40):
        kin = np.repeat(np.arange(400), 5)
        p = sigmoid(rng.normal(scale=1.5, size=400) - 1.0)[kin]
        label = (rng.random(2000) < p).astype(float)
        first = kin < 200
        rule = choose_bounds(p[first], label[first], kin[first], risk=0.1)
        sure = rule.sure(p) & ~first
        wrong += np.sum((p[sure] >= rule.succeeds_from) != (label[sure] > 0))
        said += np.sum(sure)
    assert said > 0.2 * 40 * 1000
    assert wrong / said <= 0.1


def test_with_nothing_to_be_sure_of_the_model_always_abstains():
    p, label = np.full(200, 0.4), np.tile([0.0, 1.0], 100)
    rule = choose_bounds(p, label, np.arange(200))
    assert not rule.sure(np.linspace(0, 1, 101)).any()
    assert corrected_risk(np.zeros(0), np.zeros(0, int)) == 1.0


def test_the_cheapest_threshold_follows_the_costs():
    rng = np.random.default_rng(3)
    p = rng.random(3000)
    label = (rng.random(3000) < p).astype(float)
    dear_release = Costs(np.full(3000, 9.0), np.full(3000, 1.0))
    dear_remove = Costs(np.full(3000, 1.0), np.full(3000, 9.0))
    assert cheapest(p, label, dear_release) == pytest.approx(0.9, abs=0.06)
    assert cheapest(p, label, dear_remove) == pytest.approx(0.1, abs=0.06)
    assert np.allclose(dear_release.thresholds(), 0.9)
    assert dear_release.of(np.array([True]), np.array([0.0]))[0] == 9.0


def test_costs_come_from_the_jobs_own_runs():
    row = np.full((2, len(FEATURE_NAMES)), np.nan, np.float32)
    for name, value in (
        ("job_run_longest", 7200),
        ("job_run_total", 10800),
        ("job_cpus_request", 4),
    ):
        row[0, FEATURE_NAMES.index(name)] = value
    costs = job_costs(row, FEATURE_NAMES)
    assert costs.failed_release[0] == pytest.approx(8, rel=0.01)
    assert costs.wrong_remove[0] == pytest.approx(12, rel=0.01)
    assert 0 < costs.failed_release[1] < 0.1  # never ran: matching and starting alone


# ---- selection bias


def test_propensity_weights_make_up_for_what_people_choose_to_release():
    data = held_world(3000, noise=0.5)
    rate = data.features[:, FEATURE_NAMES.index("owner_success_rate")]
    features = data.features.copy()
    features[:, FEATURE_NAMES.index("owner_family_success_rate")] = rate
    features[:, FEATURE_NAMES.index("hold_number")] = 1
    chosen = np.random.default_rng(0).random(3000) < np.clip(0.1 + 0.9 * rate, 0, 1)
    biased = replace(
        data, features=features, label=np.where(chosen, data.label, -1).astype(np.int8)
    )
    found = propensity.estimate(biased)
    truth = float(np.mean(data.label))
    plain = float(np.mean(data.label[chosen]))
    weighted = float(np.average(data.label[chosen], weights=found.weight[chosen]))
    assert found.roc_auc > 0.6
    assert abs(weighted - truth) < 0.6 * abs(plain - truth)
    assert found.weight[~chosen].max() == 0


def test_a_late_hold_counts_for_those_that_nobody_released_so_often():
    data = held_world(2000)
    features = data.features.copy()
    number = np.random.default_rng(1).integers(1, 5, 2000)
    features[:, FEATURE_NAMES.index("hold_number")] = number
    half = np.random.default_rng(2).random(2000) < 0.5  # every other one is released
    found = propensity.estimate(
        replace(data, features=features, label=np.where(half, data.label, -1).astype(np.int8))
    )
    means = [found.weight[half & (number == nth)].mean() for nth in (1, 2, 3)]
    assert means[1] / means[0] == pytest.approx(2.0, rel=0.4)
    assert means[2] > means[1] > means[0]


def test_baselines_answer_for_every_episode():
    train_data, test_data = held_world(300), held_world(200, seed=1)
    for level in ("template", "cluster_template"):  # the world's features are any numbers
        test_data.features[:, FEATURE_NAMES.index(f"{level}_success_rate")] = np.nan
    for name, baseline in BASELINES.items():
        p = baseline(train_data, test_data)
        assert p.shape == (200,), name
        assert np.all((p >= 0) & (p <= 1)), name
    judged = Judged.of(test_data)
    drawn = judged.draws(3, seed=0)
    for rows in drawn:  # whole clusters: each member as often as its kin
        _, counts = np.unique(judged.kin[rows], return_counts=True)
        assert np.all(counts % 4 == 0)
