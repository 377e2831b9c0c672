"""Describe features and events in words, for explanations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from condor_advice.model.held.derived_columns import DERIVED
from condor_advice.model.infer import sigmoid
from condor_advice.preprocess.holds.evidence import Occlusion, State
from condor_advice.preprocess.holds.features import HOLD_FEATURES
from condor_advice.preprocess.holds.tensors import TensorSpec

_MEANINGS = {feature.name: (feature.meaning, feature.unit) for feature in HOLD_FEATURES}


def feature_words(name: str, value: float) -> str:
    """Describe a feature and its value."""
    if name in DERIVED:
        if name.endswith("_chance"):
            return f"{DERIVED[name][0]}: {sigmoid(np.array([value]))[0]:.0%}"
        meaning, unit = DERIVED[name][0], ""
    else:
        meaning, unit = _MEANINGS.get(name, (name, ""))
    if np.isnan(value):
        return f"{meaning}: not known"
    if unit == "0/1":
        return f"{meaning}: {'yes' if value else 'no'}"
    number = f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"
    shown = {"count": "", "index": "", "share": "", "ratio": "", "": ""}.get(unit, f" {unit}")
    return f"{meaning}: {number}{shown}"


def event_words(step: npt.NDArray[np.float32], spec: TensorSpec) -> tuple[str, str, float]:
    """Return an event's name, its description, and the seconds from it to the hold."""
    kinds = [column for column in spec.columns if column.startswith("is_")]
    marked = [name for name in kinds if step[spec.column(name)] > 0]
    name = marked[0].removeprefix("is_") if marked else "other"
    seconds = float(np.expm1(step[spec.column("before_hold")]))
    words = name.replace("_", " ")
    if name == "held" and step[spec.column("code")] > 0:
        words += f" (code {step[spec.column('code')]:.0f})"
    if seconds < 0.5 and name == "held":
        return name, f"{words}: this hold", seconds
    return name, f"{words}, {duration(seconds)} before the hold", seconds


_RELATIONS = {
    "job": "earlier holds of this job",
    "cluster": "jobs of this cluster",
    "program": "jobs of this program",
    "template": "jobs held for the same reason",
    "family": "jobs held for a similar reason",
    "point": "jobs held on the same execution point",
    "pool": "other held jobs",
}
_STATES = {
    State.OPEN: "still held",
    State.PENDING: "released, and not heard of since",
    State.GOOD: "released and finished",
    State.HELD_SAME: "released and held again for the same reason",
    State.HELD_OTHER: "released and held again for another reason",
    State.FAILED: "released and failed",
    State.GONE: "removed",
    State.CHANGED: "changed before their release",
    State.ENDED_WELL: "finished without a hold",
    State.ENDED_BADLY: "failed without a hold",
}


def evidence_words(group: Occlusion) -> str:
    """Describe a group of related episodes: what they share with the hold, and their state."""
    jobs = f"{group.jobs:,} {_RELATIONS[group.relation]}"
    if group.relation == "job":
        jobs = f"{group.episodes:,} {_RELATIONS['job']}"
    return f"{jobs}: {_STATES[group.state]} (the latest {duration(group.seconds_ago)} ago)"


def duration(seconds: float) -> str:
    """Format a length of time in the largest unit that fits."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
