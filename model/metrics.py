"""Figures of a model's predictions: one function each, and a table of them.

A label is 1 for what the model predicts (a success after a release, a failed job), else 0. A
figure is computed once over all predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def roc_auc(label: Floats, score: Floats) -> float:
    """Return the chance that a positive case scores above a negative one; ties count half."""
    positives = float(np.sum(label))
    negatives = len(label) - positives
    if not positives or not negatives:
        return float("nan")
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    return float(
        (np.sum(ranks[label > 0]) - positives * (positives + 1) / 2.0) / (positives * negatives)
    )


def curve(label: Floats, score: Floats) -> dict[str, Floats]:
    """Return precision, recall and false positives at every distinct threshold, highest first."""
    order = np.argsort(-score, kind="stable")
    label, score = label[order], score[order]
    last = np.flatnonzero(np.r_[score[1:] != score[:-1], True]) if len(score) else np.empty(0, int)
    hits = np.cumsum(label)[last]
    alarms = last + 1.0
    positives = max(float(np.sum(label)), 1e-300)
    negatives = max(float(len(label) - np.sum(label)), 1e-300)
    return {
        "threshold": score[last],
        "precision": hits / alarms,
        "recall": hits / positives,
        "false_positive_rate": (alarms - hits) / negatives,
    }


def pr_auc(label: Floats, score: Floats) -> float:
    """Return average precision: precision summed over the steps of recall."""
    if not np.any(label > 0):
        return float("nan")
    points = curve(label, score)
    return float(np.sum(np.diff(np.r_[0.0, points["recall"]]) * points["precision"]))


def base_rate(label: Floats) -> float:
    """Return the share of positive cases; NaN without any case."""
    return _mean(label)


def brier(label: Floats, p: Floats) -> float:
    """Return the mean squared difference between probability and label."""
    return _mean((p - label) ** 2)


def log_losses(label: Floats, p: Floats, least: float = 1e-6) -> Floats:
    """Return the negative log likelihood of each case; `least` keeps it finite."""
    clipped = np.clip(p, least, 1 - least)
    losses: Floats = -(label * np.log(clipped) + (1 - label) * np.log1p(-clipped))
    return losses


def log_loss(label: Floats, p: Floats, weight: Floats | None = None, least: float = 1e-6) -> float:
    """Return the mean negative log likelihood."""
    if not len(label):
        return float("nan")
    return float(np.average(log_losses(label, p, least), weights=weight))


def calibration_error(label: Floats, p: Floats, bins: int = 10) -> float:
    """Return the expected calibration error over bins of equally many cases.

    Predicted and observed rates are compared bin by bin; the mean of the differences is
    weighted by the cases in each bin.
    """
    order = np.argsort(p, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    gaps = [abs(float(np.mean(p[part]) - np.mean(label[part]))) * len(part) for part in parts]
    return sum(gaps) / max(len(label), 1)


def accuracy(label: Floats, p: Floats, threshold: float = 0.5) -> float:
    """Return the share of correct predictions at a threshold."""
    return _mean((p >= threshold) == (label > 0))


def precision(label: Floats, p: Floats, threshold: float = 0.5) -> float:
    """Return the share of positive cases among those at or above the threshold."""
    return _hits(label, p, threshold) / max(float(np.sum(p >= threshold)), 1.0)


def recall(label: Floats, p: Floats, threshold: float = 0.5) -> float:
    """Return the share of positive cases that are at or above the threshold."""
    return _hits(label, p, threshold) / max(float(np.sum(label > 0)), 1.0)


def f1(label: Floats, p: Floats, threshold: float = 0.5) -> float:
    """Return the harmonic mean of precision and recall."""
    right, hit = precision(label, p, threshold), recall(label, p, threshold)
    return 2 * right * hit / (right + hit) if right + hit else 0.0


def _hits(label: Floats, p: Floats, threshold: float) -> float:
    return float(np.sum((p >= threshold) & (label > 0)))


def _mean(values: npt.NDArray[Any]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


# By their names in reports and manifests. Each takes label, probability and threshold.
_FIGURES: Mapping[str, Callable[[Floats, Floats, float], float]] = {
    "n_test": lambda label, _p, _threshold: len(label),
    "episodes": lambda label, _p, _threshold: len(label),
    "base_rate": lambda label, _p, _threshold: base_rate(label),
    "threshold": lambda _label, _p, threshold: float(threshold),
    "roc_auc": lambda label, p, _threshold: roc_auc(label, p),
    "pr_auc": lambda label, p, _threshold: pr_auc(label, p),
    "brier": lambda label, p, _threshold: brier(label, p),
    "log_loss": lambda label, p, _threshold: log_loss(label, p),
    "calibration_error": lambda label, p, _threshold: calibration_error(label, p),
    "accuracy": accuracy,
    "precision": precision,
    "recall": recall,
    "f1": f1,
}
# Figures of probabilities, independent of a threshold.
OF_PROBABILITIES = ("roc_auc", "pr_auc", "brier", "log_loss", "calibration_error")
# Figures of a sweep's split.
OF_EPISODES = ("episodes", "log_loss", "roc_auc", "pr_auc", "brier", "calibration_error")


def figures(
    label: Floats, p: Floats, names: Iterable[str], threshold: float = 0.5
) -> dict[str, float]:
    """Return the named figures, in this order."""
    return {name: _FIGURES[name](label, p, threshold) for name in names}


@dataclass(frozen=True, slots=True)
class Scores:
    """A failure model's figures at one threshold; the two areas are over all thresholds."""

    n_test: int
    base_rate: float
    threshold: float
    roc_auc: float
    pr_auc: float
    accuracy: float
    precision: float
    recall: float
    f1: float
    brier: float
    log_loss: float

    def as_dict(self) -> dict[str, float]:
        """Return the figures by name."""
        return asdict(self)


