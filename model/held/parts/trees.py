"""XGBoost on the features of a hold: shallow, regularised, stopped early on later episodes.

Columns whose meaning leaves no doubt may only speak one way: that a job came back three times
never counts for it. With some thousand episodes to learn from, this keeps chance out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.infer import TreeEnsemble

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.float32]  # axes: (episode, column)


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """What xgboost is told."""

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
        """Return xgboost's names for them; a direction binds a column to speak one way only."""
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

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for a manifest."""
        return asdict(self)


def loss_by_round(
    train: tuple[Rows, Floats, Floats],
    later: tuple[Rows, Floats, Floats],
    settings: TreeSettings,
    directions: Sequence[int] = (),
) -> Floats:
    """Return the log loss on later episodes after each round; both are (rows, label, weight)."""
    import xgboost

    matrices = [xgboost.DMatrix(x, y, weight=w) for x, y, w in (train, later)]
    losses = []
    for member in range(settings.members):
        told: dict[str, dict[str, list[float]]] = {}
        xgboost.train(
            settings.parameters(member, directions),
            matrices[0],
            settings.max_rounds,
            evals=[(matrices[1], "later")],
            evals_result=told,
            verbose_eval=False,
        )
        losses.append(told["later"]["logloss"])
    found: Floats = np.mean(np.array(losses), axis=0)
    return found


def fit(
    rows: Rows,
    label: Floats,
    weight: Floats,
    rounds: int,
    settings: TreeSettings,
    directions: Sequence[int] = (),
) -> TreeEnsemble:
    """Train the members and return their average as plain arrays."""
    members = boosters(rows, label, weight, rounds, settings, directions)
    return TreeEnsemble.average([TreeEnsemble.from_xgboost(one) for one in members])


def boosters(
    rows: Rows,
    label: Floats,
    weight: Floats,
    rounds: int,
    settings: TreeSettings,
    directions: Sequence[int] = (),
) -> list[Any]:
    """Train the members as xgboost's own objects."""
    import xgboost

    matrix = xgboost.DMatrix(rows, label, weight=weight)
    return [
        xgboost.train(settings.parameters(member, directions), matrix, rounds)
        for member in range(settings.members)
    ]
