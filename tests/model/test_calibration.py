"""Platt's line: it is where the gradient vanishes, and a useless one changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from condor_advice.model.calibration import Floats, fit_line
from condor_advice.model.infer import sigmoid


def drawn(slope: float, offset: float, count: int = 500, seed: int = 0) -> tuple[Floats, Floats]:
    """Draw log-odds, and labels whose true log-odds are a line of them."""
    rng = np.random.default_rng(seed)
    margin = rng.normal(0.3, 2.0, count)
    return margin, (rng.random(count) < sigmoid(slope * margin + offset)).astype(np.float64)


@pytest.mark.parametrize("ridge", [1e-6, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_zero_at_the_fitted_line(ridge, seed):
    margin, label = drawn(0.6, -0.8, count=4000, seed=seed)
    slope, offset = fit_line(margin, label, ridge)
    error = sigmoid(slope * margin + offset) - label
    gradient = [
        np.sum(error * margin) + ridge * (slope - 1.0),
        np.sum(error) + ridge * offset,
    ]
    assert np.max(np.abs(gradient)) < 1e-4
    assert slope == pytest.approx(0.6, abs=0.1)


def test_overconfident_margins_are_fitted_too():
    margin, label = drawn(0.05, 0.1)
    slope, offset = fit_line(20.0 * margin, label, 1e-6)
    error = sigmoid(20.0 * slope * margin + offset) - label
    assert abs(float(np.sum(error))) < 1e-3
    assert 0.0 < slope < 0.02


@pytest.mark.parametrize("ridge", [1e-6, 1.0])
def test_a_falling_line_changes_nothing(ridge):
    margin, label = drawn(-1.0, 0.0)
    assert fit_line(margin, label, ridge) == (1.0, 0.0)


def test_a_stronger_ridge_keeps_separable_samples_near_no_change():
    margin = np.array([-2.0, -1.0, 1.0, 2.0])
    label = np.array([0.0, 0.0, 1.0, 1.0])
    weak, strong = (fit_line(margin, label, ridge)[0] for ridge in (1e-6, 1.0))
    assert weak > 5.0 > strong > 1.0
