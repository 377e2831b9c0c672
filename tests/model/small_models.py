"""Small whole models with a known answer, for tests of what keeps and compares models."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from condor_advice.model.calibration import Calibration, Interval
from condor_advice.model.held import model as held
from condor_advice.model.held.derived_columns import ReasonRates
from condor_advice.model.held.model import Abstention, HeldModel
from condor_advice.model.held.parts.trees import TreePart
from condor_advice.model.infer import TreeEnsemble
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.tensors import TensorSpec

LOOKED_AT = "owner_success_rate"  # what decides in tests/model/held_world.py


def small_model(name: str, slope: float, until: str = "2000-01-01T00:00:00Z") -> HeldModel:
    """Say success by one feature: rightly with a slope above 0, wrongly with one below."""
    stump = TreeEnsemble(
        feature=np.array([0, -1, -1], np.int32),
        threshold=np.array([0.5, 0, 0], np.float32),
        left=np.array([1, -1, -1], np.int32),
        right=np.array([2, -1, -1], np.int32),
        missing_left=np.array([True, False, False]),
        value=np.array([0.0, -1.0, 1.0]),
        cover=np.array([2.0, 1.0, 1.0]),
        roots=np.array([0], np.int32),
        output=np.array([0], np.int32),
        base_margin=np.array([0.0]),
    )
    return HeldModel(
        name=name,
        feature_names=(LOOKED_AT,),
        spec=TensorSpec(),
        release_above=0.5,
        thresholds={"f1": 0.5},
        trained={"sources": ["made by hand"], "episodes": 2, "labelled": 2, "until": until},
        weights={"trees": slope},
        bias=0.0,
        centre={"trees": 0.0},
        calibration=Calibration("none"),
        interval=Interval((0.0, 1.0), (0.0, 0.9), (0.1, 1.0)),
        abstention=Abstention(0.05, 0.2, 0.8),
        parts={"trees": TreePart(stump, (LOOKED_AT,))},
        rates=ReasonRates.learn(
            np.zeros((2, len(FEATURE_NAMES)), np.float32), np.array([0.0, 1.0]), np.ones(2)
        ),
    )


def write_model(directory: Path, name: str, slope: float, **entries: object) -> Path:
    """Write a small model below a directory; return where it is."""
    place = directory / name
    held.save(
        small_model(name, slope, **entries),
        place,
        {
            "data_hash": "0" * 64,
            "metrics": {"validation": {"brier": 0.2, "roc_auc": 0.7}},
            "settings": {"slope": slope},
            "seeds": {"all": 0},
        },
    )
    return place
