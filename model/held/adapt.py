"""Adapt a model to an access point by the outcomes that became known there.

The model's answer stays the starting point. A line through its log-odds corrects its level, and
boosted trees add what the model gets wrong here; both are drawn to "no correction", so that a few
outcomes change little. Recorded episodes keep the trees from forgetting other pools. Calibration,
interval and abstention follow the access point's own outcomes, as predicted by corrections that
had not seen them.

It takes seconds, so that a collector can do it every few hundred outcomes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from condor_advice.model import calibration
from condor_advice.model.held import conformal
from condor_advice.model.held.data import HeldData
from condor_advice.model.held.model import HeldModel
from condor_advice.model.held.parts import Inputs
from condor_advice.model.held.parts.trees import TreePart, tree_rows
from condor_advice.model.infer import TreeEnsemble

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.float32]

SITE = "site"  # the part that has the corrections


@dataclass(frozen=True, slots=True)
class AdaptSettings:
    """How far a model may move towards an access point."""

    fewest: int = 60  # outcomes; with fewer the model stays as it is
    to_calibrate: int = 200  # outcomes for a calibration and bounds of its own
    slope_ridge: float = 20.0  # in outcomes; draws the line to "no correction"
    level_ridge: float = 2.0
    rounds: int = 60
    max_depth: int = 3
    learning_rate: float = 0.06
    reg_lambda: float = 20.0
    min_child_weight: float = 5.0
    columns: float = 0.3
    members: int = 2
    recorded: int = 3000  # recorded episodes, at most
    recorded_weight: float = 0.3
    folds: int = 4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Rows:
    """Episodes as the corrections see them."""

    margin: Floats  # the model's log-odds
    columns: Table
    label: Floats
    weight: Floats

    def take(self, rows: Ints) -> _Rows:
        return _Rows(self.margin[rows], self.columns[rows], self.label[rows], self.weight[rows])


@dataclass(frozen=True, slots=True)
class _Correction:
    slope: float
    level: float
    trees: TreeEnsemble

    def __call__(self, rows: _Rows) -> Floats:
        corrected: Floats = (
            self.slope * rows.margin + self.level + self.trees.predict_margin(rows.columns)
        )
        return corrected


class Recorded:
    """Recorded episodes to learn from beside the own ones, prepared once for a model."""

    def __init__(self, model: HeldModel, data: HeldData, settings: AdaptSettings | None = None):
        chosen = settings or AdaptSettings()
        rows = data.labelled
        if len(rows) > chosen.recorded:
            rng = np.random.default_rng(chosen.seed)
            rows = np.sort(rng.choice(rows, chosen.recorded, replace=False))
        self.rows = _rows(model, data.take(rows), chosen.recorded_weight)


def adapt(
    model: HeldModel,
    own: HeldData,
    recorded: Recorded | None = None,
    settings: AdaptSettings | None = None,
    name: str = "",
) -> HeldModel:
    """Return the model, adapted to the labelled episodes of `own`.

    `model` must not be an adapted one: corrections never pile up.
    """
    if SITE in model.parts:
        raise ValueError(f"model {model.name} is adapted already; adapt the one it came from")
    chosen = settings or AdaptSettings()
    known = own.take(own.labelled)
    if len(known) < chosen.fewest or len(np.unique(known.label)) < 2:
        return model
    rows = _rows(model, known, 1.0)
    correction = _correct(rows, recorded, chosen)
    weights = {part: correction.slope * weight for part, weight in model.weights.items()}
    adapted = replace(
        model,
        name=name or f"{model.name}-here",
        weights=weights | {SITE: 1.0},
        bias=correction.slope * model.bias + correction.level,
        centre={**model.centre, SITE: 0.0},
        parts={**model.parts, SITE: TreePart(correction.trees, model.feature_names)},
    )
    if len(known) < chosen.to_calibrate:
        return adapted
    margin = np.empty(len(known))
    for kept, left in _folds(known, chosen.folds):
        margin[left] = _correct(rows.take(kept), recorded, chosen)(rows.take(left))
    return _calibrated(adapted, margin, known)


def _rows(model: HeldModel, data: HeldData, weight: float) -> _Rows:
    inputs = model.prepare(Inputs.of(data))
    return _Rows(
        model.combine(model.part_margins(Inputs.of(data))),
        tree_rows(model.feature_names, inputs),
        (data.label == 1).astype(np.float64),
        np.full(len(data), weight),
    )


def _correct(own: _Rows, recorded: Recorded | None, settings: AdaptSettings) -> _Correction:
    design = np.stack((own.margin, np.ones(len(own.margin))), axis=1)
    ridge = np.array([settings.slope_ridge, settings.level_ridge])
    line = calibration.newton(design, own.label, own.weight, np.array([1.0, 0.0]), ridge)
    slope, level = max(float(line[0]), 0.0), float(line[1])
    moved = replace(own, margin=slope * own.margin + level)
    return _Correction(slope, level, _boost(moved, recorded, settings))


def _boost(own: _Rows, recorded: Recorded | None, settings: AdaptSettings) -> TreeEnsemble:
    """Train trees on what the log-odds leave open; recorded episodes keep the model's own."""
    import xgboost

    every = [own, recorded.rows] if recorded is not None else [own]
    matrix = xgboost.DMatrix(
        np.concatenate([rows.columns for rows in every]),
        np.concatenate([rows.label for rows in every]),
        weight=np.concatenate([rows.weight for rows in every]),
        base_margin=np.concatenate([rows.margin for rows in every]),
    )
    members = [
        xgboost.train(
            {
                "objective": "binary:logistic",
                "base_score": 0.5,
                "tree_method": "hist",
                "max_depth": settings.max_depth,
                "eta": settings.learning_rate,
                "subsample": 0.7,
                "colsample_bytree": settings.columns,
                "min_child_weight": settings.min_child_weight,
                "reg_lambda": settings.reg_lambda,
                "nthread": 1,
                "seed": settings.seed + member,
            },
            matrix,
            settings.rounds,
        )
        for member in range(settings.members)
    ]
    return TreeEnsemble.average([TreeEnsemble.from_xgboost(member) for member in members])


def _folds(data: HeldData, count: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield (learned from, left out), by whole clusters in the order of their first hold."""
    _, kin = np.unique(data.kin, return_inverse=True)
    first = np.full(int(kin.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, kin, data.time)
    rank = np.argsort(np.argsort(first, kind="stable"), kind="stable")
    fold = rank[kin] * count // len(first)
    for nth in range(count):
        yield np.flatnonzero(fold != nth), np.flatnonzero(fold == nth)


def _calibrated(model: HeldModel, margin: Floats, known: HeldData) -> HeldModel:
    """Refit calibration, interval and bounds on corrections that had not seen the outcomes."""
    label = (known.label == 1).astype(np.float64)
    weight = np.ones(len(known))
    chosen, _ = calibration.choose(margin, label, weight, known.kin)
    p = calibration.out_of_fold(chosen.kind, margin, label, weight, known.kin)
    return replace(
        model,
        calibration=chosen,
        interval=calibration.fit_interval(p, label, known.kin),
        abstention=conformal.choose_bounds(p, label, known.kin, model.abstention.risk),
    )
