"""Train failure models: a random search on time-ordered folds, then the trees."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError
from condor_advice.gather.workloads.table import JobTable
from condor_advice.model.calibration import fit_line
from condor_advice.model.failure.anomaly import AnomalyDetector
from condor_advice.model.failure.model import FailureModels, HorizonModel
from condor_advice.model.failure.profiles import fit_profiles
from condor_advice.model.failure.size_models import train_sizes
from condor_advice.model.infer import TreeEnsemble, sigmoid
from condor_advice.model.metrics import (
    curve,
    roc_auc,
    threshold_for_cost,
    threshold_for_f1,
    threshold_for_precision,
)
from condor_advice.preprocess.jobs.history import History
from condor_advice.preprocess.jobs.horizons import (
    Horizon,
    JobDataset,
    JobFeatures,
    Labels,
    TimeSplit,
)

Floats = npt.NDArray[np.float64]
Parameters = dict[str, Any]

MIN_ROWS = 200
PRECISIONS = (0.5, 0.7, 0.8, 0.9, 0.95)
THRESHOLD_COSTS = (1.0, 5.0, 20.0)  # of a missed failure, in false alarms
# Just enough for the calibration of separable data to be finite.
_CALIBRATION_RIDGE = 1e-6


class TooFewJobs(AdviceError):
    """The table has too few jobs to train on."""


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How much work a training may do. The seed fixes all random choices."""

    trials: int = 20
    folds: int = 2
    members: int = 3  # best trials averaged in the final model
    seed: int = 0
    threads: int = 2
    max_rounds: int = 400
    max_search_rows: int = 30_000  # the search looks at the latest rows only
    patience: int = 10  # rounds without gain before a fold stops


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows to train on and rows to test on; the former ended before the latter began."""

    learn: npt.NDArray[np.int64]
    judge: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """Parameters, their best number of rounds, and their score on unseen rows."""

    parameters: Parameters
    rounds: int
    roc_auc: float
    margins: Floats


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best trials, all trials for the manifest, and the best ones' mean margins."""

    best: list[SearchTrial]
    trials: list[dict[str, Any]]
    rows: npt.NDArray[np.int64]
    margins: Floats


