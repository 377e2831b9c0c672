"""XGBoost on the features of a hold: shallow, regularised, stopped early on later episodes.

Columns with an obvious direction are monotone: a higher success rate never lowers the chance.
With a few thousand episodes this prevents trees from fitting noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from condor_advice.model.arrays import Arrays, UnusableModel
from condor_advice.model.held.derived_columns import DERIVED, SETS, direction
from condor_advice.model.held.parts import (
    Attribution,
    Fitted,
    Floats,
    Ints,
    PartContext,
    PartInputs,
    PartKind,
    Table,
)
from condor_advice.model.held.words import feature_words
from condor_advice.model.infer import TreeEnsemble, sigmoid
from condor_advice.preprocess.holds.evidence import QUERY_COLUMNS
from condor_advice.preprocess.holds.features import FEATURE_NAMES

if TYPE_CHECKING:
    from condor_advice.model.held.derived_columns import ReasonRates
    from condor_advice.model.held.training_rows import Training


@dataclass(frozen=True)
class TreePart:
    """Boosted trees on columns of the feature table, derived columns and counts of the evidence."""

    ensemble: TreeEnsemble
    names: tuple[str, ...]  # columns of the feature table; the derived ones and the query follow

    def rows(self, inputs: PartInputs) -> Table:
        """Return the trees' input."""
        return tree_rows(self.names, inputs)

    def shares(self, row: Table) -> dict[str, float]:
        """Return each column's exact SHAP value for one row of `rows`."""
        shares = self.ensemble.contributions(row, len(row))[:-1]
        return dict(zip(tree_columns(self.names), shares.tolist(), strict=True))

    def margins(self, inputs: PartInputs) -> Floats:
        """Return the trees' log-odds."""
        return self.ensemble.predict_margin(self.rows(inputs))

    def contributions(self, inputs: PartInputs, centre: float) -> list[Attribution]:
        """Return SHAP values, relative to the average training episode."""
        row = self.rows(inputs)[0]
        return [
            Attribution(name, feature_words(name, value), value, share, "feature")
            for value, (name, share) in zip(row.tolist(), self.shares(row).items(), strict=True)
        ]

    def arrays(self) -> Arrays:
        """Return the trees' arrays."""
        return self.ensemble.arrays()


def from_arrays(arrays: Arrays, context: PartContext) -> TreePart:
    """Read what `arrays` returned; the manifest names the columns."""
    ensemble = TreeEnsemble.from_arrays(arrays)
    if int(ensemble.feature.max(initial=-1)) >= len(tree_columns(context.feature_names)):
        raise UnusableModel(
            "the trees use more features than the manifest names; train the model again with "
            "`condor-advice train`"
        )
    return TreePart(ensemble, context.feature_names)


def tree_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the trees' columns."""
    return (*names, *DERIVED, *(f"evidence_{name}" for name in QUERY_COLUMNS))


def tree_rows(names: Sequence[str], inputs: PartInputs) -> Table:
    """Return the trees' input: columns of the feature table, derived ones, and the query."""
    columns = np.array([FEATURE_NAMES.index(name) for name in names], np.int64)
    query = inputs.evidence.query.astype(np.float32)
    return np.concatenate((inputs.features[:, columns], inputs.derived, query), axis=1)


# ---- training ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """Parameters of XGBoost."""

    max_depth: int = 5
    learning_rate: float = 0.05
    subsample: float = 0.7
    columns: float = 0.3
    min_child_weight: float = 2.0
    reg_lambda: float = 5.0
    max_rounds: int = 300
    members: int = 3  # seeds averaged
    seed: int = 0
    threads: int = 1

    def parameters(self, member: int, directions: Sequence[int] = ()) -> dict[str, Any]:
        """Return the parameters by XGBoost's names; a direction makes a column monotone."""
        return {
            **({"monotone_constraints": tuple(directions)} if any(directions) else {}),
            "objective": "binary:logistic",
            "eval_metric": "logloss",
            "tree_method": "hist",
            "max_depth": self.max_depth,
            "eta": self.learning_rate,
            "subsample": self.subsample,
            "colsample_bytree": self.columns,
            "min_child_weight": self.min_child_weight,
            "reg_lambda": self.reg_lambda,
            "nthread": self.threads,
            "seed": self.seed + 1000 * member,
        }


