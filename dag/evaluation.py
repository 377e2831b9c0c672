"""Evaluate trials on the test split, with NumPy only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from condor_advice.dag.episodes import load_split
from condor_advice.model.arrays import check_finite, read_arrays
from condor_advice.model.infer import LstmNetwork, sigmoid
from condor_advice.model.metrics import OF_EPISODES, figures


def evaluate_candidates(listed: Path, directory: Path) -> list[dict[str, Any]]:
    """Return each candidate's figures on the validation and on the test split."""
    evaluations = []
    for candidate in json.loads(listed.read_text()):
        path = directory / f"trial-{candidate['trial']}.npz"
        arrays = read_arrays(path.read_bytes(), path)
        check_finite(arrays, path)
        network = LstmNetwork.from_arrays(arrays)
        parts = load_split(directory / candidate["data"])
        evaluated: dict[str, Any] = {"trial": candidate["trial"]}
        for name in ("validation", "test"):
            data = parts[name]
            label = data.label.astype(np.float64)
            p = sigmoid(network.margins(data.steps, data.offsets))
            evaluated[name] = figures(label, p, OF_EPISODES)
        evaluations.append(evaluated)
    return evaluations
