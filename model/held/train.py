"""Train a model for held jobs: parts, stack, calibration, abstention, thresholds.

Everything is chosen on episodes that the parts were not trained on: for each fold, parts are
trained on the other folds, and stack, calibration, abstention and thresholds are fitted on their
predictions for this fold (*out of fold*). training.py has the folds; parts/ trains the parts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model import calibration
from condor_advice.model.arrays import Arrays, save_arrays
from condor_advice.model.held import conformal, drift, propensity, stack, thresholds
from condor_advice.model.held import model as held
from condor_advice.model.held.data import HeldData
from condor_advice.model.held.derived_columns import SETS, ReasonRates
from condor_advice.model.held.drift import Observed
from condor_advice.model.held.model import HeldModel
from condor_advice.model.held.parts import ADDED_LATER, MODULES, ON_REQUEST, Fitted, Part, kind_of
from condor_advice.model.held.training_rows import ONLY_LEARNED, Say, Training, folds_of
from condor_advice.model.metrics import OF_PROBABILITIES, figures
from condor_advice.model.registry import manifest
from condor_advice.model.tracking import Tracker
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.tensors import TensorSpec

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PART_NAMES = tuple(name for name in MODULES if name not in ADDED_LATER)
DEFAULT_PARTS = tuple(name for name in PART_NAMES if name not in ON_REQUEST)
# Full propensity weights leave a third of the effective sample size: enough to fit the stack, too
# little to train parts. Chosen among 0, 1/4 and 1/2 by the weighted log loss out of fold.
_PARTS_POWER = 0.25
_LEAST_WEIGHT = 0.02  # in the stack; a part with less is left out of the model


@dataclass(frozen=True, slots=True)
class HeldSettings:
    """How to train a model. The seed fixes all random choices."""

    parts: tuple[str, ...] = DEFAULT_PARTS
    by_part: Mapping[str, Any] = field(default_factory=dict)  # parts without defaults
    feature_sets: tuple[str, ...] = tuple(SETS)  # to try; the better one is kept
    # Both correct for people's choices. Trained on recordings with owners and evaluated on one in
    # which every hold was released, neither lowers the log loss. So both are off; the report has
    # the figures.
    propensity: bool = False  # weight labels by the inverse of their probability to exist
    repaired_failed: bool = False  # count repaired jobs as failures of a release as is
    folds: int = 4  # periods of time, if there is only one access point
    later: float = 0.25  # share of the training episodes, the latest, for early stopping
    risk: float = conformal.RISK
    seed: int = 0

    def of(self, part: str) -> Any:
        """Return the settings of a part; None if it has none."""
        if part in self.by_part:
            return self.by_part[part]
        defaults = kind_of(part).settings
        return defaults() if defaults else None

    def of_all(self) -> dict[str, Any]:
        """Return the settings of all parts that have any."""
        named = {part: self.of(part) for part in MODULES}
        return {part: settings for part, settings in named.items() if settings is not None}

    def change(self, part: str, **changes: Any) -> HeldSettings:
        """Return a copy with changed settings of one part."""
        return replace(self, by_part={**self.by_part, part: replace(self.of(part), **changes)})

    def change_all(self, **changes: Any) -> HeldSettings:
        """Return a copy with settings changed in every part that has them."""
        changed = self
        for part, settings in self.of_all().items():
            known = {field_.name for field_ in fields(settings)}
            changed = changed.change(part, **{k: v for k, v in changes.items() if k in known})
        return changed

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for a manifest; those of a part are under its name."""
        whole = {field_.name: getattr(self, field_.name) for field_ in fields(self)}
        del whole["by_part"]
        return whole | {part: asdict(settings) for part, settings in self.of_all().items()}


