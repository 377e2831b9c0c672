"""A part is one module and one registration: a throw-away part goes all the way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from held_world import held_world

from condor_advice.model.arrays import Arrays, UnusableModel
from condor_advice.model.calibration import newton
from condor_advice.model.held import parts
from condor_advice.model.held.model import HeldModel
from condor_advice.model.held.parts import (
    Attribution,
    Fitted,
    Floats,
    Inputs,
    PartContext,
    PartInputs,
    PartKind,
)
from condor_advice.model.held.train import HeldSettings, save, train
from condor_advice.model.held.training_rows import Training
from condor_advice.preprocess.holds.features import FEATURE_NAMES

COLUMN = FEATURE_NAMES.index("owner_success_rate")  # what decides in held_world


@dataclass(frozen=True)
class TinySettings:
    ridge: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class TinyPart:
    """A logistic regression on one feature."""

    line: Floats

    def margins(self, inputs: PartInputs) -> Floats:
        margins: Floats = np.nan_to_num(inputs.features[:, COLUMN]) * self.line[0] + self.line[1]
        return margins

    def contributions(self, inputs: PartInputs, centre: float) -> list[Attribution]:
        value = float(inputs.features[0, COLUMN])
        effect = float(self.margins(inputs)[0]) - centre
        return [Attribution("tiny", f"owner's rate: {value:.2f}", value, effect, "rule")]

    def arrays(self) -> Arrays:
        return {"line": self.line}


def from_arrays(arrays: Arrays, context: PartContext) -> TinyPart:
    return TinyPart(arrays["line"])


def train_tiny(training: Training) -> Fitted:
    def fit(places: np.ndarray) -> TinyPart:
        values = np.nan_to_num(training.features(places)[:, COLUMN]).astype(float)
        design = np.stack((values, np.ones(len(values))), axis=1)
        ridge = np.full(2, training.settings.of("tiny").ridge)
        label, weight = training.label[places], training.weight[places]
        return TinyPart(newton(design, label, weight, np.zeros(2), ridge))

    margins = np.full(len(training), np.nan)
    for kept, left in training.folds():
        inputs = training.inputs(left, training.rates(kept), learned=False)
        margins[left] = fit(kept).margins(inputs)
    return Fitted(fit(np.arange(len(training))), margins, {"folds": len(training.folds())})


KIND = PartKind(from_arrays, train_tiny, TinySettings)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parts.MODULES, "tiny", __name__)


def test_a_registered_part_is_trained_saved_loaded_asked_and_explained(tmp_path: Path) -> None:
    settings = HeldSettings(parts=("rules", "tiny")).change("tiny", ridge=0.5)
    trained = train(held_world(600), settings, "with-tiny")
    assert trained.notes["tiny"] == {"folds": 4}
    assert trained.model.weights["tiny"] > 0.5
    manifest = save(trained, tmp_path, settings, {})
    assert manifest.settings["tiny"] == {"ridge": 0.5, "seed": 0}
    assert manifest.seeds["tiny"] == 0
    assert "tiny.npz" in manifest.files
    assert "rules.npz" not in manifest.files  # rules learn nothing

    model, unseen = HeldModel.load(tmp_path), held_world(80, seed=3)
    inputs = Inputs.of(unseen)
    answers = model.predict(inputs)
    assert np.array_equal(answers.p_success, trained.model.predict(inputs).p_success)
    good = unseen.features[:, COLUMN] > 0.8
    assert answers.p_success[good].mean() > answers.p_success[~good].mean() + 0.1
    one = Inputs.of_one(unseen.features[0], inputs.steps_of(0))
    told = next(found for found in model.explain(one) if found.name == "tiny")
    margin = answers.parts["tiny"][0]
    assert told.effect == pytest.approx(model.weights["tiny"] * (margin - model.centre["tiny"]))
    with pytest.raises(ValueError, match="can explain one hold at a time, not 80"):
        model.explain(inputs)


def test_a_part_that_is_not_registered_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = HeldSettings(parts=("tiny",))
    save(train(held_world(400), settings, "with-tiny"), tmp_path, settings, {})
    monkeypatch.delitem(parts.MODULES, "tiny")
    with pytest.raises(UnusableModel, match=r"a part \['tiny'\] that this condor-advice does not"):
        HeldModel.load(tmp_path)


def test_settings_reach_the_parts_that_know_them() -> None:
    settings = HeldSettings().change_all(seed=7, threads=2).change("trees", members=1)
    assert settings.of("tiny") == TinySettings(seed=7)
    assert (settings.of("lstm").seed, settings.of("lstm").threads) == (7, 2)
    assert (settings.of("trees").seed, settings.of("trees").members) == (7, 1)
    assert settings.of("rules") is None
    assert replace(settings, seed=1).as_dict()["trees"]["seed"] == 7
