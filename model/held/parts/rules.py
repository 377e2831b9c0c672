"""The facilitators' rules as a part: nothing is learned, and unseen reasons get an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from condor_advice.model.arrays import Arrays
from condor_advice.model.held.parts import (
    Attribution,
    Fitted,
    Floats,
    PartContext,
    PartInputs,
    PartKind,
)
from condor_advice.model.held.rule_scores import rule_priors
from condor_advice.model.infer import logit
from condor_advice.preprocess.holds.features import FEATURE_NAMES

if TYPE_CHECKING:
    from condor_advice.model.held.training_rows import Training


@dataclass(frozen=True)
class RulePart:
    """The rules' answer for a hold reason."""

    def margins(self, inputs: PartInputs) -> Floats:
        """Return the rules' log-odds."""
        return logit(rule_priors(inputs.features, FEATURE_NAMES))

    def contributions(self, inputs: PartInputs, centre: float) -> list[Attribution]:
        """Return the rule's effect, relative to the average hold."""
        prior = rule_priors(inputs.features, FEATURE_NAMES)
        effect = float(logit(prior)[0]) - centre
        return [Attribution("rule", "what facilitators advise", float(prior[0]), effect, "rule")]

    def arrays(self) -> Arrays:
        """Return nothing: rules are code."""
        return {}


def from_arrays(arrays: Arrays, context: PartContext) -> RulePart:
    """Return the rules."""
    return RulePart()


def train(training: Training) -> Fitted:
    """Apply the rules to every row; they were trained on none."""
    part = RulePart()
    return Fitted(part, logit(rule_priors(training.features(), FEATURE_NAMES)))


KIND = PartKind(from_arrays, train, stored=False)
