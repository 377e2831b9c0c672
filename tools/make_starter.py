"""Train the model shipped with condor-advice; write it and its card to model/held/starter/.

    python tools/make_starter.py

The training data are the training recordings and simulated logs. The test recording, in which
every hold was released, is used only for the figures on the card.
"""

from __future__ import annotations

import shutil
import sys

import numpy as np

from condor_advice.lab.training_data import (
    RANDOMISED,
    SIMULATED_JOBS,
    SIMULATED_SEED,
    SIMULATED_WEIGHT,
    recorded,
    simulated,
    training_recordings,
)
from condor_advice.model.held.data import join
from condor_advice.model.held.evaluate import evaluate, pictured
from condor_advice.model.held.train import HeldSettings, save, train, validation_figures
from condor_advice.model.registry import card
from condor_advice.model.registry.places import STARTER


def main() -> None:
    """Train the model and write it with its card."""
    parts = [recorded(name).data for name in training_recordings()]
    parts.append(simulated(SIMULATED_JOBS, SIMULATED_SEED).data)
    weight = [np.ones(len(part)) for part in parts[:-1]]
    weight.append(np.full(len(parts[-1]), SIMULATED_WEIGHT))
    settings = HeldSettings()
    trained = train(
        join(parts),
        settings,
        "starter",
        weight=np.concatenate(weight),
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    test = recorded(RANDOMISED).data
    judged = evaluate(trained.model, test)
    metrics = {
        "validation": validation_figures(trained),
        RANDOMISED: {
            "n_test": judged["n_test"],
            "base_rate": judged["base_rate"],
            **{name: figure["value"] for name, figure in judged["figures"].items()},
        },
    }
    shutil.rmtree(STARTER, ignore_errors=True)
    manifest = save(trained, STARTER, settings, metrics)
    card.write(
        STARTER,
        manifest,
        pictured(trained.model, test.take(test.labelled)),
        {
            "episodes": judged["n_test"],
            "source": f"{RANDOMISED}: a lab run in which every hold was released after a random "
            "delay; not used for training",
        },
    )
    size = sum(path.stat().st_size for path in STARTER.rglob("*") if path.is_file())
    print(f"{STARTER}: {size:,} bytes")


if __name__ == "__main__":
    main()
