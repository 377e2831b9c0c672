"""Convert log-odds to probabilities and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def sigmoid(margin: Floats) -> Floats:
    """Return 1/(1+exp(-margin)) without overflow."""
    small = np.exp(-np.abs(margin))
    return np.where(margin >= 0, 1.0, small) / (1.0 + small)


def logit(p: Floats) -> Floats:
    """Return log-odds; probabilities are clipped so that these stay finite."""
    clipped = np.clip(p, 1e-6, 1 - 1e-6)
    margin: Floats = np.log(clipped) - np.log1p(-clipped)
    return margin
