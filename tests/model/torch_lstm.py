"""Torch's own answers of a trained LSTM, for tests of its export."""

from __future__ import annotations

import numpy as np

from condor_advice.model.held.data import HeldData
from condor_advice.model.held.lstm_training import Floats, TrainedLstm, build, one_by_one


def torch_margins(trained: TrainedLstm, data: HeldData) -> Floats:
    """Return the log-odds of success that torch computes for each episode."""
    import torch

    network = build(trained.settings)
    network.load_state_dict({k: torch.from_numpy(v) for k, v in trained.weights.items()})
    network.eval()
    with torch.no_grad():
        outputs = [network(*episode)[0, 0] for episode in one_by_one(trained, data)]
    return np.array(outputs, np.float64)
