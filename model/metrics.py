"""Every figure about a failure model, computed once over the whole part that it is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scores:
    """Figures at one threshold and, for the two areas, over all of them."""

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


def roc_auc(label: Floats, score: Floats) -> float:
    """Return the chance that a failed job scores above a passed one, ties counting half."""
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
    """Return precision, recall and false alarms at every distinct threshold, highest first."""
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
    found = curve(label, score)
    return float(np.sum(np.diff(np.r_[0.0, found["recall"]]) * found["precision"]))


def scores(label: Floats, probability: Floats, threshold: float) -> Scores:
    """Return every figure."""
    said = probability >= threshold
    failed = label > 0
    hits = float(np.sum(said & failed))
    precision = hits / max(float(np.sum(said)), 1.0)
    recall = hits / max(float(np.sum(failed)), 1.0)
    clipped = np.clip(probability, 1e-7, 1 - 1e-7)
    return Scores(
        n_test=len(label),
        base_rate=float(np.mean(label)) if len(label) else float("nan"),
        threshold=float(threshold),
        roc_auc=roc_auc(label, probability),
        pr_auc=pr_auc(label, probability),
        accuracy=float(np.mean(said == failed)) if len(label) else float("nan"),
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        brier=float(np.mean((probability - label) ** 2)) if len(label) else float("nan"),
        log_loss=float(-np.mean(label * np.log(clipped) + (1 - label) * np.log1p(-clipped)))
        if len(label)
        else float("nan"),
    )


def bootstrap(
    label: Floats,
    probability: Floats,
    threshold: float,
    groups: Floats,
    seed: int,
    rounds: int = 200,
    level: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """Return intervals by drawing whole groups again.

    Jobs of one user come in bursts with one fate, so single jobs are not independent; drawing
    blocks of jobs that were submitted together (`groups`: one number per job) keeps that.
    """
    rng = np.random.default_rng(seed)
    distinct, inverse = np.unique(groups, return_inverse=True)
    members = np.split(
        np.argsort(inverse, kind="stable"),
        np.cumsum(np.bincount(inverse, minlength=len(distinct)))[:-1],
    )
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        drawn = np.concatenate(
            [members[one] for one in rng.integers(0, len(distinct), len(distinct))]
        )
        for name, value in scores(label[drawn], probability[drawn], threshold).as_dict().items():
            found.setdefault(name, []).append(value)
    tail = (1.0 - level) / 2.0
    return {
        name: (float(np.nanquantile(values, tail)), float(np.nanquantile(values, 1 - tail)))
        for name, values in found.items()
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
    """Return the threshold with the most recall among those precise enough.

    When none is, return one that no job reaches: saying nothing keeps the promise.
    """
    found = curve(label, probability)
    good = found["precision"] >= wanted
    if not np.any(good):
        return 1.0 + 1e-9
    return float(found["threshold"][np.flatnonzero(good)[-1]])


def threshold_for_cost(label: Floats, probability: Floats, missed_over_false: float) -> float:
    """Return the cheapest threshold when a missed failure costs so many false alarms."""
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
    found = curve(label, probability)
    if not len(found["threshold"]):
        return 0.5
    gains = gain(found["precision"], found["recall"], found["false_positive_rate"])
    return float(found["threshold"][int(np.argmax(gains))])


def reliability(label: Floats, probability: Floats, bins: int = 10) -> list[Mapping[str, float]]:
    """Return, for jobs in order of predicted risk, what was said and what happened."""
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
