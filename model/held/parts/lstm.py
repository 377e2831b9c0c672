"""The LSTM over a held job's events, as a part; model/held/lstm_training.py trains the network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from condor_advice.model.arrays import Arrays
from condor_advice.model.held.parts import (
    Attribution,
    Fitted,
    Floats,
    PartContext,
    PartInputs,
    PartKind,
)
from condor_advice.model.held.words import event_words
from condor_advice.model.infer import LstmNetwork
from condor_advice.preprocess.holds.tensors import TensorSpec

if TYPE_CHECKING:
    from condor_advice.model.held.lstm_training import LstmSettings
    from condor_advice.model.held.training_rows import Training


@dataclass(frozen=True)
class LstmPart:
    """A trained network, and the layout of its steps."""

    network: LstmNetwork
    spec: TensorSpec

    def margins(self, inputs: PartInputs) -> Floats:
        """Return the network's log-odds."""
        return self.network.margins(inputs.steps, inputs.offsets)

    def contributions(self, inputs: PartInputs, centre: float) -> list[Attribution]:
        """Return for each event how far the log-odds fall without it (occlusion)."""
        steps = inputs.steps_of(0)[-self.network.max_steps :]
        attributions = []
        for step, effect in zip(steps, self.network.occlusion(steps).tolist(), strict=True):
            name, words, seconds = event_words(step, self.spec)
            attributions.append(Attribution(name, words, seconds, effect, "event"))
        return attributions

    def arrays(self) -> Arrays:
        """Return the network's arrays."""
        return self.network.arrays()


def from_arrays(arrays: Arrays, context: PartContext) -> LstmPart:
    """Read what `arrays` returned."""
    return LstmPart(LstmNetwork.from_arrays(arrays), context.spec)


def default_settings() -> LstmSettings:
    """Return the network's default settings."""
    from condor_advice.model.held.lstm_training import LstmSettings

    return LstmSettings()


def train(training: Training) -> Fitted:
    """Train on the other rows of each fold, then on all rows for the median best epoch."""
    from condor_advice.model.held import lstm_training

    settings: LstmSettings = training.settings.of("lstm")
    margins = np.full(len(training), np.nan)
    best_epochs = []
    for nth, (kept, left) in enumerate(training.folds()):
        early, late = training.split(kept)
        trained = lstm_training.train(
            training.take(early),
            training.take(late),
            settings,
            training.states and training.states / f"lstm-fold-{nth}.state",
            weight=training.weight[early],
        )
        best_epochs.append(trained.best_epoch)
        unseen = training.take(left)
        margins[left] = trained.network.margins(unseen.steps, unseen.offsets)
    training.say(f"LSTM: best after {', '.join(map(str, best_epochs))} epochs")
    epochs = int(np.median(best_epochs))
    everything = np.arange(len(training))
    network = lstm_training.train(
        training.take(everything),
        training.take(training.later(everything)),
        replace(settings, epochs=epochs, patience=0, keep="last"),
        training.states and training.states / "lstm.state",
        weight=training.weight,
        tracker=training.tracker,
        progress=training.progress,
    ).network
    part = LstmPart(network, TensorSpec(max_steps=max(settings.max_steps, 2)))
    return Fitted(part, margins, {"epochs": epochs})


KIND = PartKind(from_arrays, train, default_settings)
