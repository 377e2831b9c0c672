"""The gate: who may replace whom, told by whole clusters and only by episodes nobody has seen."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from held_world import held_world
from small_models import small_model

from condor_advice.gather.errors import UsageError
from condor_advice.model.registry import gate
from condor_advice.model.registry.gate import compare, hold_out_newest, judge, paired_bootstrap
from condor_advice.preprocess.holds.labels import NO_LABEL
from condor_advice.preprocess.holds.outcomes import OUTCOME_INDEX, Outcome


def iso(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat()


def test_better_equal_and_worse_models_are_told_apart_with_figures() -> None:
    window = held_world(1200, seed=1)
    plain, good, wrong = (small_model(n, s) for n, s in (("a", 0.1), ("b", 0.6), ("c", -0.5)))
    better = compare(plain, good, window)
    assert (better.verdict, better.passed, better.episodes, better.kin) == (
        "better",
        True,
        1200,
        300,
    )
    assert better.interval is not None
    assert better.interval[0] < better.difference < better.interval[1] < 0  # type: ignore[operator]
    assert f"{better.brier_candidate:.4f}" in better.reason
    equal = compare(good, small_model("d", 0.6), window)
    assert (equal.verdict, equal.difference, equal.interval) == ("not worse", 0.0, (0.0, 0.0))
    worse = compare(plain, wrong, window)
    assert (worse.verdict, worse.passed) == ("worse", False)


def test_the_same_question_has_the_same_answer() -> None:
    window = held_world(400, seed=2)
    pair = small_model("a", 0.1), small_model("b", 0.4)
    assert compare(*pair, window) == compare(*pair, window)
    assert compare(*pair, window).interval != compare(*pair, window, seed=1).interval


def test_few_clusters_are_not_enough_however_many_jobs_they_have() -> None:
    window = held_world(1200, seed=1)
    few = replace(window, kin=window.kin % 7)
    result = compare(small_model("a", 0.1), small_model("b", 0.6), few)
    assert (result.verdict, result.passed) == ("unclear", False)
    assert "1,200 episodes of 7 clusters" in result.reason


def test_episodes_that_the_candidate_was_trained_on_do_not_count() -> None:
    window = held_world(1200, seed=1)
    middle = int(np.median(window.time))
    result = compare(small_model("a", 0.1), small_model("b", 0.6, until=iso(middle)), window)
    assert result.left_out == int((window.time <= middle).sum())
    assert result.episodes + result.left_out == 1200
    assert result.begins is not None
    assert result.begins >= iso(middle)[:19]
    seen = compare(small_model("a", 0.1), small_model("b", 0.6, until="2030-01-01"), window)
    assert (seen.verdict, seen.left_out, seen.episodes) == ("unclear", 1200, 0)


def test_episodes_without_a_known_outcome_do_not_count() -> None:
    window = held_world(1200, seed=1)
    censored = replace(window, label=np.where(np.arange(1200) % 2, NO_LABEL, window.label))
    pair = small_model("a", 0.1), small_model("b", 0.6)
    assert compare(*pair, censored).episodes == 600


def test_clusters_that_share_their_fate_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    fate = np.repeat(rng.normal(0, 0.1, 60), 50)
    _, alone = paired_bootstrap(fate, np.arange(3000))
    _, together = paired_bootstrap(fate, np.arange(3000) // 50)
    assert np.diff(together) > 5 * np.diff(alone)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Of 200 pairs of equally good models, few are called better or worse."""
    called = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        kin = np.repeat(np.arange(60), rng.integers(1, 12, 60))
        fate = rng.random(60)[kin]
        label = (rng.random(len(kin)) < fate).astype(np.float64)
        first, second = (np.clip(fate + rng.normal(0, 0.1, 60)[kin], 0.01, 0.99) for _ in "ab")
        _, (low, high) = paired_bootstrap(
            (second - label) ** 2 - (first - label) ** 2, kin, 400, seed
        )
        called += low > 0 or high < 0
    assert 2 <= called <= 24  # 10 expected


