"""Hold episodes in whose events and features an answer is hidden, for tests of training."""

from __future__ import annotations

import numpy as np

from condor_advice.model.held.data import HeldData
from condor_advice.model.held.evidence_rows import EvidenceTensors
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.outcomes import OUTCOME_INDEX, Outcome
from condor_advice.preprocess.holds.tensors import TensorSpec

SPEC = TensorSpec()


def held_world(
    count: int = 600, seed: int = 0, source: str = "ap1", noise: float = 1.0
) -> HeldData:
    """Make episodes: evictions in the history and a high owner's success rate speak for success.

    Four episodes make a cluster and share a part of their fate.
    """
    rng = np.random.default_rng(seed)
    kin = np.arange(count) // 4
    shared = rng.normal(size=kin.max() + 1)[kin]
    features = rng.gamma(1.0, 3.0, (count, len(FEATURE_NAMES))).astype(np.float32)
    features[rng.random(features.shape) < 0.2] = np.nan
    rate = rng.random(count)
    features[:, FEATURE_NAMES.index("owner_success_rate")] = rate
    features[:, FEATURE_NAMES.index("hold_family")] = rng.integers(2, 12, count)
    features[:, FEATURE_NAMES.index("hold_code")] = rng.choice([3, 6, 12, 13, 34], count)
    features[:, FEATURE_NAMES.index("hold_subcode")] = 0
    features[:, FEATURE_NAMES.index("hold_number")] = 1
    lengths = rng.integers(2, 14, count)
    offsets = np.append(0, np.cumsum(lengths))
    steps = np.zeros((offsets[-1], SPEC.num_features), np.float32)
    steps[:, SPEC.column("gap")] = rng.gamma(1.0, 2.0, len(steps))
    kinds = rng.choice(["is_execute", "is_image_size", "is_submit"], len(steps))
    for name in np.unique(kinds):
        steps[kinds == name, SPEC.column(str(name))] = 1.0
    evicted = rng.random(count) < 0.5
    for row in np.flatnonzero(evicted).tolist():
        at = rng.integers(offsets[row], offsets[row + 1] - 1)
        steps[at, : SPEC.column("gap")] = 0.0
        steps[at, SPEC.column("is_evicted")] = 1.0
    holds = offsets[1:] - 1
    steps[holds, : SPEC.column("gap")] = 0.0
    steps[holds, SPEC.column("is_held")] = 1.0
    steps[holds, SPEC.column("code")] = features[:, FEATURE_NAMES.index("hold_code")]
    odds = (
        3.0 * evicted - 1.5 + 4.0 * (rate - 0.5) + 0.5 * shared + noise * rng.logistic(size=count)
    )
    label = (odds > 0).astype(np.int8)
    good, bad = OUTCOME_INDEX[Outcome.SUCCEEDED], OUTCOME_INDEX[Outcome.HELD_SAME]
    time = 1_700_000_000_000_000 + np.sort(rng.integers(0, 86_400_000_000 * 30, count))
    return HeldData(
        features,
        steps,
        offsets,
        label,
        np.where(label == 1, good, bad).astype(np.int8),
        time,
        time + 60_000_000,
        time + 600_000_000,
        kin,
        np.zeros(count, np.int32),
        np.zeros(count, np.bool_),
        EvidenceTensors.nothing(count),
        (source,),
    )
