"""When to abstain: bounds between which the model gives no verdict of its own.

A confident verdict is "will not succeed" below one bound and "will succeed" from another on.
The bounds are the widest-reaching ones for which the share of wrong verdicts among the
confident is at most `risk`, with a margin for chance: each candidate must pass a test on
episodes that the model did not learn from, at a level divided by the number of candidates
("Learn then Test", Angelopoulos and others 2021). Episodes of one cluster share their fate, so
the test counts clusters, not episodes.

What is promised: with confidence 1 - DELTA over the draw of the calibration clusters, the share
of wrong confident verdicts on episodes of the same kind is at most `risk`. Episodes of another
access point are not of the same kind; the report measures what happens there.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from condor_advice.model.held import Abstention

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RISK = 0.05
DELTA = 0.1
CANDIDATES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75)  # shares of all episodes


def choose_bounds(
    p: Floats, label: Floats, group: Ints, risk: float = RISK, delta: float = DELTA
) -> Abstention:
    """Return the bounds for a risk level; where nothing passes, the model always abstains."""
    fails = _bound(p, label, group, risk, delta / 2)
    succeeds = _bound(1.0 - p, 1.0 - label, group, risk, delta / 2)
    return Abstention(risk, fails, 1.0 - succeeds if succeeds > 0 else 1.1)


def _bound(score: Floats, wrong: Floats, group: Ints, risk: float, delta: float) -> float:
    """Return the highest candidate below which verdicts are wrong seldom enough; 0 for none."""
    ordered = np.sort(score)
    best = 0.0
    for share in CANDIDATES:
        bound = float(ordered[min(int(share * len(ordered)), len(ordered) - 1)])
        below = score < bound
        if upper_risk(wrong[below], group[below], delta / len(CANDIDATES)) <= risk:
            best = bound
    return best


def upper_risk(wrong: Floats, group: Ints, delta: float) -> float:
    """Return an upper bound of the share that is wrong, with clusters as independent cases.

    The bound is Clopper and Pearson's for as many independent cases as the clusters are worth:
    the effective number shrinks with the spread of their sizes.
    """
    if not len(wrong):
        return 1.0
    _, which = np.unique(group, return_inverse=True)
    sizes = np.bincount(which).astype(np.float64)
    cases = float(np.sum(sizes)) ** 2 / float(np.sum(sizes**2))
    return _clopper_pearson(float(np.mean(wrong)) * cases, cases, delta)


def _clopper_pearson(wrong: float, cases: float, delta: float) -> float:
    """Return the rate at which so few wrong cases are only just not surprising."""
    low, high = wrong / cases, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _binomial_cdf(wrong, cases, middle) > delta:
            low = middle
        else:
            high = middle
    return high


def _binomial_cdf(wrong: float, cases: float, rate: float) -> float:
    """Return P(X <= wrong) for a binomial with a number of cases that need not be whole."""
    if rate >= 1.0:
        return 0.0
    whole = math.floor(wrong)
    total = 0.0
    for k in range(whole + 1):
        total += math.exp(
            math.lgamma(cases + 1)
            - math.lgamma(k + 1)
            - math.lgamma(cases - k + 1)
            + k * math.log(max(rate, 1e-300))
            + (cases - k) * math.log1p(-rate)
        )
    return min(total, 1.0)


def coverage_risk(p: Floats, label: Floats) -> tuple[Floats, Floats]:
    """Return coverage and the share of wrong verdicts when the surest are answered first."""
    certainty = np.abs(p - 0.5)
    order = np.argsort(-certainty, kind="stable")
    wrong = (p[order] >= 0.5) != (label[order] > 0)
    count = np.arange(1, len(p) + 1)
    return count / max(len(p), 1), np.cumsum(wrong) / count


def coverage_at(p: Floats, label: Floats, risk: float = RISK) -> float:
    """Return the largest share of episodes that could be answered with at most this risk.

    This looks at the labels: it says what an ordering is worth, not what a rule would do.
    """
    if not len(p):
        return 0.0
    coverage, wrong = coverage_risk(p, label)
    good = np.flatnonzero(wrong <= risk)
    return float(coverage[good[-1]]) if len(good) else 0.0
