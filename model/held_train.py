"""Training of a model for held jobs: parts, stack, calibration, abstention, thresholds.

Whatever is chosen is chosen on episodes that the parts did not learn from: each fold's parts
are trained on the other folds, and what they say of it (*out of fold*) is what stack,
calibration, abstention and thresholds are fitted on. A fold is a whole access point where
there are several, else a stretch of time; kin stay together in both cases.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model import calibration, conformal, held, manifest, stack, thresholds, trees
from condor_advice.model.held import HeldModel, logit
from condor_advice.model.held_data import HeldData
from condor_advice.model.infer import TreeEnsemble
from condor_advice.model.rule_scores import rule_priors
from condor_advice.preprocess.features import FEATURE_NAMES
from condor_advice.preprocess.tensors import TensorSpec

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TREE_COLUMNS = np.array(
    [index for index, name in enumerate(FEATURE_NAMES) if name not in trees.LEFT_OUT]
)


@dataclass(frozen=True, slots=True)
class HeldSettings:
    """How a model is trained; the seed settles everything that is random."""

    parts: tuple[str, ...] = ("rules", "trees")
    trees: trees.TreeSettings = field(default_factory=trees.TreeSettings)
    folds: int = 4  # in time, where there is one access point only
    later: float = 0.25  # share of the training episodes that early stopping looks at
    risk: float = conformal.RISK
    seed: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for a manifest."""
        return asdict(self)


@dataclass(frozen=True)
class Trained:
    """A model, and what was found on the way."""

    model: HeldModel
    out_of_fold: dict[str, Floats]  # log-odds of each part, for the labelled rows
    rows: Ints  # the labelled rows
    notes: dict[str, Any]


def folds_of(data: HeldData, rows: Ints, count: int) -> Ints:
    """Return which fold each of some rows is in."""
    source = data.source[rows]
    sizes = np.bincount(source, minlength=len(data.sources))
    if np.count_nonzero(sizes >= len(rows) / 10) >= 2:
        return source.astype(np.int64)
    # Kin go where the first of them was held.
    _, which = np.unique(data.kin[rows], return_inverse=True)
    first = np.full(int(which.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, which, data.time[rows])
    rank = np.argsort(np.argsort(first[which], kind="stable"), kind="stable")
    fold = np.minimum(rank * count // max(len(rows), 1), count - 1)
    lowest = np.full(len(first), count)
    np.minimum.at(lowest, which, fold)
    found: Ints = lowest[which]
    return found


def train(
    data: HeldData,
    settings: HeldSettings,
    name: str = "",
    say: Callable[[str], None] = lambda _text: None,
) -> Trained:
    """Train a model on the labelled episodes."""
    began = time.monotonic()
    data.check()
    rows = data.labelled
    label = data.label[rows].astype(np.float64)
    weight = np.ones(len(rows))
    fold = folds_of(data, rows, settings.folds)
    parts: dict[str, Floats] = {}
    if "rules" in settings.parts:
        parts["rules"] = logit(rule_priors(data.features[rows], FEATURE_NAMES))
    notes: dict[str, Any] = {}
    if "trees" in settings.parts:
        parts["trees"] = np.empty(len(rows))
        rounds = []
        for nth in np.unique(fold).tolist():
            kept, left = np.flatnonzero(fold != nth), np.flatnonzero(fold == nth)
            rounds.append(_rounds(data, rows[kept], weight[kept], settings))
            one = _trees(data, rows[kept], weight[kept], rounds[-1], settings)
            parts["trees"][left] = one.predict_margin(_tree_rows(data, rows[left]))
            say(f"trees: fold {nth + 1} of {len(np.unique(fold))}, {rounds[-1]} rounds")
        notes["rounds"] = rounds
    kin = data.kin[rows]
    weights, bias = stack.fit(parts, label, weight)
    margin = stack.combine(parts, weights, bias)
    chosen, losses = calibration.choose(margin, label, weight, kin, settings.seed)
    p = chosen(margin)
    costs = thresholds.job_costs(data.features[rows], FEATURE_NAMES)
    lines = thresholds.choose(p, label, costs)
    ensemble = None
    if "trees" in settings.parts:
        ensemble = _trees(data, rows, weight, int(np.median(notes["rounds"])), settings)
    digest = data.hash()
    created = manifest.now()
    model = HeldModel(
        name=name or manifest.new_name(created, digest),
        feature_names=tuple(FEATURE_NAMES[column] for column in TREE_COLUMNS),
        spec=TensorSpec(),
        release_above=lines["cost"],
        thresholds=lines,
        trained={
            **data.summary(),
            "from": _day(int(data.time.min())),
            "until": _day(int(data.time.max())),
        },
        weights=weights,
        bias=bias,
        centre={part: float(np.mean(values)) for part, values in parts.items()},
        calibration=chosen,
        interval=calibration.fit_interval(p, label, kin),
        abstention=conformal.choose_bounds(p, label, kin, settings.risk),
        trees=ensemble,
        columns=TREE_COLUMNS,
    )
    notes |= {
        "data_hash": digest,
        "created": created,
        "calibration_losses": losses,
        "seconds": round(time.monotonic() - began, 1),
    }
    return Trained(model, parts, rows, notes)


def save(
    trained: Trained, directory: Path, settings: HeldSettings, metrics: dict[str, Any]
) -> manifest.Manifest:
    """Write a trained model and its manifest."""
    return held.save(
        trained.model,
        directory,
        {
            "data_hash": trained.notes["data_hash"],
            "created": trained.notes["created"],
            "metrics": metrics,
            "settings": settings.as_dict(),
            "seeds": {"all": settings.seed},
        },
    )


def _tree_rows(data: HeldData, rows: Ints) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = data.features[np.ix_(rows, TREE_COLUMNS)]
    return found


def _rounds(data: HeldData, rows: Ints, weight: Floats, settings: HeldSettings) -> int:
    """Find the number of rounds on the later episodes of the training rows."""
    fold = folds_of_time(data, rows, settings.later)
    early, late = np.flatnonzero(~fold), np.flatnonzero(fold)
    label = data.label[rows].astype(np.float64)
    if len(np.unique(label[early])) < 2 or len(np.unique(label[late])) < 2:
        return settings.trees.max_rounds // 4
    return trees.choose_rounds(
        (_tree_rows(data, rows[early]), label[early], weight[early]),
        (_tree_rows(data, rows[late]), label[late], weight[late]),
        settings.trees,
    )


def folds_of_time(data: HeldData, rows: Ints, later: float) -> npt.NDArray[np.bool_]:
    """Tell which rows are the later ones of their source; kin are where the first of them is."""
    found = np.zeros(len(rows), np.bool_)
    for source in np.unique(data.source[rows]).tolist():
        own = np.flatnonzero(data.source[rows] == source)
        _, which = np.unique(data.kin[rows[own]], return_inverse=True)
        first = np.full(int(which.max(initial=0)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, which, data.time[rows[own]])
        border = np.quantile(first[which], 1.0 - later)
        found[own] = first[which] > border
    return found


def _trees(
    data: HeldData, rows: Ints, weight: Floats, rounds: int, settings: HeldSettings
) -> TreeEnsemble:
    label = data.label[rows].astype(np.float64)
    return trees.fit(_tree_rows(data, rows), label, weight, rounds, settings.trees)


def _day(microseconds: int) -> str:
    return str(np.datetime64(microseconds, "us").astype("datetime64[s]")) + "Z"
