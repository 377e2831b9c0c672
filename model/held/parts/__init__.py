"""The parts that a model for held jobs is made of, and how to add one.

A part turns what is known of a hold into log-odds of success. Each part is one module with three
things: a class that answers with NumPy alone (`Part`), a function that trains it (`train`, which
imports torch or xgboost when it is called), and `KIND`, which names both. To add a part, write
such a module and add its line to `MODULES`; nothing else knows the parts by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from condor_advice.model.arrays import Arrays
from condor_advice.preprocess.holds.tensors import EpisodeTensor, TensorSpec

if TYPE_CHECKING:
    from condor_advice.model.held.training import Training

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.float32]  # axes: (hold, column)

# Where each part's KIND is. The order is that of a model's parts by default.
MODULES: dict[str, str] = {
    "rules": "condor_advice.model.held.parts.rules",
    "linear": "condor_advice.model.held.parts.linear",
    "trees": "condor_advice.model.held.parts.trees",
    "lstm": "condor_advice.model.held.parts.lstm",
}


class HasInputs(Protocol):
    """Anything that holds what a model is asked with, such as `HeldData`."""

    @property
    def features(self) -> Table:
        """The feature table."""

    @property
    def steps(self) -> EpisodeTensor:
        """The steps of all holds, one behind the other."""

    @property
    def offsets(self) -> Ints:
        """Where each hold's steps begin, and the end."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is known of some holds at the moment of asking.

    What a new part needs beyond this becomes a field with a default, so that callers who do not
    have it stay as they are.
    """

    features: Table  # as FEATURE_NAMES; NaN where not known
    steps: EpisodeTensor  # rows of all holds, without padding
    offsets: Ints

    @classmethod
    def of(cls, data: HasInputs) -> Inputs:
        """Take what data holds."""
        return cls(data.features, data.steps, data.offsets)

    @classmethod
    def of_one(cls, features: npt.NDArray[np.float32], steps: EpisodeTensor) -> Inputs:
        """Take one hold: its row of features, and its steps."""
        row = np.asarray(features, np.float32).reshape(1, -1)
        return cls(row, np.asarray(steps, np.float32), np.array([0, len(steps)], np.int64))

    def __len__(self) -> int:
        return len(self.features)

    def steps_of(self, row: int) -> EpisodeTensor:
        """Return the steps of one hold."""
        return self.steps[self.offsets[row] : self.offsets[row + 1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartInputs(Inputs):
    """Inputs with the columns that every model derives from them: what parts look at."""

    derived: Table  # as DERIVED in features.py

    @classmethod
    def prepare(cls, inputs: Inputs, derived: Table) -> PartInputs:
        """Add derived columns."""
        given = {one.name: getattr(inputs, one.name) for one in fields(Inputs)}
        return cls(**given, derived=derived)


@dataclass(frozen=True, slots=True)
class Attribution:
    """What one feature, event or rule did to one answer."""

    name: str
    words: str
    value: float  # NaN where it was not known
    effect: float  # log-odds; above zero speaks for success
    kind: str  # "feature", "event" or "rule"


@dataclass(frozen=True, slots=True)
class PartContext:
    """What the manifest says that a part may need beside its own arrays."""

    feature_names: tuple[str, ...]
    spec: TensorSpec


class Part(Protocol):
    """One trained part, evaluated with NumPy."""

    def margins(self, inputs: PartInputs) -> Floats:
        """Return the log-odds of success of each hold."""

    def contributions(self, inputs: PartInputs, centre: float) -> list[Attribution]:
        """Say what made this part's log-odds for one hold.

        `centre` is the part's mean log-odds in training, for parts that bring no average of
        their own. Effects of kind "feature" with the same name add up over parts.
        """

    def arrays(self) -> Arrays:
        """Return the part as plain arrays; none where nothing was learned."""


@dataclass(frozen=True)
class Fitted:
    """A part trained on all rows, and what such parts said of rows they had not seen."""

    part: Part
    margins: Floats  # log-odds out of fold, for each row of the training
    notes: Mapping[str, Any] = field(default_factory=dict)
    feature_set: str | None = None  # where the part chose one: the manifest names its columns


@dataclass(frozen=True, slots=True)
class PartKind:
    """How a part is read and trained."""

    from_arrays: Callable[[Arrays, PartContext], Part]
    train: Callable[[Training], Fitted]
    settings: Callable[[], Any] | None = None  # returns the defaults of a settings dataclass
    stored: bool = True  # False: the part has no arrays, and so no file


def kind_of(name: str) -> PartKind:
    """Return a registered part's kind; its module is imported now."""
    kind: PartKind = import_module(MODULES[name]).KIND
    return kind


def file_of(name: str) -> str:
    """Return the file of a part's arrays."""
    return f"{name}.npz"