def scores(label: Floats, probability: Floats, threshold: float) -> Scores:
    """Return every figure of a failure model."""
    named = figures(label, probability, (field.name for field in fields(Scores)), threshold)
    # Most jobs succeed, so probabilities are smaller than those of holds.
    named["log_loss"] = log_loss(label, probability, least=1e-7)
    return Scores(**named)  # type: ignore[arg-type]


def bootstrap(
    label: Floats,
    probability: Floats,
    threshold: float,
    groups: Floats,
    seed: int,
    rounds: int = 200,
    level: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """Return bootstrap intervals over whole groups.

    A user's jobs come in bursts and share their fate, so single jobs are not independent. `groups`
    has one number per job; jobs that were submitted together share it.
    """
    rng = np.random.default_rng(seed)
    distinct, inverse = np.unique(groups, return_inverse=True)
    members = np.split(
        np.argsort(inverse, kind="stable"),
        np.cumsum(np.bincount(inverse, minlength=len(distinct)))[:-1],
    )
    drawn_figures: dict[str, list[float]] = {}
    for _ in range(rounds):
        drawn = np.concatenate(
            [members[nth] for nth in rng.integers(0, len(distinct), len(distinct))]
        )
        for name, value in scores(label[drawn], probability[drawn], threshold).as_dict().items():
            drawn_figures.setdefault(name, []).append(value)
    tail = (1.0 - level) / 2.0
    return {
        name: (float(np.nanquantile(values, tail)), float(np.nanquantile(values, 1 - tail)))
        for name, values in drawn_figures.items()
        if name not in ("n_test", "threshold", "base_rate")
    }


def threshold_for_f1(label: Floats, probability: Floats) -> float:
    """Return the threshold with the best F1."""
    return _best(
        label,
        probability,
        lambda precision, recall, _false: (
            2 * precision * recall / np.maximum(precision + recall, 1e-300)
        ),
    )


def threshold_for_precision(label: Floats, probability: Floats, wanted: float) -> float:
    """Return the threshold with the highest recall among those with enough precision.

    If there is none, return one that no case reaches: no alarm is better than too many.
    """
    points = curve(label, probability)
    good = points["precision"] >= wanted
    if not np.any(good):
        return 1.0 + 1e-9
    return float(points["threshold"][np.flatnonzero(good)[-1]])


def threshold_for_cost(label: Floats, probability: Floats, missed_over_false: float) -> float:
    """Return the cheapest threshold if a missed failure costs this many false alarms."""
    positives, negatives = float(np.sum(label)), float(len(label) - np.sum(label))
    return _best(
        label,
        probability,
        lambda _precision, recall, false: (
            -(missed_over_false * positives * (1 - recall) + negatives * false)
        ),
    )


def _best(
    label: Floats, probability: Floats, gain: Callable[[Floats, Floats, Floats], Floats]
) -> float:
    points = curve(label, probability)
    if not len(points["threshold"]):
        return 0.5
    gains = gain(points["precision"], points["recall"], points["false_positive_rate"])
    return float(points["threshold"][int(np.argmax(gains))])


def reliability(label: Floats, probability: Floats, bins: int = 10) -> list[Mapping[str, float]]:
    """Return predicted and observed rates, in bins by predicted probability."""
    order = np.argsort(probability, kind="stable")
    return [
        {
            "said": float(np.mean(probability[part])),
            "happened": float(np.mean(label[part])),
            "jobs": float(len(part)),
        }
        for part in np.array_split(order, bins)
        if len(part)
    ]


def coverage_risk(p: Floats, label: Floats) -> tuple[Floats, Floats]:
    """Return coverage and the share of wrong verdicts, most certain answers first.

    Equally certain answers are added together: no threshold can separate them.
    """
    certainty = np.abs(p - 0.5)
    order = np.argsort(-certainty, kind="stable")
    wrong = np.cumsum((p[order] >= 0.5) != (label[order] > 0.5))
    last = np.flatnonzero(np.append(np.diff(certainty[order]) != 0, True)[: len(p)])
    count = np.arange(1, len(p) + 1)
    return (count / max(len(p), 1))[last], (wrong / count)[last]


def coverage_at(p: Floats, label: Floats, risk: float) -> float:
    """Return the largest share of episodes that can be answered with at most this risk.

    It uses the labels: it measures the ordering of the answers, not a rule for new holds.
    """
    if not len(p):
        return 0.0
    coverage, wrong = coverage_risk(p, label)
    good = np.flatnonzero(wrong <= risk)
    return float(coverage[good[-1]]) if len(good) else 0.0