def loss_by_round(
    train: tuple[Table, Floats, Floats],
    later: tuple[Table, Floats, Floats],
    settings: TreeSettings,
    directions: Sequence[int] = (),
) -> Floats:
    """Return the log loss on `later` after each round; both sets are (rows, label, weight)."""
    import xgboost

    matrices = [xgboost.DMatrix(x, y, weight=w) for x, y, w in (train, later)]
    losses = []
    for member in range(settings.members):
        history: dict[str, dict[str, list[float]]] = {}
        xgboost.train(
            settings.parameters(member, directions),
            matrices[0],
            settings.max_rounds,
            evals=[(matrices[1], "later")],
            evals_result=history,
            verbose_eval=False,
        )
        losses.append(history["later"]["logloss"])
    mean: Floats = np.mean(np.array(losses), axis=0)
    return mean


def fit(
    rows: Table,
    label: Floats,
    weight: Floats,
    rounds: int,
    settings: TreeSettings,
    directions: Sequence[int] = (),
) -> TreeEnsemble:
    """Train the members and return their average as plain arrays."""
    members = boosters(rows, label, weight, rounds, settings, directions)
    return TreeEnsemble.average([TreeEnsemble.from_xgboost(booster) for booster in members])


def boosters(
    rows: Table,
    label: Floats,
    weight: Floats,
    rounds: int,
    settings: TreeSettings,
    directions: Sequence[int] = (),
) -> list[Any]:
    """Train the members; return XGBoost's boosters."""
    import xgboost

    matrix = xgboost.DMatrix(rows, label, weight=weight)
    return [
        xgboost.train(settings.parameters(member, directions), matrix, rounds)
        for member in range(settings.members)
    ]


def train(training: Training) -> Fitted:
    """Try each set of features, keep the one with the lowest log loss, and fit it on all rows."""
    from condor_advice.model.metrics import log_loss  # only training needs it, not advice

    judged = training.judged
    tried = {name: _out_of_fold(training, name) for name in training.settings.feature_sets}
    losses = {
        name: log_loss(training.label[judged], sigmoid(margins[judged]), training.weight[judged])
        for name, (margins, _) in tried.items()
    }
    chosen = min(losses, key=lambda name: losses[name])
    margins, rounds = tried[chosen]
    part, _ = _fit(training, np.arange(len(training)), chosen, rounds)
    notes = {"log_loss_by_feature_set": losses, "set": chosen, "rounds": rounds}
    return Fitted(part, margins, notes, feature_set=chosen)


def _out_of_fold(training: Training, feature_set: str) -> tuple[Floats, int]:
    """Return the log-odds out of fold, and the best number of rounds on later rows.

    All folds share the number: a single fold has too few episodes to choose it.
    """
    curves = [_losses(training, kept, left, feature_set) for kept, left in training.folds()]
    rounds = 1 + int(np.argmin(np.mean(curves, axis=0)))
    margins = np.full(len(training), np.nan)
    for kept, left in training.folds():
        part, rates = _fit(training, kept, feature_set, rounds)
        margins[left] = part.margins(training.inputs(left, rates, learned=False))
    training.say(f"trees on the {feature_set} features: {rounds} rounds")
    return margins, rounds


def _losses(training: Training, kept: Ints, left: Ints, feature_set: str) -> Floats:
    """Return the log loss by round on rows that one fold's trees were not trained on."""
    # Stop on another access point if there is one, else on later episodes.
    early, late = (kept, left) if training.several else training.split(kept)
    rates = training.rates(early)
    seen, unseen = (
        (
            _rows(training, places, feature_set, rates, learned),
            training.label[places],
            training.weight[places],
        )
        for places, learned in ((early, True), (late, False))
    )
    return loss_by_round(seen, unseen, training.settings.of("trees"), _directions(feature_set))


def _fit(
    training: Training, places: Ints, feature_set: str, rounds: int
) -> tuple[TreePart, ReasonRates]:
    """Train on these places; return the part with the rates for the derived columns."""
    rates = training.rates(places)
    ensemble = fit(
        _rows(training, places, feature_set, rates, learned=True),
        training.label[places],
        training.weight[places],
        rounds,
        training.settings.of("trees"),
        _directions(feature_set),
    )
    return TreePart(ensemble, SETS[feature_set]), rates


def _rows(
    training: Training, places: Ints, feature_set: str, rates: ReasonRates, learned: bool
) -> Table:
    return tree_rows(SETS[feature_set], training.inputs(places, rates, learned))


def _directions(feature_set: str) -> list[int]:
    """Return the direction of each column."""
    return [direction(name) for name in tree_columns(SETS[feature_set])]


KIND = PartKind(from_arrays, train, TreeSettings)
