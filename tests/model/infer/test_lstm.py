"""An LSTM evaluated with NumPy says what torch says, and which event mattered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from held_world import SPEC, held_world
from torch_lstm import torch_margins

from condor_advice.model.arrays import UnusableModel
from condor_advice.model.held.lstm_training import LstmSettings, train
from condor_advice.model.infer import LstmNetwork

pytest.importorskip("torch")
QUICK = LstmSettings(hidden=8, epochs=3, batch=32, learning_rate=1e-2, patience=0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attention": False},
        {"layers": 2, "template_embedding": 4},
        {"class_weight": 0.0, "auxiliary": 0.0, "step_dropout": 0.0},
    ],
)
def test_numpy_says_the_same_as_torch_for_every_option(options):
    trained = train(held_world(200), held_world(100, seed=1), replace(QUICK, epochs=1, **options))
    unseen = held_world(150, seed=2)
    ours = trained.network.margins(unseen.steps, unseen.offsets, block=64)
    assert np.max(np.abs(ours - torch_margins(trained, unseen))) < 1e-5


def test_leaving_out_the_event_with_the_largest_effect_moves_the_output_most():
    trained = train(held_world(800), held_world(200, seed=1), replace(QUICK, epochs=8))
    network, unseen = trained.network, held_world(60, seed=3)
    evictions = 0
    for row in range(60):
        tensor = unseen.steps[unseen.offsets[row] : unseen.offsets[row + 1]]
        effects = network.occlusion(tensor)
        whole = network.margins(tensor, np.array([0, len(tensor)]))[0]
        top = int(np.argmax(np.abs(effects)))
        moved = []
        for left_out in range(len(tensor)):
            rest = np.delete(tensor, left_out, axis=0)
            moved.append(whole - network.margins(rest, np.array([0, len(rest)]))[0])
        assert np.allclose(effects, moved, atol=1e-5)
        assert abs(moved[top]) == pytest.approx(max(abs(one) for one in moved), abs=1e-5)
        history = tensor[:-1, SPEC.column("is_evicted")]
        evictions += bool(history.any()) and bool(
            np.argmax(effects[:-1]) == int(np.argmax(history))
        )
    # The event that made the difference in this world is the one that is found.
    assert evictions > 20


def test_arrays_that_do_not_fit_are_refused():
    arrays = train(held_world(100), held_world(100, seed=1), replace(QUICK, epochs=1)).network
    broken = arrays.arrays()
    broken["head_0"] = broken["head_0"][:, :-1]
    with pytest.raises(UnusableModel, match="sizes of the LSTM's arrays do not match"):
        LstmNetwork.from_arrays(broken)
    del broken["mean"]
    with pytest.raises(UnusableModel, match="mean"):
        LstmNetwork.from_arrays(broken)
