"""XGBoost on the features of a hold: shallow, regularised, stopped early on later episodes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.infer import TreeEnsemble

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Ids and clock times say which job it was, not what becomes of such a job.
LEFT_OUT = ("hold_template", "hold_hour_sin", "hold_hour_cos", "hold_weekday")


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """What xgboost is told."""

    max_depth: int = 3
    learning_rate: float = 0.05
    subsample: float = 0.7
    columns: float = 0.3
    min_child_weight: float = 5.0
    reg_lambda: float = 5.0
    max_rounds: int = 300
    patience: int = 30
    members: int = 3  # seeds averaged
    seed: int = 0
    threads: int = 1

    def parameters(self, member: int) -> dict[str, Any]:
        """Return xgboost's names for them."""
        return {
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


def choose_rounds(
    train: tuple[npt.NDArray[np.float32], Floats, Floats],
    later: tuple[npt.NDArray[np.float32], Floats, Floats],
    settings: TreeSettings,
) -> int:
    """Return how many rounds were best on later episodes; both are (features, label, weight)."""
    import xgboost

    matrices = [xgboost.DMatrix(x, y, weight=w) for x, y, w in (train, later)]
    booster = xgboost.train(
        settings.parameters(0),
        matrices[0],
        settings.max_rounds,
        evals=[(matrices[1], "later")],
        early_stopping_rounds=settings.patience,
        verbose_eval=False,
    )
    return int(booster.best_iteration) + 1


def fit(
    features: npt.NDArray[np.float32],
    label: Floats,
    weight: Floats,
    rounds: int,
    settings: TreeSettings,
) -> TreeEnsemble:
    """Train the members and return their average as plain arrays."""
    return TreeEnsemble.average(
        [
            TreeEnsemble.from_xgboost(one)
            for one in boosters(features, label, weight, rounds, settings)
        ]
    )


def boosters(
    features: npt.NDArray[np.float32],
    label: Floats,
    weight: Floats,
    rounds: int,
    settings: TreeSettings,
) -> list[Any]:
    """Train the members as xgboost's own objects."""
    import xgboost

    matrix = xgboost.DMatrix(features, label, weight=weight)
    return [
        xgboost.train(settings.parameters(member), matrix, rounds)
        for member in range(settings.members)
    ]
