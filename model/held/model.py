"""A trained model for held jobs, evaluated with NumPy. Giving advice loads this module.

A model answers: if this job is released now, as is, does it succeed? The answer is a weighted sum
of the log-odds of its parts (parts/: the rules, a logistic regression, boosted trees, an LSTM over
the evidence; a part that adds nothing is left out), calibrated on episodes that no part was
trained on. It comes with an interval, and with whether the model is sure; conformal.py defines
"sure". A model is read from plain arrays and the manifest; no training package is imported here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.arrays import Arrays, UnusableModel, save_arrays
from condor_advice.model.calibration import Calibration, Interval
from condor_advice.model.held import stack
from condor_advice.model.held.derived_columns import ReasonRates, derive
from condor_advice.model.held.evidence_rows import EvidenceTensors, join_tensors
from condor_advice.model.held.parts import (
    MODULES,
    Attribution,
    Inputs,
    Part,
    PartContext,
    PartInputs,
    file_of,
    kind_of,
)
from condor_advice.model.held.words import evidence_words
from condor_advice.model.registry import manifest as manifests
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.tensors import TensorSpec

if TYPE_CHECKING:
    from condor_advice.preprocess.holds.evidence import Occlusion

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_REASONS_FILE = "reasons.npz"
_TRAIN_AGAIN = "train it again with `condor-advice train`"


@dataclass(frozen=True, slots=True)
class Predictions:
    """A model's answers, one for each hold."""

    p_success: Floats  # if released now, as is
    low: Floats  # 90 % interval of the success rate of episodes with similar scores
    high: Floats
    sure: Bools  # False: the model abstains, and the rules decide
    parts: Mapping[str, Floats] = field(default_factory=dict)  # log-odds of each part

    def __len__(self) -> int:
        return len(self.p_success)


@dataclass(frozen=True, slots=True)
class Abstention:
    """The bounds between which the model abstains; see conformal.py."""

    risk: float
    fails_below: float  # below: "will not succeed", with confidence
    succeeds_from: float  # from here on: "will succeed"

    def sure(self, p: Floats) -> Bools:
        """Tell where the model does not abstain."""
        return (p < self.fails_below) | (p >= self.succeeds_from)


