"""The network over evidence as a part; model/held/evidence_training.py trains it.

It learned on simulated worlds how evidence works (`PRETRAINED`); training a model tunes it gently
on the episodes at hand, and keeps the tuned weights only if they answer better out of fold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from condor_advice.model.arrays import Arrays, load_arrays
from condor_advice.model.held.parts import (
    Attribution,
    Fitted,
    Floats,
    Ints,
    PartContext,
    PartInputs,
    PartKind,
)
from condor_advice.model.infer import sigmoid
from condor_advice.model.infer.evidence import EvidenceNetwork

if TYPE_CHECKING:
    from condor_advice.model.held.evidence_training import EvidenceSettings
    from condor_advice.model.held.training_rows import Training

PRETRAINED = Path(__file__).parent.parent / "pretrained.npz"


@dataclass(frozen=True)
class EvidencePart:
    """A trained network."""

    network: EvidenceNetwork

    def margins(self, inputs: PartInputs) -> Floats:
        """Return the network's log-odds."""
        evidence = inputs.evidence
        return self.network.margins(
            evidence.tokens.astype(np.float32), evidence.offsets, evidence.query.astype(np.float32)
        )

    def contributions(self, inputs: PartInputs, centre: float) -> list[Attribution]:
        """Return nothing: the model itself shows what groups of episodes contribute."""
        return []

    def arrays(self) -> Arrays:
        """Return the network's arrays in half precision, as it was exported."""
        return {name: array.astype(np.float16) for name, array in self.network.arrays().items()}


def from_arrays(arrays: Arrays, context: PartContext) -> EvidencePart:
    """Read what `arrays` returned."""
    return EvidencePart(EvidenceNetwork.from_arrays(arrays))


def pretrained() -> EvidenceNetwork:
    """Return the network as it came from the worlds."""
    return EvidenceNetwork.from_arrays(load_arrays(PRETRAINED))


def default_settings() -> EvidenceSettings:
    """Return the settings of tuning: few steps, small ones."""
    from condor_advice.model.held.evidence_training import EvidenceSettings

    return EvidenceSettings(epochs=2, learning_rate=2e-4)


def train(training: Training) -> Fitted:
    """Tune the network on the other rows of each fold; keep the tuned one only if it is better."""
    from condor_advice.model.metrics import log_loss  # only training needs it, not advice

    before = pretrained()
    judged = training.judged
    everything = np.arange(len(training))
    plain = _margins(before, training, everything)
    tuned = np.array(plain)
    for kept, left in training.folds():
        tuned[left] = _margins(_tune(before, training, kept), training, left)
    label, weight = training.label[judged], training.weight[judged]
    losses = {
        name: log_loss(label, sigmoid(margins[judged]), weight)
        for name, margins in (("pre-trained", plain), ("tuned", tuned))
    }
    training.say(
        "network over evidence: log loss "
        + ", ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
    )
    if losses["tuned"] < losses["pre-trained"]:
        return Fitted(EvidencePart(_tune(before, training, everything)), tuned, losses)
    return Fitted(EvidencePart(before), plain, losses)


def _tune(before: EvidenceNetwork, training: Training, places: Ints) -> EvidenceNetwork:
    from condor_advice.model.held import evidence_training
    from condor_advice.model.held.evidence_rows import EvidenceRows

    data = training.take(places)
    rows = EvidenceRows(data.evidence, (data.label == 1).astype(np.int8), data.kin)
    settings: EvidenceSettings = training.settings.of("evidence")
    network = evidence_training.train(
        rows,
        replace(
            settings, hidden=before.lstm[1].shape[1], query_hidden=len(before.dense["query_in"][1])
        ),
        begin=before,
        weight=training.weight[places],
    )
    return evidence_training.export(network)


def _margins(network: EvidenceNetwork, training: Training, places: Ints) -> Floats:
    evidence = training.take(places).evidence
    return network.margins(
        evidence.tokens.astype(np.float32), evidence.offsets, evidence.query.astype(np.float32)
    )


KIND = PartKind(from_arrays, train, default_settings)