def test_a_model_that_is_surer_where_it_is_wrong_is_worse() -> None:
    rng = np.random.default_rng(5)
    label = (rng.random(2000) < 0.9).astype(np.float64)
    careful = np.full(2000, 0.9)
    careless = np.where(rng.random(2000) < 0.05, 1e-6, 0.9)
    found = judge(label, careful, np.where(label == 0, careful, careless), np.arange(2000) // 4)
    assert found["verdict"] == "worse"
    sure = judge(label, np.full(2000, 0.93), np.full(2000, 1 - 1e-6), np.arange(2000) // 4)
    assert sure["verdict"] == "worse"


def test_the_newest_window_knows_nothing_of_training_and_training_nothing_of_it() -> None:
    data = held_world(1000, seed=4)
    kin = np.arange(1000) // 8
    kin[500:] = np.roll(kin, 4)[500:]  # some kin reach across any border
    slow = np.arange(1000) % 10 == 0
    data = replace(
        data,
        kin=kin,
        decided=np.where(slow, data.decided + 86_400_000_000 * 20, data.decided),
        released=np.where(np.arange(1000) % 20 == 0, data.decided[-1], data.released),
        changed=np.arange(1000) % 4 == 0,
    )
    before, window = hold_out_newest(data, 0.25)
    border = int(window.time.min())
    assert before.time.max() < border
    assert not set(before.kin.tolist()) & set(window.kin.tolist())
    assert 200 <= len(window) <= 250
    known = before.label != NO_LABEL
    assert known.any()
    assert np.all(before.decided[known] < border)
    assert np.all(before.decided < border)
    assert np.all(before.released < border)
    assert before.changed.any()
    assert not np.any(before.changed & (before.released < 0))  # repaired behind the border
    open_ones = before.outcome[~known]
    assert set(open_ones.tolist()) == {
        OUTCOME_INDEX[Outcome.UNKNOWN],
        OUTCOME_INDEX[Outcome.NEVER_RELEASED],
    }
    assert before.steps.shape[0] == before.offsets[-1]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_window_of_nothing_or_everything_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="cannot be split"):
        hold_out_newest(held_world(100), share)


def test_the_result_is_plain_enough_for_json() -> None:
    import json

    window = held_world(400, seed=2)
    result = compare(small_model("a", 0.1), small_model("b", 0.4), window)
    back = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert back["passed"] == result.passed
    assert back["rounds"] == gate.BOOTSTRAP_ROUNDS


def test_figures_of_a_training_know_nothing_of_how_long_people_waited() -> None:
    """How long a job stayed on hold is known only afterwards, and here it tells the outcome."""
    from condor_advice.model.held.train import HeldSettings, train, validation_figures

    settings = HeldSettings(parts=("rules",), propensity=False)
    data = held_world(800, seed=6)
    day = 86_400_000_000
    waited = np.where(data.label == 1, day, 60_000_000)
    told = replace(data, released=data.time + waited, decided=data.time + waited + 1)
    honest, tempted = (validation_figures(train(one, settings)) for one in (data, told))
    assert honest["roc_auc"] < 0.65
    assert abs(tempted["roc_auc"] - honest["roc_auc"]) < 0.05


def test_a_calibration_is_judged_on_groups_that_it_was_not_fitted_on() -> None:
    from condor_advice.model.calibration import fit_isotonic, out_of_fold
    from condor_advice.model.metrics import calibration_error

    rng = np.random.default_rng(0)
    label = (rng.random(400) < 0.5).astype(np.float64)
    margin, weight, group = rng.normal(size=400), np.ones(400), np.arange(400) // 2
    own = calibration_error(label, fit_isotonic(margin, label, weight)(margin))
    others = calibration_error(label, out_of_fold("isotonic", margin, label, weight, group))
    assert own < others