def train_models(
    table: JobTable,
    horizons: Sequence[Horizon],
    labels: Labels,
    settings: TrainSettings,
    split: TimeSplit | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> FailureModels:
    """Train one model per horizon on the part of the table before the split, or on all of it."""
    table = table.in_submit_order()
    if not len(table):
        raise TooFewJobs("the table has no jobs; check the files given")
    moment = split or TimeSplit(
        float(np.nanmax(np.r_[table["submit_time"], table["end_time"]])) + 1.0
    )
    seen = table.known_at(moment.moment)
    maker = JobFeatures.for_table(seen, labels)
    history = History(maker.levels)
    data = maker.datasets(seen, horizons, history)
    models = {horizon: train_horizon(data[horizon], moment, settings, say) for horizon in data}
    at_submit = data.get(Horizon.SUBMIT)
    anomalies = None
    if at_submit is not None:
        every = np.ones(len(at_submit), dtype=bool)
        anomalies = AnomalyDetector.fit(
            fit_profiles(at_submit, every, settings.seed), at_submit, every
        )
    return FailureModels(
        maker,
        models,
        history,
        train_sizes(seen, maker, at_submit, settings.seed, settings.threads),
        anomalies,
        {"jobs": len(seen), "moment": moment.moment, "seed": settings.seed},
    )


def train_horizon(
    data: JobDataset,
    split: TimeSplit,
    settings: TrainSettings,
    say: Callable[[str], None] = lambda _text: None,
) -> HorizonModel:
    """Search, fit, calibrate and choose thresholds, all on rows that ended before the split."""
    began = time.monotonic()
    past = np.flatnonzero(split.past(data))
    label = data.label[past]
    if len(past) < MIN_ROWS or not 0.0 < float(np.mean(label)) < 1.0:
        raise TooFewJobs(
            f"{data.horizon}: {len(past)} jobs with a known outcome, "
            f"{int(np.sum(label))} of them failed; at least {MIN_ROWS} are needed, "
            "of both kinds"
        )
    columns = _informative(data.features[past])
    names = tuple(data.names[column] for column in columns)
    features = data.features[:, columns]
    result = search(features, data, past, settings, say)
    trees = TreeEnsemble.average(fit_members(features[past], label, result.best, settings))
    seen_label = data.label[result.rows]
    slope, offset = fit_line(result.margins, seen_label, _CALIBRATION_RIDGE)
    probability = sigmoid(slope * result.margins + offset)
    notes = {
        "rows": len(past),
        "failed": int(np.sum(label)),
        "parameters": result.best[0].parameters,
        "rounds": result.best[0].rounds,
        "members": [{**trial.parameters, "rounds": trial.rounds} for trial in result.best],
        "validation_roc_auc": roc_auc(seen_label, result.margins),
        "seconds": round(time.monotonic() - began, 1),
        "trials": result.trials,
        "curve": _thin(curve(seen_label, probability)),
    }
    return HorizonModel(
        data.horizon, names, trees, slope, offset, thresholds(seen_label, probability), notes
    )


def fit(
    features: npt.NDArray[np.float32],
    label: Floats,
    parameters: Parameters,
    rounds: int,
    settings: TrainSettings,
    member: int = 0,
) -> Any:
    """Fit one booster. XGBoost is imported here, so that it does not slow loading a model."""
    import xgboost

    matrix = xgboost.QuantileDMatrix(
        features, label, max_bin=parameters["max_bin"], nthread=settings.threads
    )
    return xgboost.train(_complete(parameters, settings, member), matrix, rounds)


def fit_members(
    features: npt.NDArray[np.float32],
    label: Floats,
    best: Sequence[SearchTrial],
    settings: TrainSettings,
) -> list[TreeEnsemble]:
    """Fit the best trials on all rows, each with its own seed; rows are binned once."""
    import xgboost

    matrix = xgboost.QuantileDMatrix(
        features, label, max_bin=best[0].parameters["max_bin"], nthread=settings.threads
    )
    return [
        TreeEnsemble.from_xgboost(
            xgboost.train(_complete(trial.parameters, settings, member), matrix, trial.rounds)
        )
        for member, trial in enumerate(best)
    ]


def search(
    features: npt.NDArray[np.float32],
    data: JobDataset,
    past: npt.NDArray[np.int64],
    settings: TrainSettings,
    say: Callable[[str], None],
) -> SearchResult:
    """Try random parameters on time-ordered folds; keep those with the best ROC AUC.

    The number of rounds comes from early stopping on the following fold. Each fold's rows are
    binned once for all trials. The best trials are averaged: they differ by less than chance,
    and their mean is better than each.
    """
    import xgboost

    rng = np.random.default_rng(settings.seed)
    rows = past[np.argsort(data.submit[past], kind="stable")][-settings.max_search_rows :]
    folds = time_folds(data, rows, settings.folds)
    share = float(np.mean(data.label[rows]))
    known_end = data.horizon is Horizon.POST_MORTEM
    candidates = [_draw(rng, share, known_end) for _ in range(max(1, settings.trials))]
    bins = candidates[0]["max_bin"]
    matrices = []
    for fold in folds:
        learn = xgboost.QuantileDMatrix(
            features[fold.learn], data.label[fold.learn], max_bin=bins, nthread=settings.threads
        )
        matrices.append(
            (
                learn,
                xgboost.QuantileDMatrix(
                    features[fold.judge],
                    data.label[fold.judge],
                    ref=learn,
                    max_bin=bins,
                    nthread=settings.threads,
                ),
            )
        )
    tried: list[SearchTrial] = []
    trials: list[dict[str, Any]] = []
    for number, parameters in enumerate(candidates):
        areas, rounds, margins = [], [], []
        for fold, (learn, judge) in zip(folds, matrices, strict=True):
            booster = xgboost.train(
                _complete(parameters, settings),
                learn,
                settings.max_rounds,
                evals=[(judge, "judge")],
                early_stopping_rounds=settings.patience,
                verbose_eval=False,
            )
            stop = int(booster.best_iteration) + 1
            margin = booster.predict(judge, output_margin=True, iteration_range=(0, stop))
            areas.append(roc_auc(data.label[fold.judge], margin.astype(np.float64)))
            rounds.append(stop)
            margins.append(margin.astype(np.float64))
        area = float(np.mean(areas))
        trials.append({"roc_auc": area, "rounds": rounds, **parameters})
        say(f"{data.horizon}: trial {number + 1} of {len(candidates)}: ROC AUC {area:.4f}")
        # The final training has more rows than the folds, which allows a few more rounds.
        more = int(1.15 * np.mean(rounds)) + 1
        tried.append(SearchTrial(parameters, more, area, np.concatenate(margins)))
    best = sorted(tried, key=lambda trial: -trial.roc_auc)[: settings.members]
    return SearchResult(
        best,
        trials,
        np.concatenate([fold.judge for fold in folds]),
        np.mean([trial.margins for trial in best], axis=0),
    )


def time_folds(data: JobDataset, rows: npt.NDArray[np.int64], count: int) -> list[Fold]:
    """Cut the later half into `count` periods; each is tested by what ended before it."""
    submit = np.sort(data.submit[rows])
    edges = [
        submit[min(int(len(rows) * (0.5 + 0.5 * part / count)), len(rows) - 1)]
        for part in range(count)
    ] + [np.inf]
    folds = []
    for begin, stop in itertools.pairwise(edges):
        learn = rows[data.end[rows] < begin]
        judge = rows[(data.submit[rows] >= begin) & (data.submit[rows] < stop)]
        if all(0.0 < np.mean(data.label[part]) < 1.0 for part in (learn, judge) if len(part)) and (
            len(learn) and len(judge)
        ):
            folds.append(Fold(learn, judge))
    if not folds:
        raise TooFewJobs(
            f"{data.horizon}: no moment has failed and passed jobs both before and after it; "
            "give a longer log"
        )
    return folds


def thresholds(label: Floats, probability: Floats) -> dict[str, float]:
    """Return the thresholds that users can choose by name, all from validation rows."""
    by_name = {"f1": threshold_for_f1(label, probability)}
    by_name |= {
        f"precision_{wanted}": threshold_for_precision(label, probability, wanted)
        for wanted in PRECISIONS
    }
    return by_name | {
        f"cost_{cost:g}": threshold_for_cost(label, probability, cost) for cost in THRESHOLD_COSTS
    }


def _draw(rng: np.random.Generator, share_failed: float, known_end: bool) -> Parameters:
    """Draw parameters for shallow trees with large leaves: deep trees overfit to users.

    Where the end is known there is more to learn, and deep trees are better.
    """
    imbalance = (1.0 - share_failed) / share_failed
    if known_end:
        return {
            "max_depth": int(rng.integers(7, 11)),
            "eta": float(np.exp(rng.uniform(np.log(0.05), np.log(0.1)))),
            "min_child_weight": float(np.exp(rng.uniform(np.log(1), np.log(8)))),
            "subsample": float(rng.uniform(0.7, 0.9)),
            "colsample_bytree": float(rng.choice([0.5, 0.7])),
            "reg_lambda": float(np.exp(rng.uniform(np.log(1), np.log(8)))),
            "scale_pos_weight": 1.0,
            "max_bin": 256,
        }
    return {
        "max_depth": int(rng.integers(3, 8)),
        "eta": float(np.exp(rng.uniform(np.log(0.05), np.log(0.1)))),
        "min_child_weight": float(np.exp(rng.uniform(np.log(5), np.log(300)))),
        "subsample": float(rng.uniform(0.5, 0.9)),
        "colsample_bytree": float(rng.choice([0.05, 0.1, 0.2])),
        "reg_lambda": float(np.exp(rng.uniform(np.log(1), np.log(50)))),
        "scale_pos_weight": float(rng.choice([1.0, imbalance**0.5, imbalance])),
        "max_bin": 64,
    }


def _complete(
    parameters: Mapping[str, Any], settings: TrainSettings, member: int = 0
) -> Parameters:
    return {
        "objective": "binary:logistic",
        "eval_metric": "auc",
        "tree_method": "hist",
        "nthread": settings.threads,
        "seed": settings.seed * 1000 + member,
        **parameters,
    }


def _informative(features: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return the columns that are not constant."""
    first = features[0]
    same = np.all((features == first) | (np.isnan(features) & np.isnan(first)), axis=0)
    return np.flatnonzero(~same)


def _thin(full: Mapping[str, Floats], points: int = 200) -> dict[str, list[float]]:
    """Thin a curve out for the manifest."""
    length = len(full["threshold"])
    kept = np.unique(np.linspace(0, length - 1, min(points, length)).astype(int))
    return {
        name: [round(float(value), 6) for value in values[kept]] for name, values in full.items()
    }
