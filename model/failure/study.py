"""Compare methods for rare failures: weights, oversampling, SMOTE, active learning.

Each method trains the same trees and is tested on the same later jobs; its threshold is chosen
on the latest part of the past.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.failure.train import Parameters, TrainSettings, fit
from condor_advice.model.metrics import scores, threshold_for_f1
from condor_advice.preprocess.jobs.horizons import Features, JobDataset, TimeSplit

Floats = npt.NDArray[np.float64]

STUDY_PARAMETERS: Parameters = {
    "max_depth": 5,
    "eta": 0.08,
    "min_child_weight": 20.0,
    "subsample": 0.7,
    "colsample_bytree": 0.2,
    "reg_lambda": 5.0,
    "scale_pos_weight": 1.0,
    "max_bin": 64,
}
STUDY_ROUNDS = 120
NEIGHBOURS = 10


@dataclass(frozen=True, slots=True)
class Arena:
    """The rows to train on, to choose a threshold on, and to test on."""

    learn: JobDataset
    choose: JobDataset
    judge: JobDataset

    @classmethod
    def of(cls, data: JobDataset, split: TimeSplit) -> Arena:
        """Keep the latest fifth of the past for choosing thresholds."""
        past = data.take(np.flatnonzero(split.past(data)))
        edge = float(np.quantile(past.submit, 0.8))
        return cls(
            past.take(np.flatnonzero(past.end < edge)),
            past.take(np.flatnonzero(past.submit >= edge)),
            data.take(np.flatnonzero(split.future(data))),
        )


def compare_ways(
    data: JobDataset,
    split: TimeSplit,
    settings: TrainSettings,
    budget: int = 4000,
    batch: int = 400,
) -> dict[str, dict[str, float]]:
    """Return the figures of every method. Active and random learning use `budget` labels."""
    arena = Arena.of(data, split)
    learn = arena.learn
    share = float(np.mean(learn.label))
    figures_by_method = {}

    def judge(
        name: str, features: Features, label: Floats, parameters: Parameters = STUDY_PARAMETERS
    ) -> None:
        figures_by_method[name] = _judge(arena, features, label, parameters, settings)

    judge("plain", learn.features, learn.label)
    judge(
        "weighted",
        learn.features,
        learn.label,
        {**STUDY_PARAMETERS, "scale_pos_weight": (1 - share) / share},
    )
    judge("oversampled", *oversample(learn.features, learn.label, settings.seed))
    judge("smote", *smote(learn.features, learn.label, settings.seed))
    for name, choose in (("random_labels", random_batch), ("active", uncertain_dense_batch)):
        rows = label_actively(learn, choose, budget, batch, settings)
        judge(name, learn.features[rows], learn.label[rows])
    return figures_by_method


def oversample(features: Features, label: Floats, seed: int) -> tuple[Features, Floats]:
    """Repeat failed jobs at random until there are as many as passed ones."""
    from imblearn.over_sampling import RandomOverSampler

    more, labels = RandomOverSampler(random_state=seed).fit_resample(
        np.nan_to_num(features, nan=-1e9), label
    )
    return np.where(more <= -1e8, np.nan, more).astype(np.float32), labels


def smote(features: Features, label: Floats, seed: int) -> tuple[Features, Floats]:
    """Interpolate failed jobs. SMOTE accepts no gaps, so unknown values become medians."""
    from imblearn.over_sampling import SMOTE

    usual = _usual(features)
    filled = np.where(np.isfinite(features), features, usual)
    more, labels = SMOTE(random_state=seed, k_neighbors=5).fit_resample(filled, label)
    # The real jobs come first; they keep their gaps.
    result = more.astype(np.float32)
    result[: len(features)] = features
    return result, labels


def _usual(features: Features) -> Features:
    """Return the median of each column, 0 where nothing is known."""
    unknown = np.all(np.isnan(features), axis=0)
    return np.asarray(np.nanmedian(np.where(unknown, np.float32(0.0), features), axis=0))


Choose = Callable[
    [JobDataset, npt.NDArray[np.int64], npt.NDArray[np.int64], Any, int, np.random.Generator],
    npt.NDArray[np.int64],
]


def label_actively(
    pool: JobDataset, choose: Choose, budget: int, batch: int, settings: TrainSettings
) -> npt.NDArray[np.int64]:
    """Ask for labels batch by batch until the budget is spent; return the rows labelled.

    Labels of other rows are never used. The first batch is random.
    """
    rng = np.random.default_rng(settings.seed)
    asked = rng.choice(len(pool), min(batch, len(pool)), replace=False)
    while len(asked) < min(budget, len(pool)):
        label = pool.label[asked]
        rest = np.setdiff1d(np.arange(len(pool)), asked)
        booster = None
        if 0.0 < np.mean(label) < 1.0:
            booster = fit(
                pool.features[asked],
                label,
                {**STUDY_PARAMETERS, "min_child_weight": 2.0},
                60,
                settings,
            )
        asked = np.concatenate(
            [
                asked,
                choose(pool, asked, rest, booster, min(batch, budget - len(asked), len(rest)), rng),
            ]
        )
    return asked


def random_batch(
    _pool: JobDataset,
    _asked: npt.NDArray[np.int64],
    rest: npt.NDArray[np.int64],
    _booster: Any,
    count: int,
    rng: np.random.Generator,
) -> npt.NDArray[np.int64]:
    """Choose jobs at random."""
    return rng.choice(rest, count, replace=False)


def uncertain_dense_batch(
    pool: JobDataset,
    _asked: npt.NDArray[np.int64],
    rest: npt.NDArray[np.int64],
    booster: Any,
    count: int,
    rng: np.random.Generator,
) -> npt.NDArray[np.int64]:
    """Choose jobs for which the model is unsure and of which there are many similar ones."""
    import xgboost
    from sklearn.decomposition import PCA
    from sklearn.neighbors import NearestNeighbors

    if booster is None:
        return random_batch(pool, _asked, rest, booster, count, rng)
    candidates = rng.choice(rest, min(len(rest), 6000), replace=False)
    features = pool.features[candidates]
    probability = booster.predict(xgboost.DMatrix(features, nthread=1))
    uncertainty = 1.0 - 2.0 * np.abs(probability - 0.5)
    usual = _usual(pool.features)
    filled = np.where(np.isfinite(features), features, usual)
    spread = filled.std(axis=0)
    points = PCA(8, random_state=0).fit_transform(
        (filled - filled.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    )
    distance, _ = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(points).kneighbors(points)
    density = 1.0 / (1.0 + distance.mean(axis=1))
    return np.asarray(candidates[np.argsort(-uncertainty * density, kind="stable")[:count]])


def _judge(
    arena: Arena, features: Features, label: Floats, parameters: Parameters, settings: TrainSettings
) -> dict[str, float]:
    import xgboost

    booster = fit(features, label, parameters, STUDY_ROUNDS, replace(settings))
    choose, judge = (
        booster.predict(xgboost.DMatrix(part.features, nthread=settings.threads)).astype(np.float64)
        for part in (arena.choose, arena.judge)
    )
    figures = scores(arena.judge.label, judge, threshold_for_f1(arena.choose.label, choose))
    return {"labels": float(len(label)), **figures.as_dict()}
