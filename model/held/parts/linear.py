"""A logistic regression on the amounts that trees look at: calmer than trees on few episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.arrays import UnusableModel
from condor_advice.model.calibration import newton

Floats = npt.NDArray[np.float64]
Table = npt.NDArray[np.float32]

RIDGE = 20.0  # episodes' worth of belief that a column says nothing


@dataclass(frozen=True)
class Line:
    """Log-odds as a weighted sum of scaled columns."""

    mean: Floats
    scale: Floats
    weights: Floats
    bias: float

    @classmethod
    def fit(cls, rows: Table, label: Floats, weight: Floats) -> Line:
        """Fit the weights; rows are those of `held_features.amount_rows`."""
        wide = rows.astype(np.float64)
        mean, spread = wide.mean(axis=0), wide.std(axis=0)
        scale = np.where(spread > 1e-6, spread, 1.0)
        design = np.column_stack(((wide - mean) / scale, np.ones(len(wide))))
        ridge = np.append(np.full(rows.shape[1], RIDGE), 1e-6)
        found = newton(design, label, weight, np.zeros(design.shape[1]), ridge)
        return cls(mean, scale, found[:-1], float(found[-1]))

    def margins(self, rows: Table) -> Floats:
        """Return the log-odds of each row."""
        found: Floats = ((rows - self.mean) / self.scale) @ self.weights + self.bias
        return found

    def contributions(self, row: Table) -> Floats:
        """Return each column's share of one row's log-odds, against the average row."""
        found: Floats = (row.reshape(-1) - self.mean) / self.scale * self.weights
        return found

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all as arrays by name."""
        return {
            "mean": self.mean,
            "scale": self.scale,
            "weights": self.weights,
            "bias": np.array(self.bias),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], columns: int) -> Line:
        """Take over what `arrays` returned."""
        try:
            line = cls(arrays["mean"], arrays["scale"], arrays["weights"], float(arrays["bias"]))
            line.margins(np.zeros((1, columns), np.float32))
        except (KeyError, ValueError, TypeError) as error:
            raise UnusableModel(
                f"the linear part cannot be read ({error}); train the model again"
            ) from error
        return line
