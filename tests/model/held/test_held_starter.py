"""The shipped model: it loads fast, answers without training packages, and explains itself."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from condor_advice.model.held.evidence_rows import EvidenceTensors
from condor_advice.model.held.model import HeldModel
from condor_advice.model.held.parts import Inputs
from condor_advice.model.held.parts.linear import LinearPart
from condor_advice.model.held.parts.trees import TreePart
from condor_advice.model.infer import sigmoid
from condor_advice.model.registry.places import STARTER
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.tensors import TensorSpec


def some_holds(count: int) -> Inputs:
    rng = np.random.default_rng(1)
    features = rng.gamma(1.0, 3.0, (count, len(FEATURE_NAMES))).astype(np.float32)
    features[rng.random(features.shape) < 0.3] = np.nan
    features[:, FEATURE_NAMES.index("hold_family")] = rng.integers(0, 40, count)
    steps = rng.random((5 * count, TensorSpec().num_features)).astype(np.float32)
    offsets = np.arange(0, 5 * count + 1, 5)
    return Inputs(features, steps, offsets, EvidenceTensors.nothing(count))


def test_the_starter_is_small_and_answers_for_any_hold():
    assert sum(path.stat().st_size for path in STARTER.iterdir()) < 2_000_000
    model = HeldModel.load(STARTER)
    answers = model.predict(some_holds(50))
    assert len(answers) == 50
    assert np.all((answers.low <= answers.p_success) & (answers.p_success <= answers.high))
    assert np.all((answers.p_success > 0) & (answers.p_success < 1))


def test_a_hold_of_which_nothing_is_known_gets_an_answer():
    model = HeldModel.load(STARTER)
    unknown = np.full((1, len(FEATURE_NAMES)), np.nan, np.float32)
    steps = np.zeros((1, model.spec.num_features), np.float32)
    answers = model.predict(Inputs.of_one(unknown, steps))
    assert 0 < answers.p_success[0] < 1


def test_effects_of_an_explanation_lead_from_the_average_to_the_answer():
    model = HeldModel.load(STARTER)
    inputs = some_holds(3)
    margin = model.combine(model.part_margins(inputs))
    found = model.explain(Inputs.of_one(inputs.features[1], inputs.steps_of(1)))
    assert [abs(one.effect) for one in found] == sorted(
        (abs(one.effect) for one in found), reverse=True
    )
    told = sum(one.effect for one in found if one.kind not in ("event", "evidence"))
    trees, linear = model.parts["trees"], model.parts.get("linear")
    assert isinstance(trees, TreePart)
    prepared = model.prepare(inputs)
    row = trees.rows(prepared)[1]
    shares = trees.ensemble.contributions(row, len(row))
    start = model.bias + model.weights["trees"] * shares[-1]
    start += model.weights.get("rules", 0.0) * model.centre.get("rules", 0.0)
    if isinstance(linear, LinearPart):
        start += model.weights["linear"] * linear.line.bias
    margins = model.part_margins(inputs)
    networks = sum(
        model.weights[name] * margins[name][1] for name in ("evidence", "lstm") if name in margins
    )
    assert np.isclose(start + told + networks, margin[1], atol=1e-6)
    assert np.all(np.isfinite(sigmoid(margin)))


def test_loading_and_answering_imports_no_training_package():
    program = (
        "import sys, numpy as np\n"
        "from condor_advice.model.held.model import HeldModel\n"
        "from condor_advice.model.held.parts import Inputs\n"
        "from condor_advice.model.registry.places import STARTER\n"
        "model = HeldModel.load(STARTER)\n"
        "from condor_advice.preprocess.holds.features import FEATURE_NAMES\n"
        "row = np.full((1, len(FEATURE_NAMES)), np.nan, np.float32)\n"
        "tensor = np.zeros((1, model.spec.num_features), np.float32)\n"
        "inputs = Inputs.of_one(row, tensor)\n"
        "model.predict(inputs); model.explain(inputs)\n"
        "heavy = {'torch', 'xgboost', 'sklearn', 'pandas', 'scipy', 'pyarrow', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
