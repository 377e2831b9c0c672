"""Prequential evaluation: predict each period, then train on its outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.failure.train import MIN_ROWS, Parameters, TrainSettings, fit
from condor_advice.model.infer import TreeEnsemble
from condor_advice.model.metrics import pr_auc, roc_auc
from condor_advice.preprocess.jobs.horizons import JobDataset, TimeSplit

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """One period of the future, with the scores of a fixed and a retrained model."""

    begin: float
    jobs: int
    failed: float
    fixed_roc_auc: float
    retrained_roc_auc: float


def prequential(
    data: JobDataset,
    split: TimeSplit,
    parameters: Parameters,
    rounds: int,
    settings: TrainSettings,
    every_days: float = 14.0,
    window_days: float | None = None,
) -> dict[str, Any]:
    """Step through the future; retrain at each step on jobs ended by then, within the window.

    The fixed model is trained once, at the split. Both use up-to-date history features, so the
    difference is the effect of retraining alone.
    """
    fixed = _train(data, split.moment, parameters, rounds, settings, None)
    labels: list[Floats] = []
    predicted: dict[str, list[Floats]] = {"fixed": [], "retrained": []}
    stretches: list[Stretch] = []
    for begin, stop in _stretches(data, split, every_days * 86400.0):
        rows = np.flatnonzero(
            np.isfinite(data.label) & (data.submit >= begin) & (data.submit < stop)
        )
        if not len(rows):
            continue
        model = _train(data, begin, parameters, rounds, settings, window_days) or fixed
        if model is None or fixed is None:
            continue
        label = data.label[rows]
        old, new = (trees.predict_proba(data.features[rows]) for trees in (fixed, model))
        stretches.append(
            Stretch(
                begin, len(rows), float(np.mean(label)), roc_auc(label, old), roc_auc(label, new)
            )
        )
        labels.append(label)
        predicted["fixed"].append(old)
        predicted["retrained"].append(new)
    label = np.concatenate(labels) if labels else np.empty(0)
    return {
        "every_days": every_days,
        "window_days": window_days,
        "jobs": len(label),
        **{
            f"{name}_roc_auc": roc_auc(label, np.concatenate(parts)) if parts else float("nan")
            for name, parts in predicted.items()
        },
        **{
            f"{name}_pr_auc": pr_auc(label, np.concatenate(parts)) if parts else float("nan")
            for name, parts in predicted.items()
        },
        "stretches": [
            {name: getattr(stretch, name) for name in Stretch.__slots__} for stretch in stretches
        ],
    }


def _train(
    data: JobDataset,
    moment: float,
    parameters: Parameters,
    rounds: int,
    settings: TrainSettings,
    window_days: float | None,
) -> TreeEnsemble | None:
    """Train on the jobs ended by a moment; return None if they are too few."""
    learn = TimeSplit(moment).past(data)
    if window_days is not None:
        learn &= data.submit >= moment - 86400.0 * window_days
    label = data.label[learn]
    if len(label) < MIN_ROWS or not 0.0 < float(np.mean(label)) < 1.0:
        return None
    return TreeEnsemble.from_xgboost(fit(data.features[learn], label, parameters, rounds, settings))


def _stretches(data: JobDataset, split: TimeSplit, seconds: float) -> Iterator[tuple[float, float]]:
    begin, last = split.moment, float(np.max(data.submit, initial=split.moment))
    while begin <= last:
        yield begin, begin + seconds
        begin += seconds
