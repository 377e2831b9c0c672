"""Baselines that every model must beat: simple predictions that learn little from training."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from condor_advice.model.held.data import HeldData
from condor_advice.model.held.rule_scores import rule_chances, rule_priors
from condor_advice.preprocess.holds.features import FEATURE_NAMES

Floats = npt.NDArray[np.float64]
Baseline = Callable[[HeldData, HeldData], Floats]

# From the most specific to the most general: the first that has an outcome answers.
_LAST = ("cluster_template", "template", "owner")


def majority(train: HeldData, test: HeldData) -> Floats:
    """Return the success rate in training, for every hold."""
    return np.full(len(test), base_rate(train))


def rules(train: HeldData, test: HeldData) -> Floats:
    """Return the prior of the rule for the hold reason, whatever the outcomes."""
    return rule_priors(test.features, FEATURE_NAMES)


def rules_and_outcomes(train: HeldData, test: HeldData) -> Floats:
    """Return the rule's prior, updated with the outcomes of the same template so far."""
    return rule_chances(test.features, FEATURE_NAMES)


def last_outcome(train: HeldData, test: HeldData) -> Floats:
    """Repeat the outcome of the last similar release.

    Similar means the same template in the cluster, else the same template, else the same owner.
    How often that prediction is right is learned from training.
    """
    came_true = {}
    rate = base_rate(train)
    known = train.take(train.labelled)
    label = (known.label == 1).astype(np.float64)
    before = _last(known)
    for value in (0.0, 1.0):
        rows = before == value
        came_true[value] = float((label[rows].sum() + 2 * rate) / (rows.sum() + 2))
    now = _last(test)
    return np.where(now == 1.0, came_true[1.0], np.where(now == 0.0, came_true[0.0], rate))


def _last(data: HeldData) -> Floats:
    outcomes = np.full(len(data), np.nan)
    for level in _LAST:
        column = data.features[:, FEATURE_NAMES.index(f"{level}_last_outcome")]
        outcomes = np.where(np.isnan(outcomes), column, outcomes)
    return outcomes


def template_rate(train: HeldData, test: HeldData) -> Floats:
    """Return the success rate of releases of the same template, shrunk to the average."""
    return _column(test, "template_success_rate", base_rate(train))


def cluster_rate(train: HeldData, test: HeldData) -> Floats:
    """Return the same for the template within the cluster."""
    return _column(test, "cluster_template_success_rate", base_rate(train))


def _column(data: HeldData, name: str, unknown: float) -> Floats:
    values = data.features[:, FEATURE_NAMES.index(name)].astype(np.float64)
    return np.where(np.isnan(values), unknown, values)


def base_rate(data: HeldData) -> float:
    """Return the share of labelled episodes that succeeded."""
    return float(np.mean(data.label[data.labelled] == 1)) if len(data.labelled) else 0.5


BASELINES: Mapping[str, Baseline] = {
    "majority": majority,
    "rules": rules,
    "rules and outcomes": rules_and_outcomes,
    "last outcome": last_outcome,
    "template rate": template_rate,
    "cluster rate": cluster_rate,
}
