"""How long to work between two saves, from the cost of a save and the time between failures."""

from __future__ import annotations

import math


def young(mtbf: float, cost: float) -> float:
    """Return Young's interval, the first-order optimum: seconds of work between two saves."""
    return math.sqrt(2.0 * mtbf * cost)


def daly(mtbf: float, cost: float) -> float:
    """Return Daly's interval: Young's with the terms that matter when a save is expensive.

    J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart
    dumps, Future Generation Computer Systems 22 (2006). At a cost above twice the mean time
    between failures nothing can be gained, and his result is that mean time itself.
    """
    if cost >= 2.0 * mtbf:
        return mtbf
    ratio = math.sqrt(cost / (2.0 * mtbf))
    return young(mtbf, cost) * (1.0 + ratio / 3.0 + ratio * ratio / 9.0) - cost


def with_prediction(mtbf: float, cost: float, recall: float) -> float:
    """Return the interval when a share `recall` of the failures is announced in time.

    A save just before an announced failure loses next to nothing, so the period has only
    the other failures to guard against, and those come every mtbf / (1 - recall): to first
    order sqrt(2 * mtbf * cost / (1 - recall)). G. Aupy, Y. Robert, F. Vivien, D. Zaidouni,
    Checkpointing algorithms and fault prediction, J. Parallel Distrib. Comput. 74 (2014).
    Daly's terms are kept, because the first order is poor when a save is expensive.
    """
    # A predictor that never misses would need no period. None is that good; a card that
    # claims it was measured on too few failures.
    unannounced = max(1.0 - recall, 0.02)
    return daly(mtbf / unannounced, cost)
