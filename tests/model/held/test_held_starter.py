"""The shipped model: it loads fast, answers without training packages, and explains itself."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from condor_advice.model.held.model import STARTER, HeldModel
from condor_advice.model.infer import sigmoid
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.tensors import TensorSpec


def some_holds(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    features = rng.gamma(1.0, 3.0, (count, len(FEATURE_NAMES))).astype(np.float32)
    features[rng.random(features.shape) < 0.3] = np.nan
    features[:, FEATURE_NAMES.index("hold_family")] = rng.integers(0, 40, count)
    steps = rng.random((5 * count, TensorSpec().num_features)).astype(np.float32)
    return features, steps, np.arange(0, 5 * count + 1, 5)


def test_the_starter_is_small_and_answers_for_any_hold():
    assert sum(path.stat().st_size for path in STARTER.iterdir()) < 2_000_000
    model = HeldModel.load(STARTER)
    answers = model.predict(*some_holds(50))
    assert len(answers) == 50
    assert np.all((answers.low <= answers.p_success) & (answers.p_success <= answers.high))
    assert np.all((answers.p_success > 0) & (answers.p_success < 1))


def test_a_hold_of_which_nothing_is_known_gets_an_answer():
    model = HeldModel.load(STARTER)
    unknown = np.full((1, len(FEATURE_NAMES)), np.nan, np.float32)
    answers = model.predict(
        unknown, np.zeros((1, model.spec.num_features), np.float32), np.r_[0, 1]
    )
    assert 0 < answers.p_success[0] < 1


def test_effects_of_an_explanation_lead_from_the_average_to_the_answer():
    model = HeldModel.load(STARTER)
    features, steps, offsets = some_holds(3)
    margin = model.combine(model.part_margins(features, steps, offsets))
    found = model.explain(features[1], steps[offsets[1] : offsets[2]])
    assert [abs(one.effect) for one in found] == sorted(
        (abs(one.effect) for one in found), reverse=True
    )
    told = sum(one.effect for one in found if one.kind != "event")
    assert model.trees is not None
    row = model.tree_rows(features)[1]
    shares = model.trees.contributions(row, len(row))
    start = model.bias + model.weights["trees"] * shares[-1]
    start += model.weights.get("rules", 0.0) * model.centre.get("rules", 0.0)
    if model.linear is not None:
        start += model.weights["linear"] * model.linear.bias
    lstm = model.weights.get("lstm", 0.0) * model.part_margins(features, steps, offsets).get(
        "lstm", np.zeros(3)
    )
    assert np.isclose(start + told + lstm[1], margin[1], atol=1e-6)
    assert np.all(np.isfinite(sigmoid(margin)))


def test_loading_and_answering_imports_no_training_package():
    program = (
        "import sys, numpy as np\n"
        "from condor_advice.model.held.model import STARTER, HeldModel\n"
        "model = HeldModel.load(STARTER)\n"
        "from condor_advice.preprocess.holds.features import FEATURE_NAMES\n"
        "row = np.full((1, len(FEATURE_NAMES)), np.nan, np.float32)\n"
        "tensor = np.zeros((1, model.spec.num_features), np.float32)\n"
        "model.predict(row, tensor, np.array([0, 1])); model.explain(row[0], tensor)\n"
        "heavy = {'torch', 'xgboost', 'sklearn', 'pandas', 'scipy', 'pyarrow', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
