"""Who gets released: weights that make up for people's choice of what to release.

A label exists only where somebody released the job as it was and the end is known. People
choose: what looks hopeless is removed or repaired, so that the labelled episodes are not like
all episodes. And they choose again at every hold: a job is seen held for the fourth time only
if it was released three times before. Each labelled episode is therefore given the weight
1/P(label | what was known at the hold), once more for each release as is before it, so that
together they stand for all holds of a pool in which everything is released. P is estimated on
other clusters than those it is used for; for earlier holds of a job, which were mostly like
this one, it is taken at this one. What nobody ever releases, no weight can bring back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_advice.model.held.data import HeldData
from condor_advice.model.held.features import FEW
from condor_advice.model.held.parts import trees
from condor_advice.model.infer import sigmoid
from condor_advice.model.metrics import roc_auc
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.labels import NO_LABEL

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FOLDS = 4
LARGEST = 5.0  # of a weight over their mean: few episodes must not speak for all
MOST_BEFORE = 6  # releases before a hold that are made up for
_SETTINGS = trees.TreeSettings(max_depth=3, members=1)
_ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Propensity:
    """How likely each episode was to get a label, and what follows for those that did."""

    chance: Floats  # for every episode: of a label
    weight: Floats  # for every episode; 0 without a label; mean 1 over those with one
    roc_auc: float  # 0.5: labels are given blindly, and the weights change nothing
    effective: float  # share of the labelled episodes that the weights leave, in worth


def estimate(data: HeldData, seed: int = 0) -> Propensity:
    """Estimate the propensities of all episodes, for each source by itself.

    Each access point has people of its own; where everything is released all weights are near 1.
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
    went_on = has_label * ~data.changed
    chance, through = (_chances(data, one, seed) for one in (has_label, went_on))
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
    """Return the chance of something for each episode, learned on other clusters."""
    rows = data.features[:, [FEATURE_NAMES.index(name) for name in FEW]]
    kin = np.unique(data.kin, return_inverse=True)[1]
    fold = np.random.default_rng(seed).permutation(int(kin.max(initial=0)) + 1)[kin] % FOLDS
    chance = np.full(len(data), float(np.mean(happened)))
    for nth in range(FOLDS):
        kept, left = fold != nth, fold == nth
        if not left.any() or len(np.unique(happened[kept])) < 2:
            continue  # it always happens, or never
        one = trees.fit(rows[kept], happened[kept], np.ones(int(kept.sum())), _ROUNDS, _SETTINGS)
        chance[left] = sigmoid(one.predict_margin(rows[left]))
    found: Floats = np.clip(chance, 0.05, 1.0)
    return found
