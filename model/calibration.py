"""Calibrate log-odds to probabilities, and estimate intervals for these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_advice.model.infer import sigmoid

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_KINDS = ("none", "temperature", "isotonic")
_KNOTS = 9  # number of points at which an interval is estimated
_MIN_STEP = 25  # episodes per step of an isotonic curve


@dataclass(frozen=True, slots=True)
class Calibration:
    """Log-odds to probability: a straight line in log-odds, or a piecewise linear curve."""

    kind: str  # "none", "temperature" or "isotonic"
    slope: float = 1.0
    shift: float = 0.0
    x: tuple[float, ...] = ()  # log-odds of the knots of an isotonic curve, rising
    y: tuple[float, ...] = ()

    def __call__(self, margin: Floats) -> Floats:
        """Return probabilities."""
        if self.kind == "isotonic":
            return np.interp(margin, self.x, self.y)
        return sigmoid(self.slope * margin + self.shift)


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of the success rate, as a function of the predicted probability."""

    p: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __call__(self, p: Floats) -> tuple[Floats, Floats]:
        """Return the lower and upper ends; they always include the probability itself."""
        low, high = np.interp(p, self.p, self.low), np.interp(p, self.p, self.high)
        return np.minimum(low, p), np.maximum(high, p)


def fit_temperature(margin: Floats, label: Floats, weight: Floats) -> Calibration:
    """Fit a straight line in log-odds, with a weak pull towards no change."""
    design = np.stack((margin, np.ones(len(margin))), axis=1)
    line = newton(design, label, weight, np.array([1.0, 0.0]), np.array([2.0, 1e-6]))
    return Calibration("temperature", max(float(line[0]), 0.05), float(line[1]))


def fit_line(margin: Floats, label: Floats, ridge: float) -> tuple[float, float]:
    """Fit Platt's line with a pull towards no change; return (slope, offset).

    Returns (1, 0) if the fitted slope is not positive, or the fit fails.
    """
    design = np.stack((margin, np.ones(len(margin))), axis=1)
    centre = np.array([1.0, 0.0])
    slope, offset = newton(design, label, np.ones(len(margin)), centre, np.full(2, ridge))
    if not np.isfinite([slope, offset]).all() or slope <= 0:
        return 1.0, 0.0
    return float(slope), float(offset)


def newton(design: Floats, label: Floats, weight: Floats, centre: Floats, ridge: Floats) -> Floats:
    """Fit a logistic regression with a ridge penalty around `centre`, by Newton's method.

    Steps are halved until the loss falls: full steps overshoot on overconfident predictions.
    """

    def loss(line: Floats) -> float:
        margin = design @ line
        losses = np.logaddexp(0.0, margin) - label * margin
        return float(np.sum(weight * losses) + 0.5 * np.sum(ridge * (line - centre) ** 2))

    line, lowest = centre, loss(centre)
    for _ in range(100):
        p = sigmoid(design @ line)
        gradient = design.T @ (weight * (p - label)) + ridge * (line - centre)
        curvature = weight * np.maximum(p * (1 - p), 1e-9)
        step = np.linalg.solve((design * curvature[:, None]).T @ design + np.diag(ridge), gradient)
        share = 1.0
        while share > 1e-8 and loss(line - share * step) > lowest:
            share /= 2
        line = line - share * step
        now = loss(line)
        if lowest - now < 1e-12 * max(lowest, 1.0):
            break
        lowest = now
    return line


def fit_isotonic(margin: Floats, label: Floats, weight: Floats) -> Calibration:
    """Fit a rising curve by pooling adjacent violators; each step has _MIN_STEP episodes."""
    order = np.argsort(margin, kind="stable")
    x, y, w = margin[order], label[order], weight[order]
    cuts = np.array_split(np.arange(len(x)), max(1, len(x) // _MIN_STEP))
    blocks = [
        [float(np.sum(w[c])), float(np.average(y[c], weights=w[c])), float(np.mean(x[c]))]
        for c in cuts
        if len(c)
    ]
    pooled: list[list[float]] = []
    for block in blocks:
        pooled.append(block)
        while len(pooled) > 1 and pooled[-2][1] >= pooled[-1][1]:
            right, left = pooled.pop(), pooled.pop()
            total = left[0] + right[0]
            pooled.append(
                [total, *((left[0] * left[k] + right[0] * right[k]) / total for k in (1, 2))]
            )
    # Half an episode of either kind: no finite sample justifies certainty.
    rates = [(rate * mass + 0.5) / (mass + 1.0) for mass, rate, _ in pooled]
    return Calibration("isotonic", x=tuple(m for _, _, m in pooled), y=tuple(rates))


def choose(
    margin: Floats, label: Floats, weight: Floats, group: Ints, seed: int = 0
) -> tuple[Calibration, dict[str, float]]:
    """Choose none, temperature or isotonic by log loss on groups that were left out of the fit.

    Returns the chosen calibration, fitted on all groups, and the loss of each.
    """
    from condor_advice.model.metrics import log_loss  # only training needs it, not advice

    losses = {
        kind: log_loss(label, out_of_fold(kind, margin, label, weight, group, seed), weight)
        for kind in _KINDS
    }
    best = min(losses, key=lambda kind: losses[kind])
    return _fit(best, margin, label, weight), losses


def out_of_fold(
    kind: str,
    margin: Floats,
    label: Floats,
    weight: Floats,
    group: Ints,
    seed: int = 0,
) -> Floats:
    """Return each group's probabilities by a calibration that was fitted on the other groups.

    Compute figures from these: on its own training data a calibration looks too good.
    """
    distinct, which = np.unique(group, return_inverse=True)
    fold = np.random.default_rng(seed).permutation(len(distinct))[which] % 5
    p = np.empty(len(margin))
    for nth in range(5):
        kept, left = fold != nth, fold == nth
        p[left] = _fit(kind, margin[kept], label[kept], weight[kept])(margin[left])
    return p


def _fit(kind: str, margin: Floats, label: Floats, weight: Floats) -> Calibration:
    if kind == "temperature":
        return fit_temperature(margin, label, weight)
    if kind == "isotonic":
        return fit_isotonic(margin, label, weight)
    return Calibration("none")


def fit_interval(p: Floats, label: Floats, group: Ints, level: float = 0.9) -> Interval:
    """Estimate how far success rates differ from predictions, at some points of the scale.

    Each point uses the episodes with the nearest predictions. Their clusters, not the episodes,
    count as independent cases in Wilson's interval.
    """
    z = {0.9: 1.645, 0.95: 1.96}[level]
    near = max(30, len(p) // 10)
    places = np.quantile(p, np.linspace(0.0, 1.0, _KNOTS))
    order = np.argsort(p, kind="stable")
    sorted_p = p[order]
    low, high = [], []
    for place in places:
        middle = int(np.searchsorted(sorted_p, place))
        begin = min(max(0, middle - near // 2), max(0, len(p) - near))
        rows = order[begin : begin + near]
        cases = max(3.0, len(np.unique(group[rows])))
        # Centred on the prediction, which is smoother than the rate of these few rows.
        rate = float(np.mean(p[rows]))
        gap = abs(rate - float(np.mean(label[rows])))
        middle_rate = (rate + z * z / (2 * cases)) / (1 + z * z / cases)
        half = (
            z
            / (1 + z * z / cases)
            * ((rate * (1 - rate) / cases + z * z / (4 * cases * cases)) ** 0.5)
        )
        low.append(max(0.0, middle_rate - half - gap))
        high.append(min(1.0, middle_rate + half + gap))
    return Interval(tuple(map(float, places)), tuple(low), tuple(high))
