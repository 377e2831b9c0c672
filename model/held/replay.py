"""Walk through an event log in time: ask right before each release, with what was known then.

With learning, the model adapts to outcomes as they become known (adapt.py), as the collector does
on an access point. Each answer rests on outcomes that were decided before it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model import metrics
from condor_advice.model.held.adapt import AdaptSettings, Recorded, adapt
from condor_advice.model.held.data import HeldData
from condor_advice.model.held.model import HeldModel, Predictions
from condor_advice.model.held.parts import Inputs
from condor_advice.model.held.rule_scores import rule_priors
from condor_advice.model.held.rules import PRIOR_WEIGHT
from condor_advice.preprocess.holds.evidence import QUERY_COLUMNS
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.labels import NO_LABEL

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LEARN_EVERY = 100  # new outcomes
THIRDS = 3
_RATE_CASES = 3.0  # weight of the level above, in cases
_LAST_OUTCOME_LEVELS = ("job", "cluster_template", "template", "owner")


@dataclass(frozen=True, slots=True)
class Replay:
    """The answers to all releases of a log, in the order in which they were asked for."""

    rows: Ints  # in the data
    predictions: Predictions
    learned: Ints  # how many outcomes the answering model had learned from here
    label: npt.NDArray[np.int8]


def replay(
    model: HeldModel,
    data: HeldData,
    *,
    learn: bool = False,
    recorded: HeldData | None = None,
    settings: AdaptSettings | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Replay:
    """Answer right before each release; the data's evidence is as of the releases."""
    rows = np.flatnonzero(data.released >= 0)
    rows = rows[np.argsort(data.released[rows], kind="stable")]
    others = Recorded(model, recorded, settings) if learn and recorded is not None else None
    decided = np.where((data.label != NO_LABEL) & (data.decided >= 0), data.decided, _NEVER)
    answers: list[Predictions] = []
    learned: list[int] = []
    current, known, place = model, 0, 0
    while place < len(rows):
        end = len(rows)
        if learn:
            # How many outcomes were decided before each of the releases that are left.
            counts = np.searchsorted(np.sort(decided), data.released[rows[place:]], side="left")
            due = np.flatnonzero(counts >= known + LEARN_EVERY)
            if len(due) and due[0] == 0:
                own = np.flatnonzero(decided < data.released[rows[place]])
                current, known = adapt(model, data.take(own), others, settings), len(own)
                say(f"learned from {known:,} outcomes")
                due = np.flatnonzero(counts >= known + LEARN_EVERY)
            end = place + int(due[0]) if len(due) else len(rows)
        answers.append(current.predict(Inputs.of(data.take(rows[place:end]))))
        learned += [known] * (end - place)
        place = end
    return Replay(rows, _joined(answers), np.array(learned, np.int64), data.label[rows])


_NEVER = np.iinfo(np.int64).max


def _joined(answers: list[Predictions]) -> Predictions:
    if not answers:
        nothing = np.zeros(0)
        return Predictions(nothing, nothing, nothing, np.zeros(0, np.bool_))
    return Predictions(
        np.concatenate([some.p_success for some in answers]),
        np.concatenate([some.low for some in answers]),
        np.concatenate([some.high for some in answers]),
        np.concatenate([some.sure for some in answers]),
    )


def baselines(data: HeldData) -> dict[str, Floats]:
    """Return what simple rules would answer, from the same knowledge as the model has."""
    query = data.evidence.query.astype(np.float64)
    count = {
        (level, kind): np.expm1(2 * query[:, QUERY_COLUMNS.index(f"{level}_{kind}")])
        for level in ("pool", "template", "cluster_template")
        for kind in ("good", "bad")
    }

    def rate(level: str, above: Floats, cases: float = _RATE_CASES) -> Floats:
        good, bad = count[level, "good"], count[level, "bad"]
        shrunk: Floats = (good + cases * above) / (good + bad + cases)
        return shrunk

    average = rate("pool", np.full(len(data), 0.3))
    prior = rule_priors(data.features, FEATURE_NAMES)
    last = np.full(len(data), np.nan)
    for level in _LAST_OUTCOME_LEVELS:
        last = np.where(np.isnan(last), _last_outcome(query, level), last)
    return {
        "base rate": average,
        "rules": rate("template", prior, PRIOR_WEIGHT),
        "template rate": rate("template", average),
        "cluster rate": rate("cluster_template", rate("template", average)),
        "last outcome": np.where(np.isnan(last), average, 0.2 * average + 0.8 * last),
    }


def _last_outcome(query: Floats, level: str) -> Floats:
    """Return the latest outcome on a level: 1, 0, or NaN where there is none."""
    good, bad, since_good, since_bad = (
        query[:, QUERY_COLUMNS.index(f"{level}_{name}")]
        for name in ("any_good", "any_bad", "last_good", "last_bad")
    )
    latest = np.where(since_good <= since_bad, 1.0, 0.0)
    return np.where(
        (good > 0) & (bad > 0), latest, np.where(good > 0, 1.0, np.where(bad > 0, 0.0, np.nan))
    )


def figures(played: Replay, data: HeldData, model: HeldModel) -> dict[str, Any]:
    """Return the figures of a replay: of the model, by thirds of the time, and of baselines."""
    known = np.flatnonzero(played.label != NO_LABEL)
    label = (played.label[known] == 1).astype(np.float64)
    p = played.predictions.p_success[known]
    simple = baselines(data.take(played.rows[known]))
    return {
        "model": model.name,
        "releases": len(played.rows),
        "n_test": len(known),
        "base_rate": float(label.mean()) if len(label) else float("nan"),
        "figures": _figures(label, p),
        "thirds": [
            _figures(label[part], p[part]) for part in np.array_split(np.arange(len(known)), THIRDS)
        ],
        "sure": _sure(label, played.predictions, known),
        "baselines": {name: _figures(label, chance) for name, chance in simple.items()},
        "outcomes_learned": int(played.learned.max(initial=0)),
    }


def _figures(label: Floats, p: Floats) -> dict[str, float]:
    """Return AUC, Brier score over that of the base rate, log loss and calibration error."""
    if len(np.unique(label)) < 2:
        return {"n": len(label)}
    spread = float(label.mean() * (1 - label.mean()))
    whole: Mapping[str, float] = metrics.figures(
        label, p, ("roc_auc", "brier", "log_loss", "calibration_error")
    )
    return {"n": len(label), **whole, "brier_over_base_rate": whole["brier"] / spread}


def _sure(label: Floats, predictions: Predictions, known: Ints) -> dict[str, float]:
    """Return how often the model is sure, of what, and how often it is wrong then."""
    sure, p = predictions.sure[known], predictions.p_success[known]
    success = sure & (p >= 0.5)
    failure = sure & ~success
    wrong = (success & (label == 0)) | (failure & (label == 1))
    count = max(int(sure.sum()), 1)
    return {
        "share": float(sure.mean()) if len(sure) else 0.0,
        "share_of_success": float(success.mean()) if len(sure) else 0.0,
        "wrong": float(wrong.sum() / count),
        "wrong_of_success": float((success & (label == 0)).sum() / max(int(success.sum()), 1)),
    }