@dataclass(frozen=True)
class Learned:
    """The parts, trained on all labelled episodes, and their predictions out of fold.

    The arrays cover the judged episodes: all with a label, except those of sources with a lower
    weight (such as simulations), which are only for training.
    """

    data: HeldData  # the judged episodes
    seen: Observed  # all episodes of the judged sources, with a label or without
    judged: Ints  # indices of the judged episodes in `seen`
    label: Floats
    weight: Floats
    margins: dict[str, Floats]  # log-odds of each part, out of fold
    feature_set: str
    parts: dict[str, Part]
    rates: ReasonRates
    trained: dict[str, Any]  # description of the training data
    data_hash: str
    notes: dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """A model, and notes on its training."""

    model: HeldModel
    label: Floats  # of the judged episodes
    p: Floats  # the model's predictions for them, out of fold and calibrated
    reference: Arrays  # to measure drift against
    notes: dict[str, Any]


def train(
    data: HeldData,
    settings: HeldSettings,
    name: str = "",
    *,
    weight: Floats | None = None,
    say: Say = lambda _text: None,
    tracker: Tracker | None = None,
    progress: bool = False,
    work: Path | None = None,
) -> Trained:
    """Train a model on labelled episodes; `weight` is the weight of each episode.

    Parts save their state in the directory `work`, and resume from it after a kill.
    """
    began = time.monotonic()
    learned = learn(
        data, settings, weight=weight, say=say, tracker=tracker, progress=progress, work=work
    )
    trained = assemble(learned, settings, settings.parts, name)
    trained.notes["seconds"] = round(time.monotonic() - began, 1)
    return trained


def learn(
    data: HeldData,
    settings: HeldSettings,
    *,
    weight: Floats | None = None,
    say: Say = lambda _text: None,
    tracker: Tracker | None = None,
    progress: bool = False,
    work: Path | None = None,
) -> Learned:
    """Train the parts."""
    data.check()
    data = _with_repairs(data, settings)
    rows = data.labelled
    given = np.ones(len(data)) if weight is None else weight
    counts_fully = given >= given.max()
    judged = np.flatnonzero(counts_fully[rows])
    notes: dict[str, Any] = {}
    to_train, to_stack = _weights(data, given, settings, notes, say)
    fold = np.full(len(rows), ONLY_LEARNED)
    fold[judged] = folds_of(data, rows[judged], settings.folds)
    training = Training(
        data,
        rows,
        data.label[rows].astype(np.float64),
        to_train[rows] / to_train[rows][judged].mean(),
        fold,
        settings,
        say,
        work,
        tracker,
        progress,
    )
    fitted = {part: kind_of(part).train(training) for part in settings.parts}
    notes |= {part: dict(result.notes) for part, result in fitted.items() if result.notes}
    whole = np.flatnonzero(counts_fully)
    return Learned(
        data=data.take(rows[judged]),
        seen=Observed.of(data).take(whole),
        judged=np.searchsorted(whole, rows[judged]),
        label=training.label[judged],
        weight=to_stack[rows][judged] / to_stack[rows][judged].mean(),
        margins={part: result.margins[judged] for part, result in fitted.items()},
        feature_set=_feature_set(fitted, settings),
        parts={part: result.part for part, result in fitted.items()},
        rates=training.rates(np.arange(len(training))),
        trained={
            **data.summary(),
            "from": _second(int(data.time.min())),
            "until": _second(int(data.time.max())),
        },
        data_hash=data.hash(),
        notes=notes,
    )


def _with_repairs(data: HeldData, settings: HeldSettings) -> HeldData:
    """Count repaired jobs as failed, if the settings say so.

    In the recordings one in nine would have succeeded as is. Leaving them out biases the data the
    other way: people mostly repair hopeless jobs.
    """
    if not settings.repaired_failed:
        return data
    return replace(data, label=np.where(data.changed, 0, data.label).astype(np.int8))


def _weights(
    data: HeldData, given: Floats, settings: HeldSettings, notes: dict[str, Any], say: Say
) -> tuple[Floats, Floats]:
    """Return the weight of each episode for training parts, and for fitting the stack."""
    if not settings.propensity:
        return given, given
    estimate = propensity.estimate(data, settings.seed)
    notes["propensity"] = {"roc_auc": estimate.roc_auc, "effective_share": estimate.effective}
    say(
        f"which holds have a label is predicted with ROC AUC {estimate.roc_auc:.2f}; the weights "
        f"leave an effective sample size of {estimate.effective:.0%}"
    )
    return given * estimate.weight**_PARTS_POWER, given * estimate.weight


