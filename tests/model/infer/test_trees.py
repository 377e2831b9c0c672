"""Trees evaluated with NumPy say what XGBoost says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from condor_advice.model.arrays import UnusableModel, save_arrays
from condor_advice.model.infer import TreeEnsemble, sigmoid
from condor_advice.model.infer import trees as infer

xgboost = pytest.importorskip("xgboost")
FEATURES = 9


@pytest.fixture(scope="module")
def rows() -> npt.NDArray[np.float32]:
    rng = np.random.default_rng(11)
    values = rng.normal(size=(800, FEATURES)).astype(np.float32)
    values[:, 4] = rng.integers(0, 4, 800)  # ties with thresholds
    values[rng.random(values.shape) < 0.2] = np.nan
    return values


def boosted(rows: npt.NDArray[np.float32], **parameters: Any) -> Any:
    rng = np.random.default_rng(5)
    signal = np.nan_to_num(rows[:, 0] * rows[:, 1]) + np.nan_to_num(rows[:, 4])
    label = (signal + rng.normal(size=len(rows)) > 1.0).astype(float)
    if parameters["objective"].startswith("multi"):
        label = label + (np.nan_to_num(rows[:, 2]) > 0.5)
    return xgboost.train(
        {"nthread": 1, "max_depth": 6, **parameters}, xgboost.DMatrix(rows, label), 40
    )


@pytest.mark.parametrize(
    "parameters",
    [
        {"objective": "binary:logistic"},
        {"objective": "binary:logistic", "base_score": 0.9, "scale_pos_weight": 3.0},
        {"objective": "multi:softprob", "num_class": 3},
    ],
)
def test_probabilities_agree_with_xgboost(
    rows: npt.NDArray[np.float32], parameters: dict[str, Any]
) -> None:
    booster = boosted(rows, **parameters)
    ours = TreeEnsemble.from_xgboost(booster).predict_proba(rows)
    assert np.max(np.abs(ours - booster.predict(xgboost.DMatrix(rows)))) < 1e-5


def test_quantile_regression_agrees_with_xgboost(rows: npt.NDArray[np.float32]) -> None:
    booster = boosted(rows, objective="reg:quantileerror", quantile_alpha=0.9)
    ours = TreeEnsemble.from_xgboost(booster).predict_margin(rows)
    assert np.max(np.abs(ours - booster.predict(xgboost.DMatrix(rows)))) < 1e-5


@pytest.mark.parametrize("classes", [1, 3])
def test_contributions_are_xgboosts_exact_shap_values(
    rows: npt.NDArray[np.float32], classes: int
) -> None:
    parameters = (
        {"objective": "binary:logistic"}
        if classes == 1
        else {"objective": "multi:softprob", "num_class": classes}
    )
    booster = boosted(rows, **parameters)
    trees = TreeEnsemble.from_xgboost(booster)
    theirs = booster.predict(xgboost.DMatrix(rows[:40]), pred_contribs=True)
    theirs = theirs.reshape(40, classes, FEATURES + 1)
    for number in range(40):
        for output in range(classes):
            ours = trees.contributions(rows[number], FEATURES, output)
            assert np.max(np.abs(ours - theirs[number, output])) < 1e-5
            margin = trees.predict_margin(rows[number]).reshape(-1)[output]
            assert ours.sum() == pytest.approx(margin, abs=1e-9)


def test_an_average_has_the_mean_margin_and_survives_saving(
    rows: npt.NDArray[np.float32], tmp_path: Path
) -> None:
    members = [
        TreeEnsemble.from_xgboost(
            boosted(rows, objective="binary:logistic", seed=seed, subsample=0.5)
        )
        for seed in (1, 2)
    ]
    both = TreeEnsemble.average(members)
    wanted = np.mean([one.predict_margin(rows) for one in members], axis=0)
    assert np.allclose(both.predict_margin(rows), wanted, atol=1e-12)
    both.save(tmp_path / "trees.npz")
    again = TreeEnsemble.load(tmp_path / "trees.npz")
    assert np.array_equal(again.predict_margin(rows), both.predict_margin(rows))


@pytest.mark.parametrize("classes", [1, 3])
def test_many_rows_at_once_get_what_each_gets_alone(
    rows: npt.NDArray[np.float32], classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = {"objective": "binary:logistic"} if classes == 1 else {
        "objective": "multi:softprob", "num_class": classes}  # fmt: skip
    trees = TreeEnsemble.from_xgboost(boosted(rows, **objective))
    alone = np.stack([trees.predict_margin(row).reshape(-1) for row in rows])
    monkeypatch.setattr(infer, "MANY_ROWS", 2)
    monkeypatch.setattr(infer, "ROWS_AT_ONCE", 97)
    together = trees.predict_margin(rows).reshape(len(rows), -1)
    assert np.isnan(rows).any()
    assert np.allclose(together, alone, atol=1e-12)


def test_a_tree_that_never_splits_is_evaluated_too(rows: npt.NDArray[np.float32]) -> None:
    booster = boosted(rows, objective="binary:logistic", min_child_weight=1e9)
    trees = TreeEnsemble.from_xgboost(booster)
    assert trees.depth == 0
    assert np.max(np.abs(trees.predict_proba(rows) - booster.predict(xgboost.DMatrix(rows)))) < 1e-5
    assert trees.contributions(rows[0], FEATURES).sum() == pytest.approx(
        trees.predict_margin(rows[0])[0]
    )


def test_a_damaged_or_pickled_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_bytes(b"no zip")
    with pytest.raises(UnusableModel, match="not an .npz file of plain arrays"):
        TreeEnsemble.load(tmp_path / "broken.npz")
    np.savez(tmp_path / "pickled.npz", feature=np.array([object()], dtype=object))
    with pytest.raises(UnusableModel, match="train the model again"):
        TreeEnsemble.load(tmp_path / "pickled.npz")
    np.savez(tmp_path / "other.npz", feature=np.arange(3))
    with pytest.raises(UnusableModel, match="not a tree model: threshold"):
        TreeEnsemble.load(tmp_path / "other.npz")


STUMP: dict[str, npt.NDArray[Any]] = {
    "feature": np.array([0, -1, -1], np.int32),
    "threshold": np.array([0.5, 0, 0], np.float32),
    "left": np.array([1, -1, -1], np.int32),
    "right": np.array([2, -1, -1], np.int32),
    "missing_left": np.array([True, False, False]),
    "value": np.array([0.0, -1.0, 1.0]),
    "cover": np.array([2.0, 1.0, 1.0]),
    "roots": np.array([0], np.int32),
    "output": np.array([0], np.int32),
    "base_margin": np.array([0.0]),
}


def chain(length: int) -> dict[str, npt.NDArray[Any]]:
    """A tree with one split per level: node 2i splits into the leaf 2i+1 and the node 2i+2."""
    nodes = np.arange(2 * length + 1)
    inner = (nodes % 2 == 0) & (nodes < 2 * length)
    zeros = np.zeros(len(nodes))
    return STUMP | {
        "feature": np.where(inner, 0, -1).astype(np.int32),
        "left": np.where(inner, nodes + 1, -1).astype(np.int32),
        "right": np.where(inner, nodes + 2, -1).astype(np.int32),
        "threshold": zeros.astype(np.float32),
        "missing_left": zeros.astype(bool),
        "value": zeros,
        "cover": zeros + 1,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left": np.array([0, -1, -1], np.int32)}, "child does not follow it"),
        ({"right": np.array([3, -1, -1], np.int32)}, "child does not follow it"),
        ({"right": np.array([1, -1, -1], np.int32)}, "two parents"),
        ({"roots": np.array([3], np.int32)}, "root does not exist"),
        ({"output": np.array([1], np.int32)}, "output that does not exist"),
        ({"left": np.array([1.0, -1, -1])}, "not an integer"),
        ({"cover": np.ones(2)}, "different lengths"),
        ({"value": np.array([0.0, np.nan, 1.0])}, "value has values that are not finite"),
        ({"base_margin": np.array([np.inf])}, "base_margin has values that are not finite"),
        (chain(65), "a tree has 65 levels, and 64 are allowed"),
    ],
)
def test_trees_that_would_not_end_or_leave_their_arrays_are_refused(
    tmp_path: Path, changes: dict[str, npt.NDArray[Any]], message: str
) -> None:
    save_arrays(tmp_path / "good.npz", STUMP)
    assert TreeEnsemble.load(tmp_path / "good.npz").depth == 1
    save_arrays(tmp_path / "bad.npz", STUMP | changes)
    with pytest.raises(UnusableModel, match=rf"bad\.npz: .*{message}; train"):
        TreeEnsemble.load(tmp_path / "bad.npz")


def test_sigmoid_does_not_overflow() -> None:
    assert sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]


def test_evaluating_trees_imports_no_training_package() -> None:
    code = (
        "import sys, condor_advice.model.infer, condor_advice.model.failure.model; "
        "print([m for m in ('xgboost','pandas','sklearn','scipy','torch') "
        "if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
