"""What an access point's own outcomes correct in the answers of a model: boosted trees.

They start from the model's log-odds, and add what they learned here; model/held/adapt.py trains
them. A model from training has no such part.
"""

from __future__ import annotations

from condor_advice.model.arrays import Arrays
from condor_advice.model.held.parts import Fitted, PartContext, PartKind
from condor_advice.model.held.parts.trees import TreePart
from condor_advice.model.held.parts.trees import from_arrays as read_trees
from condor_advice.model.held.training_rows import Training


def from_arrays(arrays: Arrays, context: PartContext) -> TreePart:
    """Read what `arrays` returned."""
    return read_trees(arrays, context)


def train(training: Training) -> Fitted:
    """Raise: there is nothing to correct before there is a model."""
    raise ValueError("the part `site` is trained by adapt(), on top of a model")


KIND = PartKind(from_arrays, train)