@dataclass(frozen=True)
class HeldModel:
    """A trained model for held jobs."""

    name: str
    feature_names: tuple[str, ...]  # columns of the feature table that its trees use
    spec: TensorSpec
    release_above: float  # the default threshold
    thresholds: Mapping[str, float]
    trained: Mapping[str, Any]  # description of the training data
    weights: Mapping[str, float]  # of the parts' log-odds
    bias: float
    centre: Mapping[str, float]  # mean log-odds of a part over the training episodes
    calibration: Calibration
    interval: Interval
    abstention: Abstention
    parts: Mapping[str, Part]  # those that have a weight
    rates: ReasonRates  # outcomes by hold reason in training, for the derived columns

    @classmethod
    def load(cls, directory: Path) -> HeldModel:
        """Read a model; raise UnusableModel with the file and the problem if it cannot be used."""
        files = manifests.read(directory)
        manifest = files.manifest
        settings = manifest.model
        manifest.columns(FEATURE_NAMES)  # raises if this version does not compute a feature
        try:
            weights = {str(name): float(value) for name, value in settings["weights"].items()}
            spec = TensorSpec(**settings["spec"])
            return cls(
                name=manifest.name,
                feature_names=manifest.features,
                spec=spec,
                release_above=float(settings["release_above"]),
                thresholds=dict(settings["thresholds"]),
                trained=dict(manifest.trained_on),
                weights=weights,
                bias=float(settings["bias"]),
                centre=dict(settings["centre"]),
                calibration=_calibration(settings["calibration"]),
                interval=Interval(*(tuple(settings["interval"][k]) for k in ("p", "low", "high"))),
                abstention=Abstention(**settings["abstention"]),
                parts=_load_parts(files, weights, PartContext(manifest.features, spec)),
                rates=ReasonRates.from_arrays(files.arrays(_REASONS_FILE)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnusableModel(
                f"{directory / manifests.MANIFEST}: the description of the model is invalid "
                f"({type(error).__name__}: {error}); {_TRAIN_AGAIN}"
            ) from error

    # ---- answers

    def predict(self, inputs: Inputs) -> Predictions:
        """Predict the success of some holds.

        Unknown features are NaN; every part accepts that. So a job whose submission was not seen
        gets an answer, too.
        """
        parts = self.part_margins(inputs)
        p = self.calibration(self.combine(parts))
        low, high = self.interval(p)
        return Predictions(p, low, high, self.sure(inputs.features, p), parts)

    def sure(self, features: npt.NDArray[np.float32], p: Floats) -> Bools:
        """Tell where the model is sure: outside the bounds, and the kind of reason is known."""
        return self.abstention.sure(p) & self.rates.knows(features)

    def combine(self, margins: Mapping[str, Floats]) -> Floats:
        """Return the weighted sum of the parts' log-odds, before calibration."""
        return stack.combine(margins, self.weights, self.bias)

    def part_margins(self, inputs: Inputs) -> dict[str, Floats]:
        """Return the log-odds of each part."""
        prepared = self.prepare(inputs)
        return {name: part.margins(prepared) for name, part in self.parts.items()}

    def prepare(self, inputs: Inputs) -> PartInputs:
        """Add the derived columns; raise UnusableModel for features of another version."""
        features = inputs.features
        if features.ndim != 2 or features.shape[1] != len(FEATURE_NAMES):
            raise UnusableModel(
                f"model {self.name}: features of shape {features.shape}, but "
                f"{len(FEATURE_NAMES)} columns are needed; they come from another version of "
                "condor-advice: gather or export again"
            )
        return PartInputs.prepare(inputs, derive(features, self.rates.chances(features)))

    def explain(self, inputs: Inputs, without: Sequence[Occlusion] = ()) -> list[Attribution]:
        """Return the effects that led to the answer for one hold, largest first.

        Effects are log-odds before calibration. For features they are the trees' exact SHAP
        values plus the linear part's terms; for pieces of evidence, how far the sequence
        network's log-odds fall without them (occlusion). The effects of features and of the rule
        are relative to the average hold.
        """
        if len(inputs) != 1:
            raise ValueError(f"can explain one hold at a time, not {len(inputs)}")
        prepared = self.prepare(inputs)
        features: dict[str, Attribution] = {}
        others: list[Attribution] = []
        for name, part in self.parts.items():
            for share in part.contributions(prepared, self.centre[name]):
                effect = self.weights[name] * share.effect
                if share.kind != "feature":
                    others.append(replace(share, effect=effect))
                    continue
                before = features.get(share.name)
                total = effect if before is None else before.effect + effect
                features[share.name] = replace(share, effect=total)
        if "evidence" in self.parts:
            others += self._effects_of_evidence(inputs, without)
        attributions = [*others, *(feature for feature in features.values() if feature.effect)]
        return sorted(attributions, key=lambda attribution: -abs(attribution.effect))

    def _effects_of_evidence(
        self, inputs: Inputs, without: Sequence[Occlusion]
    ) -> list[Attribution]:
        """Return how far the sequence network's log-odds fall without each piece of evidence."""
        tensors = join_tensors(
            [inputs.evidence, *(EvidenceTensors.of([group.evidence]) for group in without)]
        )
        rows = np.zeros(len(tensors), np.int64)
        many = Inputs(
            inputs.features[rows],
            np.tile(inputs.steps, (len(tensors), 1)),
            np.arange(len(tensors) + 1) * len(inputs.steps),
            tensors,
        )
        margins = self.parts["evidence"].margins(self.prepare(many))
        return [
            Attribution(
                f"evidence_{group.relation}_{group.state.name.lower()}",
                evidence_words(group),
                float(group.jobs),
                self.weights["evidence"] * float(margins[0] - margin),
                "evidence",
            )
            for group, margin in zip(without, margins[1:].tolist(), strict=True)
        ]


def _load_parts(
    files: manifests.ModelFiles, names: Collection[str], context: PartContext
) -> dict[str, Part]:
    """Read the parts; raise UnusableModel for a part that this version does not have."""
    unknown = sorted(set(names) - set(MODULES))
    if unknown or not names:
        raise UnusableModel(
            f"{files.directory}: the model has a part {unknown} that this condor-advice does not "
            f"know; upgrade condor-advice, or {_TRAIN_AGAIN}"
        )
    parts: dict[str, Part] = {}
    for name in names:
        kind = kind_of(name)
        arrays: Arrays = files.arrays(file_of(name)) if kind.stored else {}
        try:
            parts[name] = kind.from_arrays(arrays, context)
        except UnusableModel as error:
            raise UnusableModel(f"{files.directory / file_of(name)}: {error}") from error
    return parts


def _calibration(settings: Mapping[str, Any]) -> Calibration:
    return Calibration(
        str(settings["kind"]),
        float(settings["slope"]),
        float(settings["shift"]),
        tuple(map(float, settings["x"])),
        tuple(map(float, settings["y"])),
    )


def settings_of(model: HeldModel) -> dict[str, Any]:
    """Return what `load` needs besides the arrays: the entry `model` of the manifest."""
    return {
        "spec": dataclasses.asdict(model.spec),
        "release_above": model.release_above,
        "thresholds": dict(model.thresholds),
        "weights": dict(model.weights),
        "bias": model.bias,
        "centre": dict(model.centre),
        "calibration": dataclasses.asdict(model.calibration),
        "interval": dataclasses.asdict(model.interval),
        "abstention": dataclasses.asdict(model.abstention),
    }


def save(
    model: HeldModel, directory: Path, manifest_entries: Mapping[str, Any]
) -> manifests.Manifest:
    """Write a model; its manifest comes last."""
    directory.mkdir(parents=True, exist_ok=True)
    save_arrays(directory / _REASONS_FILE, model.rates.arrays())
    for name, part in model.parts.items():
        if arrays := part.arrays():
            save_arrays(directory / file_of(name), arrays)
    return manifests.write(
        directory,
        manifests.Manifest(
            name=model.name,
            features=model.feature_names,
            model=settings_of(model),
            trained_on=dict(model.trained),
            **manifest_entries,
        ),
    )