def _feature_set(fitted: Mapping[str, Fitted], settings: HeldSettings) -> str:
    """Return the set of features that a part chose, else the first of the settings."""
    sets = [result.feature_set for result in fitted.values()]
    return next((name for name in sets if name is not None), settings.feature_sets[0])


def assemble(
    learned: Learned, settings: HeldSettings, parts: Sequence[str], name: str = ""
) -> Trained:
    """Build a model from some of the parts: stack, calibration, abstention and thresholds."""
    label, weight, kin = learned.label, learned.weight, learned.data.kin
    margins = {part: learned.margins[part] for part in parts}
    weights, bias = _stack(margins, label, weight)
    margin = stack.combine({part: margins[part] for part in weights}, weights, bias)
    chosen, losses = calibration.choose(margin, label, weight, kin, settings.seed)
    p = chosen(margin)
    lines = thresholds.choose(p, label, thresholds.job_costs(learned.data.features, FEATURE_NAMES))
    created = manifest.now()
    model = HeldModel(
        name=name or manifest.new_name(created, learned.data_hash),
        feature_names=SETS[learned.feature_set],
        spec=TensorSpec(max_steps=_most_steps(settings)),
        release_above=lines["cost"],
        thresholds=lines,
        trained=learned.trained,
        weights=weights,
        bias=bias,
        centre={part: float(np.average(margins[part], weights=weight)) for part in weights},
        calibration=chosen,
        interval=calibration.fit_interval(p, label, kin),
        abstention=conformal.choose_bounds(
            p, label, kin, settings.risk, learned.data.source.astype(np.int64)
        ),
        parts={part: learned.parts[part] for part in weights},
        rates=learned.rates,
    )
    notes = {
        **learned.notes,
        "gains": stack.gains(margins, label, weight, kin, settings.seed),
        "calibration_log_loss": losses,
        "data_hash": learned.data_hash,
        "created": created,
        "weights": weights,
    }
    p = calibration.out_of_fold(chosen.kind, margin, label, weight, kin, settings.seed)
    predicted = np.full(len(learned.seen), np.nan)
    predicted[learned.judged] = p
    reference = drift.reference(replace(learned.seen, p=predicted))
    return Trained(model, label, p, reference, notes)


def save(
    trained: Trained, directory: Path, settings: HeldSettings, metrics: dict[str, Any]
) -> manifest.Manifest:
    """Write a trained model and its manifest."""
    directory.mkdir(parents=True, exist_ok=True)
    save_arrays(directory / drift.REFERENCE_FILE, trained.reference)
    return held.save(
        trained.model,
        directory,
        {
            "data_hash": trained.notes["data_hash"],
            "created": trained.notes["created"],
            "metrics": metrics,
            "settings": settings.as_dict(),
            "seeds": {"all": settings.seed, **_seeds(settings)},
        },
    )


def validation_figures(trained: Trained) -> dict[str, float]:
    """Return the figures on out-of-fold predictions, for the manifest."""
    names = ("n_test", "base_rate", *OF_PROBABILITIES, "accuracy")
    return figures(trained.label, trained.p, names)


def _stack(
    parts: dict[str, Floats], label: Floats, weight: Floats
) -> tuple[dict[str, float], float]:
    """Fit the stack, leaving out parts with next to no weight; return weights and bias."""
    kept = dict(parts)
    while True:
        weights, bias = stack.fit(kept, label, weight)
        least = min(weights, key=lambda part: weights[part])
        if weights[least] >= _LEAST_WEIGHT or len(kept) == 1:
            return weights, bias
        del kept[least]


def _most_steps(settings: HeldSettings) -> int:
    """Return the number of steps of the part that uses most; at least two."""
    return max([2, *(getattr(part, "max_steps", 2) for part in settings.of_all().values())])


def _seeds(settings: HeldSettings) -> dict[str, int]:
    return {part: own.seed for part, own in settings.of_all().items() if hasattr(own, "seed")}


def _second(microseconds: int) -> str:
    return str(np.datetime64(microseconds, "us").astype("datetime64[s]")) + "Z"
