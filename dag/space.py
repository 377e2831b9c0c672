"""A sweep's parameters: W&B's distributions, each a map between values and shares.

A share is a number from 0 to 1: `at` returns the value below which that share of the draws lies,
and `share` is its inverse. Random search draws shares; Bayesian search treats trials as points
in the cube of shares. Standard library only, so that the scripts around each trial start fast.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

# distribution -> the settings it takes; those in DEFAULTS may be left out.
DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "constant": ("value",),
    "categorical": ("values",),
    "categorical_w_probabilities": ("values", "probabilities"),
    "int_uniform": ("min", "max"),
    "uniform": ("min", "max"),
    "q_uniform": ("min", "max", "q"),
    "log_uniform": ("min", "max"),
    "log_uniform_values": ("min", "max"),
    "q_log_uniform": ("min", "max", "q"),
    "q_log_uniform_values": ("min", "max", "q"),
    "inv_log_uniform": ("min", "max"),
    "inv_log_uniform_values": ("min", "max"),
    "normal": ("mu", "sigma"),
    "q_normal": ("mu", "sigma", "q"),
    "log_normal": ("mu", "sigma"),
    "q_log_normal": ("mu", "sigma", "q"),
    "beta": ("a", "b"),
    "q_beta": ("a", "b", "q"),
}
DEFAULTS: dict[str, float] = {"q": 1.0, "mu": 0.0, "sigma": 1.0, "a": 1.0, "b": 1.0}


@dataclass(frozen=True)
class Parameter:
    """One parameter of the search, checked when the sweep file was read."""

    name: str
    distribution: str
    settings: Mapping[str, Any]

    @property
    def is_constant(self) -> bool:
        """Return whether every trial has the same value."""
        return self.distribution == "constant"

    def at(self, share: float) -> Any:
        """Return the value at a share of the distribution."""
        s = self.settings
        if self.is_constant:
            return s["value"]
        if self.distribution == "categorical":
            return s["values"][min(int(share * len(s["values"])), len(s["values"]) - 1)]
        if self.distribution == "categorical_w_probabilities":
            sums = list(itertools.accumulate(s["probabilities"]))
            return s["values"][min(bisect_left(sums, share), len(sums) - 1)]
        if self.distribution == "int_uniform":
            return min(s["min"] + int(share * (s["max"] - s["min"] + 1)), s["max"])
        value = self._continuous(share)
        return self._rounded(value) if self.distribution.startswith("q_") else value

    def _continuous(self, share: float) -> float:
        s, kind = self.settings, self.distribution.removeprefix("q_")
        if kind == "uniform":
            return float(s["min"] + share * (s["max"] - s["min"]))
        if kind in ("log_uniform", "log_uniform_values", "inv_log_uniform_values"):
            low, high = self._logs()
            return math.exp(low + share * (high - low))
        if kind == "inv_log_uniform":
            return math.exp(-(s["max"] - share * (s["max"] - s["min"])))
        inside = min(max(share, 1e-12), 1 - 1e-12)  # the ends are infinite
        if kind == "beta":
            return _beta_at(inside, s["a"], s["b"])
        drawn = s["mu"] + s["sigma"] * NormalDist().inv_cdf(inside)
        return math.exp(drawn) if kind == "log_normal" else float(drawn)

    def _logs(self) -> tuple[float, float]:
        """Return the ends of a logarithmic range; `..._values` give the values themselves."""
        s = self.settings
        if self.distribution.endswith("_values"):
            return math.log(s["min"]), math.log(s["max"])
        return float(s["min"]), float(s["max"])

    def _rounded(self, value: float) -> float | int:
        q = self.settings["q"]
        steps = round(value / q)
        return steps * q if isinstance(q, int) else float(steps * q)

    def share(self, value: Any) -> float:
        """Return the share at which a value lies; for a choice, the middle of its range."""
        s = self.settings
        if self.is_constant:
            return 0.0
        if self.distribution.startswith("categorical"):
            index = self._index(value)
            weights = s.get("probabilities") or [1 / len(s["values"])] * len(s["values"])
            return float(sum(weights[:index]) + weights[index] / 2)
        if self.distribution == "int_uniform":
            return float((value - s["min"] + 0.5) / (s["max"] - s["min"] + 1))
        return min(max(self._continuous_share(float(value)), 0.0), 1.0)

    def _index(self, value: Any) -> int:
        for index, known in enumerate(self.settings["values"]):
            # 1, 1.0 and True are equal in Python, but different choices.
            if known == value and type(known) is type(value):
                return index
        raise ValueError(f"{self.name}: {value!r} is not one of its values")

    def _continuous_share(self, value: float) -> float:
        s, kind = self.settings, self.distribution.removeprefix("q_")
        if kind == "uniform":
            return float(_part(value, s["min"], s["max"]))
        if kind in ("log_uniform", "log_uniform_values", "inv_log_uniform_values"):
            return _part(math.log(max(value, 1e-300)), *self._logs())
        if kind == "inv_log_uniform":
            return 1 - _part(-math.log(max(value, 1e-300)), s["min"], s["max"])
        if kind == "beta":
            return _beta_share(min(max(value, 0.0), 1.0), s["a"], s["b"])
        if s["sigma"] == 0:
            return 0.5
        drawn = math.log(max(value, 1e-300)) if kind == "log_normal" else value
        return NormalDist(s["mu"], s["sigma"]).cdf(drawn)

    def choices(self) -> list[Any] | None:
        """Return all possible values in order, or None if there is no limit to them."""
        s = self.settings
        if self.is_constant:
            return [s["value"]]
        if self.distribution == "categorical":
            return list(s["values"])
        if self.distribution == "int_uniform":
            return list(range(s["min"], s["max"] + 1))
        if self.distribution == "q_uniform":
            # As in W&B's own grid search, the upper end is not a choice.
            count = max(math.ceil((s["max"] - s["min"]) / s["q"]), 0)
            return [s["min"] + index * s["q"] for index in range(count)]
        return None


def combinations(parameters: Sequence[Parameter]) -> list[dict[str, Any]]:
    """Return every combination of choices, the last parameter changing fastest."""
    choices = []
    for parameter in parameters:
        values = parameter.choices()
        assert values is not None, f"{parameter.name} is continuous"
        choices.append(values)
    names = [parameter.name for parameter in parameters]
    return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*choices)]


def _part(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _beta_share(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return float(x > 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny = 1e-300
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1), tiny)
    fraction = d
    for m in range(1, 300):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + term * d, tiny)
            c = _not_zero(1 + term / c, tiny)
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * fraction / a


def _not_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


def _beta_at(share: float, a: float, b: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _beta_share(middle, a, b) < share else (low, middle)
    return (low + high) / 2
