"""Combine the parts of a model: a logistic regression on their log-odds, weights not negative."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from condor_advice.model.calibration import newton
from condor_advice.model.infer import sigmoid

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_PART_RIDGE = 2.0  # in episodes; draws the weight of each part to zero


def fit(
    parts: Mapping[str, Floats], label: Floats, weight: Floats
) -> tuple[dict[str, float], float]:
    """Return each part's weight and the bias; a part with a negative weight gets 0.

    The parts' log-odds must be out of fold: a part that has seen the labels would get all weight.
    """
    kept = list(parts)
    while True:
        design = np.stack([*(parts[name] for name in kept), np.ones(len(label))], axis=1)
        ridge = np.array([_PART_RIDGE] * len(kept) + [1e-6])
        coefficients = newton(design, label, weight, np.zeros(len(kept) + 1), ridge)
        worst = int(np.argmin(coefficients[:-1]))
        if coefficients[worst] >= 0 or len(kept) == 1:
            break
        kept.pop(worst)
    weights = dict.fromkeys(parts, 0.0) | {
        name: max(0.0, float(value)) for name, value in zip(kept, coefficients, strict=False)
    }
    return weights, float(coefficients[-1])


def combine(parts: Mapping[str, Floats], weights: Mapping[str, float], bias: float) -> Floats:
    """Return the stack's log-odds."""
    margin = np.full(len(next(iter(parts.values()))), bias)
    for name, weight in weights.items():
        margin = margin + weight * parts[name]
    return margin


def gains(
    parts: Mapping[str, Floats], label: Floats, weight: Floats, group: Ints, seed: int = 0
) -> dict[str, float]:
    """Return how much each part lowers the log loss of the stack.

    Both stacks are fitted on other groups than those they are evaluated on.
    """
    whole = _held_out_loss(parts, label, weight, group, seed)
    return {
        name: _held_out_loss(
            {other: values for other, values in parts.items() if other != name},
            label,
            weight,
            group,
            seed,
        )
        - whole
        for name in parts
        if len(parts) > 1
    }


def _held_out_loss(
    parts: Mapping[str, Floats], label: Floats, weight: Floats, group: Ints, seed: int
) -> float:
    from condor_advice.model.metrics import log_loss  # only training needs it, not advice

    distinct, which = np.unique(group, return_inverse=True)
    fold = np.random.default_rng(seed).permutation(len(distinct))[which] % 5
    p = np.empty(len(label))
    for nth in range(5):
        kept, left = fold != nth, fold == nth
        weights, bias = fit(
            {name: values[kept] for name, values in parts.items()}, label[kept], weight[kept]
        )
        p[left] = sigmoid(
            combine({name: values[left] for name, values in parts.items()}, weights, bias)
        )
    return log_loss(label, p, weight)
