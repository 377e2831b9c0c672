"""When to abstain: bounds between which the model gives no verdict of its own.

A confident verdict is "will not succeed" below one bound and "will succeed" from another on.
The bounds are the widest-reaching ones for which the share of wrong verdicts among the
confident is at most `risk` on episodes that the model did not learn from, counted with one
more cluster of usual size that is wrong throughout. That is the correction of conformal risk
control (Angelopoulos and others, 2022) with clusters as the exchangeable units, since episodes
of one cluster share their fate.

What is promised: over draws of clusters of the same kind, the expected share of wrong confident
verdicts is at most `risk`; a test measures it. Another access point is not of the same kind:
there the bounds hold as far as calibration on whole left-out access points carries, and the
report measures how far that is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from condor_advice.model.held.model import Abstention

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RISK = 0.1
_BOUND_SHARES = np.arange(0.04, 1.0, 0.04)  # shares of all episodes that a bound may cover
_UNREACHABLE = 1.1  # no probability reaches it


def choose_bounds(p: Floats, label: Floats, group: Ints, risk: float = RISK) -> Abstention:
    """Return the bounds for a risk level; where nothing passes, the model always abstains."""
    fails = _bound(p, label, group, risk)
    succeeds = _bound(1.0 - p, 1.0 - label, group, risk)
    return Abstention(risk, fails, 1.0 - succeeds if succeeds > 0 else _UNREACHABLE)


def _bound(score: Floats, wrong: Floats, group: Ints, risk: float) -> float:
    """Return the highest bound below which verdicts are wrong seldom enough; 0 for none."""
    ordered = np.sort(score)
    best = 0.0
    for share in _BOUND_SHARES:
        bound = float(ordered[min(int(share * len(ordered)), len(ordered) - 1)])
        below = score < bound
        if corrected_risk(wrong[below], group[below]) <= risk:
            best = bound
    return best


def corrected_risk(wrong: Floats, group: Ints) -> float:
    """Return the share that is wrong, with one more cluster of mean size all wrong."""
    if not len(wrong):
        return 1.0
    size = len(wrong) / len(np.unique(group))
    return float((np.sum(wrong) + size) / (len(wrong) + size))


def coverage_risk(p: Floats, label: Floats) -> tuple[Floats, Floats]:
    """Return coverage and the share of wrong verdicts when the surest are answered first.

    Answers that are equally sure are given together: no rule could tell them apart.
    """
    certainty = np.abs(p - 0.5)
    order = np.argsort(-certainty, kind="stable")
    wrong = np.cumsum((p[order] >= 0.5) != (label[order] > 0.5))
    last = np.flatnonzero(np.append(np.diff(certainty[order]) != 0, True)[: len(p)])
    count = np.arange(1, len(p) + 1)
    return (count / max(len(p), 1))[last], (wrong / count)[last]


def coverage_at(p: Floats, label: Floats, risk: float) -> float:
    """Return the largest share of episodes that could be answered with at most this risk.

    This looks at the labels: it says what an ordering is worth, not what a rule would do.
    """
    if not len(p):
        return 0.0
    coverage, wrong = coverage_risk(p, label)
    good = np.flatnonzero(wrong <= risk)
    return float(coverage[good[-1]]) if len(good) else 0.0
