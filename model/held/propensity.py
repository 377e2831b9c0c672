"""Propensity weights: correct for people's choice of which jobs to release.

An episode has a label only if somebody released the job as it was and the outcome is known.
People choose: they remove or repair hopeless jobs, so labelled episodes differ from all episodes.
They choose again at every hold: a fourth hold is seen only after three releases. Each labelled
episode therefore gets the weight 1/P(label | what was known at the hold), once more for each
earlier release as is. So weighted, the labelled episodes represent all holds of a pool in which
every hold is released. P is estimated on other clusters than those it is used for. For earlier
holds of a job, which are mostly like this one, P of this hold is used. No weight can make up for
holds that nobody ever releases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_advice.model.held.data import HeldData
from condor_advice.model.held.derived_columns import FEW
from condor_advice.model.held.parts import trees
from condor_advice.model.infer import sigmoid
from condor_advice.model.metrics import roc_auc
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.labels import NO_LABEL

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FOLDS = 4
LARGEST = 5.0  # weight, relative to the mean: a few episodes must not dominate
MOST_BEFORE = 6  # earlier releases of a job that are corrected for
_SETTINGS = trees.TreeSettings(max_depth=3, members=1)
_ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Propensity:
    """How likely each episode was to get a label, and the weights that follow."""

    chance: Floats  # of a label, for every episode
    weight: Floats  # of every episode: 0 without a label, mean 1 over those with one
    roc_auc: float  # 0.5: labels are random, and the weights change nothing
    effective: float  # effective sample size, as a share of the labelled episodes


def estimate(data: HeldData, seed: int = 0) -> Propensity:
    """Estimate the propensities of all episodes, for each source separately.

    Each access point has its own people. Where everything is released, all weights are near 1.
    """
    chance, weight = np.zeros(len(data)), np.zeros(len(data))
    for source in np.unique(data.source).tolist():
        rows = np.flatnonzero(data.source == source)
        chance[rows], weight[rows] = _of_source(data.take(rows), seed)
    has_label = data.label != NO_LABEL
    total = float(weight.sum())
    return Propensity(
        chance,
        weight,
        roc_auc(has_label.astype(np.float64), chance),
        total**2 / max(float((weight**2).sum()), 1e-300) / max(float(has_label.sum()), 1.0),
    )


def _of_source(data: HeldData, seed: int) -> tuple[Floats, Floats]:
    """Return the chance of a label and the weight of each episode of one source."""
    has_label = (data.label != NO_LABEL).astype(np.float64)
    released_as_is = has_label * ~data.changed
    chance, through = (_chances(data, event, seed) for event in (has_label, released_as_is))
    number = np.nan_to_num(data.features[:, FEATURE_NAMES.index("hold_number")], nan=1.0)
    before = np.clip(number - 1.0, 0.0, MOST_BEFORE)
    weight = has_label / chance / through**before
    labelled = has_label > 0
    if labelled.any():
        weight /= weight[labelled].mean()
        weight = np.minimum(weight, LARGEST)
        weight /= weight[labelled].mean()
    return chance, weight


def _chances(data: HeldData, happened: Floats, seed: int) -> Floats:
    """Return each episode's chance of an event, learned on other clusters."""
    rows = data.features[:, [FEATURE_NAMES.index(name) for name in FEW]]
    kin = np.unique(data.kin, return_inverse=True)[1]
    fold = np.random.default_rng(seed).permutation(int(kin.max(initial=0)) + 1)[kin] % FOLDS
    chance = np.full(len(data), float(np.mean(happened)))
    for nth in range(FOLDS):
        kept, left = fold != nth, fold == nth
        if not left.any() or len(np.unique(happened[kept])) < 2:
            continue  # the event always happens, or never
        weight = np.ones(int(kept.sum()))
        ensemble = trees.fit(rows[kept], happened[kept], weight, _ROUNDS, _SETTINGS)
        chance[left] = sigmoid(ensemble.predict_margin(rows[left]))
    clipped: Floats = np.clip(chance, 0.05, 1.0)
    return clipped
