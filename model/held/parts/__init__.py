"""The parts of a model for held jobs, and how to add one.

A part predicts the log-odds of success of a hold. Each part is a module with three things: a
class that predicts with NumPy alone (`Part`), a function that trains it (`train`, which imports
torch or xgboost when called), and `KIND`, which names both. To add a part, write such a module and
add a line to `MODULES`; no other code names the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from condor_advice.model.arrays import Arrays
from condor_advice.model.held.evidence_rows import EvidenceTensors
from condor_advice.preprocess.holds.evidence import Evidence
from condor_advice.preprocess.holds.tensors import EpisodeTensor, TensorSpec

if TYPE_CHECKING:
    from condor_advice.model.held.training_rows import Training

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.float32]  # axes: (hold, column)

# The module of each part, in the default order of a model's parts.
MODULES: dict[str, str] = {
    "rules": "condor_advice.model.held.parts.rules",
    "linear": "condor_advice.model.held.parts.linear",
    "trees": "condor_advice.model.held.parts.trees",
    "evidence": "condor_advice.model.held.parts.evidence",
    "lstm": "condor_advice.model.held.parts.lstm",
    "site": "condor_advice.model.held.parts.site",
}
# Trained only where it is named: what it sees of the job's own events, evidence has as well.
ON_REQUEST = ("lstm",)
# Never trained with the others: adapt.py adds it to a model that is ready.
ADDED_LATER = ("site",)


class HasInputs(Protocol):
    """Anything with the inputs of a model, such as `HeldData`."""

    @property
    def features(self) -> Table:
        """The feature table."""

    @property
    def steps(self) -> EpisodeTensor:
        """The steps of all holds, concatenated."""

    @property
    def offsets(self) -> Ints:
        """Where the steps of each hold begin, and the end of the last."""

    @property
    def evidence(self) -> EvidenceTensors:
        """What was known about each hold when the question was asked."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is known about some holds when the model is asked.

    If a new part needs more, add a field with a default, so that callers need not change.
    """

    features: Table  # columns: FEATURE_NAMES; NaN where not known
    steps: EpisodeTensor  # rows of all holds, without padding
    offsets: Ints
    evidence: EvidenceTensors  # as of the moment of asking

    @classmethod
    def of(cls, data: HasInputs) -> Inputs:
        """Take the inputs from data."""
        return cls(data.features, data.steps, data.offsets, data.evidence)

    @classmethod
    def of_one(
        cls,
        features: npt.NDArray[np.float32],
        steps: EpisodeTensor,
        evidence: Evidence | None = None,
    ) -> Inputs:
        """Build the inputs of one hold from its features, its steps and the evidence."""
        row = np.asarray(features, np.float32).reshape(1, -1)
        ends = np.array([0, len(steps)], np.int64)
        known = EvidenceTensors.of([evidence]) if evidence else EvidenceTensors.nothing(1)
        return cls(row, np.asarray(steps, np.float32), ends, known)

    def __len__(self) -> int:
        return len(self.features)

    def steps_of(self, row: int) -> EpisodeTensor:
        """Return the steps of one hold."""
        return self.steps[self.offsets[row] : self.offsets[row + 1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartInputs(Inputs):
    """Inputs with the derived columns: what parts see."""

    derived: Table  # columns: DERIVED in features.py

    @classmethod
    def prepare(cls, inputs: Inputs, derived: Table) -> PartInputs:
        """Add the derived columns."""
        known = {input_.name: getattr(inputs, input_.name) for input_ in fields(Inputs)}
        return cls(**known, derived=derived)


@dataclass(frozen=True, slots=True)
class Attribution:
    """The effect of one feature, event or rule on one answer."""

    name: str
    words: str
    value: float  # NaN if not known
    effect: float  # log-odds; positive: towards success
    kind: str  # "feature", "event", "evidence" or "rule"


@dataclass(frozen=True, slots=True)
class PartContext:
    """Entries of the manifest that a part may need besides its own arrays."""

    feature_names: tuple[str, ...]
    spec: TensorSpec


class Part(Protocol):
    """One trained part, evaluated with NumPy."""

    def margins(self, inputs: PartInputs) -> Floats:
        """Return the log-odds of success of each hold."""

    def contributions(self, inputs: PartInputs, centre: float) -> list[Attribution]:
        """Return the effects that add up to this part's log-odds for one hold.

        `centre` is the part's mean log-odds in training, for parts without a baseline of their
        own. Effects of kind "feature" with the same name add up over parts.
        """

    def arrays(self) -> Arrays:
        """Return the part as plain arrays; none if nothing was learned."""


@dataclass(frozen=True)
class Fitted:
    """A part trained on all rows, and the out-of-fold predictions of such parts."""

    part: Part
    margins: Floats  # log-odds out of fold, for each training row
    notes: Mapping[str, Any] = field(default_factory=dict)
    feature_set: str | None = None  # if the part chose one; the manifest has its columns


@dataclass(frozen=True, slots=True)
class PartKind:
    """How to read and train a part."""

    from_arrays: Callable[[Arrays, PartContext], Part]
    train: Callable[[Training], Fitted]
    settings: Callable[[], Any] | None = None  # returns the defaults of a settings dataclass
    stored: bool = True  # False: the part has no arrays, and so no file


def kind_of(name: str) -> PartKind:
    """Import a part's module and return its kind."""
    kind: PartKind = import_module(MODULES[name]).KIND
    return kind


def file_of(name: str) -> str:
    """Return the name of the file with a part's arrays."""
    return f"{name}.npz"
