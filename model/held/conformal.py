"""When to abstain: two bounds, between which the model gives no verdict of its own.

Below the lower bound the model says "will not succeed", from the upper bound on "will succeed".
The bounds cover as many episodes as possible while at most the share `risk` of the confident
verdicts is wrong, on episodes that the model was not trained on and with one more cluster of
average size counted as all wrong. This is the correction of conformal risk control (Angelopoulos
et al., 2022) with clusters as the exchangeable units, since episodes of one cluster share their
fate.

The guarantee: over random draws of similar clusters, the expected share of wrong confident
verdicts is at most `risk`; a test measures it. Clusters of another access point are not similar
in this sense: there the bounds rest on folds that leave out whole access points, and the report
measures how well they hold.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from condor_advice.model.held.model import Abstention

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RISK = 0.1
_BOUND_SHARES = np.arange(0.02, 1.0, 0.02)  # shares of all episodes to try as a bound
_FEWEST_IN_WORLD = 20  # confident verdicts on an access point, for a share of its own
_UNREACHABLE = 1.1  # above any probability


def choose_bounds(
    p: Floats, label: Floats, group: Ints, risk: float = RISK, world: Ints | None = None
) -> Abstention:
    """Return the bounds for a risk level; if none passes, the model always abstains.

    `world` tells which access point each episode is of. A bound must then keep the promise on each
    of them by itself, as predicted by a model that had not seen it: the next one may be like the
    worst.
    """
    worlds = np.zeros(len(p), np.int64) if world is None else world
    fails = _bound(p, label, group, risk, worlds)
    succeeds = _bound(1.0 - p, 1.0 - label, group, risk, worlds)
    return Abstention(risk, fails, 1.0 - succeeds if succeeds > 0 else _UNREACHABLE)


def _bound(score: Floats, wrong: Floats, group: Ints, risk: float, world: Ints) -> float:
    """Return the highest bound below which at most `risk` of the verdicts are wrong; 0 if none."""
    ordered = np.sort(score)
    best = 0.0
    for share in _BOUND_SHARES:
        bound = float(ordered[min(int(share * len(ordered)), len(ordered) - 1)])
        below = score < bound
        if corrected_risk(wrong[below], group[below]) <= risk and all(
            wrong[below & (world == one)].mean() <= risk
            for one in np.unique(world[below]).tolist()
            if np.count_nonzero(below & (world == one)) >= _FEWEST_IN_WORLD
        ):
            best = bound
    return best


def corrected_risk(wrong: Floats, group: Ints) -> float:
    """Return the share of wrong verdicts, with one more cluster of mean size all wrong."""
    if not len(wrong):
        return 1.0
    size = len(wrong) / len(np.unique(group))
    return float((np.sum(wrong) + size) / (len(wrong) + size))
