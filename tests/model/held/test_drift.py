"""Drift: a change is found with its date, and what moves by itself raises no alarm."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from held_world import held_world

from condor_advice.lab.drifting import (
    AFTER_DAYS,
    BEFORE_DAYS,
    CHANGED,
    FIRST_DAY,
    OTHER_REASONS,
    answered,
    episodes,
    profile,
    simulated,
)
from condor_advice.model.arrays import UnusableModel, load_arrays, save_arrays
from condor_advice.model.held import drift
from condor_advice.model.held.data import HeldData
from condor_advice.model.held.drift import Observed, Signal, assess, psi, reference
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.labels import NO_LABEL

TRAINED_UNTIL = int((CHANGED - timedelta(days=10)).timestamp() * 1e6)


def signals(data: HeldData) -> dict[str, Signal]:
    """Compare all episodes with those that a model of this day would have been trained on."""
    observed = answered(data, TRAINED_UNTIL)
    kept = reference(observed.take(np.flatnonzero(data.time < TRAINED_UNTIL)))
    return {signal.name: signal for signal in assess(kept, observed)}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("before"), 3, BEFORE_DAYS, profile(FIRST_DAY))


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_an_access_point_that_goes_on_as_before_raises_no_alarm_at_any_time(
    tmp_path: Path, seed: int
) -> None:
    log = simulated(tmp_path, seed, BEFORE_DAYS + AFTER_DAYS, profile(FIRST_DAY))
    for signal in signals(episodes(log)).values():
        assert signal.value is not None
        values = [point.value for point in signal.series]
        trained = datetime.fromtimestamp(TRAINED_UNTIL / 1e6, UTC)
        newer = [n for n, point in enumerate(signal.series, 1) if point.ends > trained]
        assert len(newer) > 10
        for end in newer:
            assert not drift.beyond(np.array(values[:end]), signal.limit), (signal.name, end)
        assert (signal.drifted, signal.began, list(signal.details)) == (False, None, [])


def test_other_hold_reasons_are_noticed_with_the_day_they_began(
    before: Path, tmp_path: Path
) -> None:
    after = simulated(tmp_path / "after", 3, AFTER_DAYS, profile(CHANGED, OTHER_REASONS))
    found = signals(episodes(before, after))
    reasons = found["hold_reasons"]
    assert reasons.drifted
    assert reasons.began is not None
    assert abs(reasons.began - CHANGED) < timedelta(days=2)
    assert not reasons.from_the_start
    assert reasons.value is not None
    assert reasons.value > 2 * reasons.limit
    assert any("in training" in line for line in reasons.details)
    assert found["features"].drifted
    assert found["features"].began is not None
    assert abs(found["features"].began - CHANGED) < timedelta(days=2)


def test_other_outcomes_of_the_same_holds_are_noticed_with_the_day_they_began(
    before: Path, tmp_path: Path
) -> None:
    """From that day on most released jobs fail, and nothing in their holds tells it."""
    after = simulated(tmp_path / "after", 3, AFTER_DAYS, profile(CHANGED, failing_share=0.6))
    found = signals(episodes(before, after))
    assert not found["hold_reasons"].drifted
    calibration = found["calibration"]
    assert calibration.drifted
    assert calibration.began is not None
    assert abs(calibration.began - CHANGED) < timedelta(days=2)
    assert "succeed" in calibration.details[0]


def test_a_pool_unlike_the_one_of_training_is_told_to_be_so_from_the_start(
    before: Path, tmp_path: Path
) -> None:
    kept = reference(answered(episodes(before), TRAINED_UNTIL))
    other = simulated(tmp_path / "other", 8, AFTER_DAYS, profile(FIRST_DAY, OTHER_REASONS))
    [reasons, *_] = assess(kept, Observed.of(episodes(other)))
    assert reasons.drifted
    assert reasons.from_the_start


# ---- by hand -------------------------------------------------------------------------------


def some(count: int, seed: int = 0) -> Observed:
    rng = np.random.default_rng(seed)
    data = held_world(count, seed=seed)
    features = data.features.copy()
    features[:, FEATURE_NAMES.index("hold_template")] = rng.choice([5, 9, 70], count)
    p = np.clip(rng.random(count), 0.05, 0.95)
    label = (rng.random(count) < p).astype(np.int8)
    return Observed.of(replace(data, features=features, label=label), p)


def test_psi_is_zero_for_the_same_and_grows_with_the_difference() -> None:
    base = np.array([100.0, 200.0, 300.0])
    values = psi(np.array([[100.0, 200, 300], [120, 200, 280], [300, 200, 100]]), base)
    assert values[0] == pytest.approx(0.0)
    assert 0 < values[1] < 0.02 < 0.5 < values[2]
    empty_bin = psi(np.array([[0.0, 0.0, 10.0]]), base)
    assert np.isfinite(empty_bin).all()


def test_the_reference_is_small_and_survives_a_file(tmp_path: Path) -> None:
    kept = reference(some(4000))
    path = tmp_path / drift.REFERENCE_FILE
    save_arrays(path, kept)
    assert path.stat().st_size < 60_000
    again = load_arrays(path)
    new = some(2000, seed=1)
    assert [one.as_dict() for one in assess(again, new)] == [
        one.as_dict() for one in assess(kept, new)
    ]


def test_the_order_of_episodes_does_not_matter() -> None:
    observed = some(3000)
    mixed = observed.take(np.random.default_rng(0).permutation(3000))
    kept = reference(observed)
    assert all(np.array_equal(kept[name], reference(mixed)[name]) for name in kept)
    assert assess(kept, mixed)[0] == assess(kept, observed)[0]


def test_one_large_cluster_is_no_drift() -> None:
    """A thousand jobs of one cluster held for one reason are one fault, not a new world."""
    kept = reference(some(4000))
    new = some(4000, seed=1)
    burst = slice(2500, 4000)
    new.cluster[burst] = new.cluster[burst][0]
    new.template[burst] = 5
    [reasons, *_] = assess(kept, new)
    assert reasons.value is not None
    assert not reasons.drifted


@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_too_few_episodes_tell_nothing_and_break_nothing(count: int) -> None:
    kept = reference(some(4000))
    found = assess(kept, some(4000, seed=1).take(np.arange(count)))
    assert [signal.value for signal in found] == [None, None, None]
    assert not any(signal.drifted for signal in found)
    few = reference(some(4000).take(np.arange(count)))
    assert not any(signal.drifted for signal in assess(few, some(400, seed=1)))


def test_outcomes_are_counted_only_once_most_of_their_age_are_decided() -> None:
    observed = some(4000)
    slow = replace(observed, decided=observed.time + 86_400_000_000 * 40)
    kept = reference(slow)
    assert assess(kept, some(2000, seed=1))[2].value is None


def test_predictions_in_training_that_were_not_made_count_for_nothing() -> None:
    observed = some(4000)
    nothing = replace(observed, p=np.full(4000, np.nan))
    kept = reference(nothing)
    assert np.all(kept["gaps"] == 0)
    [_, _, calibration] = assess(kept, some(3000, seed=1))
    assert not calibration.drifted


def test_a_reference_of_another_shape_is_refused() -> None:
    with pytest.raises(UnusableModel, match="drift cannot be measured; train the model again"):
        assess({"window": np.array(25)}, some(100))


def test_telling_drift_needs_no_training_package() -> None:
    code = (
        "import sys; import condor_advice.model.held.drift\n"
        "print(*{n.split('.')[0] for n in sys.modules} & {'torch', 'xgboost', 'sklearn',"
        " 'pandas', 'pyarrow', 'matplotlib', 'scipy'})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_training_leaves_a_reference_beside_the_model(tmp_path: Path) -> None:
    from condor_advice.model.held.train import HeldSettings, save, train
    from condor_advice.model.registry import manifest

    data = held_world(600)
    open_ones = replace(data, label=np.where(np.arange(600) % 5 == 0, NO_LABEL, data.label))
    settings = HeldSettings(parts=("rules",), propensity=False)
    save(train(open_ones, settings), tmp_path, settings, {})
    files = manifest.read(tmp_path)
    kept = files.arrays(drift.REFERENCE_FILE, finite=False)  # padded with NaN
    observed = Observed.of(open_ones)
    assert np.array_equal(kept["mix"], reference(observed)["mix"])  # those without a label too
    assert np.any(kept["gaps"][:, 1] > 0)  # what was said of them out of fold
    assert [signal.drifted for signal in assess(kept, observed)] == [False, False, False]
