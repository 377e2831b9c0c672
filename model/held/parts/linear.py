"""A logistic regression on amounts: less variance than trees on few episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from condor_advice.model.arrays import Arrays, UnusableModel
from condor_advice.model.calibration import newton
from condor_advice.model.held.derived_columns import AMOUNTS, DERIVED, amount_rows
from condor_advice.model.held.parts import (
    Attribution,
    Fitted,
    Floats,
    Ints,
    PartContext,
    PartInputs,
    PartKind,
    Table,
)
from condor_advice.model.held.words import feature_words
from condor_advice.preprocess.holds.features import FEATURE_NAMES

if TYPE_CHECKING:
    from condor_advice.model.held.derived_columns import ReasonRates
    from condor_advice.model.held.training_rows import Training

_COLUMN_RIDGE = 20.0  # in episodes; draws the weight of each column to zero


@dataclass(frozen=True)
class Line:
    """Log-odds as a weighted sum of scaled columns."""

    mean: Floats
    scale: Floats
    weights: Floats
    bias: float

    @classmethod
    def fit(cls, rows: Table, label: Floats, weight: Floats) -> Line:
        """Fit the weights; rows are those of `features.amount_rows`."""
        wide = rows.astype(np.float64)
        mean, spread = wide.mean(axis=0), wide.std(axis=0)
        scale = np.where(spread > 1e-6, spread, 1.0)
        design = np.column_stack(((wide - mean) / scale, np.ones(len(wide))))
        ridge = np.append(np.full(rows.shape[1], _COLUMN_RIDGE), 1e-6)
        line = newton(design, label, weight, np.zeros(design.shape[1]), ridge)
        return cls(mean, scale, line[:-1], float(line[-1]))

    def margins(self, rows: Table) -> Floats:
        """Return the log-odds of each row."""
        margins: Floats = ((rows - self.mean) / self.scale) @ self.weights + self.bias
        return margins

    def contributions(self, row: Table) -> Floats:
        """Return each column's term of one row's log-odds, relative to the average row."""
        shares: Floats = (row.reshape(-1) - self.mean) / self.scale * self.weights
        return shares

    def arrays(self) -> Arrays:
        """Return the arrays by name."""
        return {
            "mean": self.mean,
            "scale": self.scale,
            "weights": self.weights,
            "bias": np.array(self.bias),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, columns: int) -> Line:
        """Read what `arrays` returned."""
        try:
            line = cls(arrays["mean"], arrays["scale"], arrays["weights"], float(arrays["bias"]))
            line.margins(np.zeros((1, columns), np.float32))
        except (KeyError, ValueError, TypeError) as error:
            raise UnusableModel(
                f"cannot read the linear part ({error}); train the model again"
            ) from error
        return line


@dataclass(frozen=True)
class LinearPart:
    """A line on amounts and derived columns."""

    line: Line

    def margins(self, inputs: PartInputs) -> Floats:
        """Return the line's log-odds."""
        return self.line.margins(amount_rows(inputs.features, inputs.derived))

    def contributions(self, inputs: PartInputs, centre: float) -> list[Attribution]:
        """Return each column's term, relative to the average hold."""
        shares = self.line.contributions(amount_rows(inputs.features, inputs.derived))
        amounts = [float(inputs.features[0, FEATURE_NAMES.index(name)]) for name in AMOUNTS]
        values = (*amounts, *inputs.derived[0].tolist())
        return [
            Attribution(name, feature_words(name, value), value, share, "feature")
            for name, value, share in zip(
                (*AMOUNTS, *DERIVED), values, shares.tolist(), strict=True
            )
        ]

    def arrays(self) -> Arrays:
        """Return the line's arrays."""
        return self.line.arrays()


def from_arrays(arrays: Arrays, context: PartContext) -> LinearPart:
    """Read what `arrays` returned."""
    return LinearPart(Line.from_arrays(arrays, len(AMOUNTS) + len(DERIVED)))


def train(training: Training) -> Fitted:
    """Fit a line on the other rows of each fold, and one on all rows."""
    margins = np.full(len(training), np.nan)
    for kept, left in training.folds():
        line, rates = _fit(training, kept)
        margins[left] = line.margins(_rows(training, left, rates, learned=False))
    line, _ = _fit(training, np.arange(len(training)))
    return Fitted(LinearPart(line), margins)


def _fit(training: Training, places: Ints) -> tuple[Line, ReasonRates]:
    """Fit a line on these places; return it with the rates for the derived columns."""
    rates = training.rates(places)
    rows = _rows(training, places, rates, learned=True)
    return Line.fit(rows, training.label[places], training.weight[places]), rates


def _rows(training: Training, places: Ints, rates: ReasonRates, learned: bool) -> Table:
    return amount_rows(training.features(places), training.derived(places, rates, learned))


KIND = PartKind(from_arrays, train)
