"""A trained model for held jobs, evaluated with NumPy: what giving advice loads.

A model answers: if this job is released now, as it is, does it succeed? It is a weighted sum
of log-odds from its parts (the rules, a logistic regression, boosted trees, an LSTM over the
job's events; a part that adds nothing is left out), passed through a calibration that was
chosen on episodes that no part had learned from. Beside the probability stand an interval and
whether the model is sure: see conformal.py for what that word promises. All is read from plain
arrays and the manifest; training packages are not imported here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.arrays import UnusableModel, save_arrays
from condor_advice.model.held.features import AMOUNTS, DERIVED, ReasonRates, amount_rows, derive
from condor_advice.model.held.linear import Line
from condor_advice.model.held.rule_scores import rule_priors
from condor_advice.model.infer import LstmNetwork, TreeEnsemble, sigmoid
from condor_advice.model.registry import manifest as manifests
from condor_advice.preprocess.holds.features import FEATURE_NAMES, HOLD_FEATURES
from condor_advice.preprocess.holds.tensors import EpisodeTensor, TensorSpec

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

STARTER = Path(__file__).with_name("starter")
TREES, LSTM, REASONS, LINEAR = "trees.npz", "lstm.npz", "reasons.npz", "linear.npz"
_NOT_WHOLE = "train it again with `condor-advice train`"


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a model says of each episode."""

    p_success: Floats  # if released now, as it is
    low: Floats  # 90 % interval of the success rate among episodes that score alike
    high: Floats
    sure: Bools  # False: the model abstains, and the rules' answer stands
    parts: Mapping[str, Floats] = field(default_factory=dict)  # log-odds of each part

    def __len__(self) -> int:
        return len(self.p_success)


@dataclass(frozen=True, slots=True)
class Attribution:
    """What one feature, event or rule did to one answer."""

    name: str
    words: str
    value: float  # NaN where it was not known
    effect: float  # log-odds; above zero speaks for success
    kind: str  # "feature", "event" or "rule"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Log-odds to probability: a straight line in log-odds, or steps joined by lines."""

    kind: str  # "none", "temperature" or "isotonic"
    slope: float = 1.0
    shift: float = 0.0
    x: tuple[float, ...] = ()  # log-odds of the knots of an isotonic curve, rising
    y: tuple[float, ...] = ()

    def __call__(self, margin: Floats) -> Floats:
        """Return probabilities."""
        if self.kind == "isotonic":
            return np.interp(margin, self.x, self.y)
        return sigmoid(self.slope * margin + self.shift)


@dataclass(frozen=True, slots=True)
class Interval:
    """How far the success rate may be from what is said, by what is said."""

    p: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __call__(self, p: Floats) -> tuple[Floats, Floats]:
        """Return the lower and the upper end, which always hold the probability itself."""
        low, high = np.interp(p, self.p, self.low), np.interp(p, self.p, self.high)
        return np.minimum(low, p), np.maximum(high, p)


@dataclass(frozen=True, slots=True)
class Abstention:
    """Between the two bounds the model does not answer; see conformal.py."""

    risk: float
    fails_below: float  # below it "will not succeed" is said with confidence
    succeeds_from: float  # from it on "will succeed" is

    def sure(self, p: Floats) -> Bools:
        """Tell where the model answers."""
        return (p < self.fails_below) | (p >= self.succeeds_from)


@dataclass(frozen=True)
class HeldModel:
    """A model as it is used."""

    name: str
    feature_names: tuple[str, ...]  # of the table, that its trees look at
    spec: TensorSpec
    release_above: float  # the default threshold: the cheapest, or of the best F1
    thresholds: Mapping[str, float]
    trained: Mapping[str, Any]  # for display: what it was trained on
    weights: Mapping[str, float]  # of the parts' log-odds
    bias: float
    centre: Mapping[str, float]  # mean log-odds of a part over the training episodes
    calibration: Calibration
    interval: Interval
    abstention: Abstention
    trees: TreeEnsemble | None
    columns: Ints  # where the trees' features are among FEATURE_NAMES; derived ones follow
    rates: ReasonRates
    linear: Line | None = None
    lstm: LstmNetwork | None = None

    @classmethod
    def load(cls, directory: Path) -> HeldModel:
        """Read a model; raises UnusableModel with file, what is wrong and what next."""
        files = manifests.read(directory)
        manifest = files.manifest
        settings = manifest.model
        try:
            weights = {str(name): float(value) for name, value in settings["weights"].items()}
            trees = None
            if "trees" in weights:
                trees = TreeEnsemble(**files.arrays(TREES))
            model = cls(
                name=manifest.name,
                feature_names=manifest.features,
                spec=TensorSpec(**settings["spec"]),
                release_above=float(settings["release_above"]),
                thresholds=dict(settings["thresholds"]),
                trained=dict(manifest.trained_on),
                weights=weights,
                bias=float(settings["bias"]),
                centre=dict(settings["centre"]),
                calibration=_calibration(settings["calibration"]),
                interval=Interval(*(tuple(settings["interval"][k]) for k in ("p", "low", "high"))),
                abstention=Abstention(**settings["abstention"]),
                trees=trees,
                columns=manifest.columns(FEATURE_NAMES),
                rates=ReasonRates.from_arrays(files.arrays(REASONS)),
                linear=Line.from_arrays(files.arrays(LINEAR), len(AMOUNTS) + len(DERIVED))
                if "linear" in weights
                else None,
                lstm=LstmNetwork.from_arrays(files.arrays(LSTM)) if "lstm" in weights else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnusableModel(
                f"{directory / manifests.MANIFEST}: what it says of the model cannot be used "
                f"({type(error).__name__}: {error}); {_NOT_WHOLE}"
            ) from error
        model._check(directory)
        return model

    def _check(self, directory: Path) -> None:
        """Refuse a model whose parts do not fit each other."""
        width = len(self.columns) + len(DERIVED)
        if self.trees is not None and int(self.trees.feature.max(initial=-1)) >= width:
            raise UnusableModel(
                f"{directory / TREES}: its trees ask for more features than the manifest "
                f"names; {_NOT_WHOLE}"
            )
        unknown = sorted(set(self.weights) - {"rules", "linear", "trees", "lstm"})
        if unknown or not self.weights:
            raise UnusableModel(
                f"{directory}: the model has a part {unknown} that this condor-advice does not "
                f"know; upgrade condor-advice, or {_NOT_WHOLE}"
            )

    # ---- answers

    def predict(
        self, features: npt.NDArray[np.float32], steps: EpisodeTensor, offsets: Ints
    ) -> Predictions:
        """Answer for episodes as `Samples` holds them: features, steps without padding, offsets.

        Features have the columns of FEATURE_NAMES. What is not known is NaN, and every part
        copes with that: a job whose submission was not seen gets an answer, too.
        """
        parts = self.part_margins(features, steps, offsets)
        p = self.calibration(self.combine(parts))
        low, high = self.interval(p)
        return Predictions(p, low, high, self.sure(features, p), parts)

    def sure(self, features: npt.NDArray[np.float32], p: Floats) -> Bools:
        """Tell where the model answers: it is sure enough, and knows the kind of reason."""
        return self.abstention.sure(p) & self.rates.knows(features)

    def combine(self, parts: Mapping[str, Floats]) -> Floats:
        """Return the weighted sum of the parts' log-odds, before calibration."""
        margin = np.full(len(next(iter(parts.values()))), self.bias)
        for name, weight in self.weights.items():
            margin = margin + weight * parts[name]
        return margin

    def part_margins(
        self, features: npt.NDArray[np.float32], steps: EpisodeTensor, offsets: Ints
    ) -> dict[str, Floats]:
        """Return the log-odds of each part."""
        if features.ndim != 2 or features.shape[1] != len(FEATURE_NAMES):
            raise UnusableModel(
                f"model {self.name}: features of shape {features.shape}, where "
                f"{len(FEATURE_NAMES)} columns are needed; they come from another version of "
                "condor-advice: gather or export again"
            )
        found: dict[str, Floats] = {}
        if "rules" in self.weights:
            found["rules"] = logit(rule_priors(features, FEATURE_NAMES))
        more = derive(features, self.rates.chances(features))
        if self.trees is not None:
            rows = np.concatenate((features[:, self.columns], more), axis=1)
            found["trees"] = self.trees.predict_margin(rows)
        if self.linear is not None:
            found["linear"] = self.linear.margins(amount_rows(features, more))
        if self.lstm is not None:
            found["lstm"] = self.lstm.margins(steps, offsets)
        return found

    def tree_rows(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return what the trees look at: columns of the table, then the derived ones."""
        more = derive(features, self.rates.chances(features))
        return np.concatenate((features[:, self.columns], more), axis=1)

    def explain(
        self, features: npt.NDArray[np.float32], tensor: EpisodeTensor
    ) -> list[Attribution]:
        """Say what made the answer for one episode, the largest effect first.

        Effects are log-odds before calibration. Those of features are the trees' exact SHAP
        values and the linear part's terms, both against the average hold; those of events say
        by how much the LSTM's log-odds fall when the event is left out (occlusion); that of
        the rule is against the average hold, too.
        """
        row = np.asarray(features, np.float32).reshape(1, -1)
        found: list[Attribution] = []
        if "rules" in self.weights:
            prior = rule_priors(row, FEATURE_NAMES)
            effect = self.weights["rules"] * (float(logit(prior)[0]) - self.centre["rules"])
            found.append(
                Attribution("rule", "what facilitators advise", float(prior[0]), effect, "rule")
            )
        found += [
            Attribution(name, feature_words(name, value), value, effect, "feature")
            for name, (value, effect) in self._feature_effects(row).items()
            if effect
        ]
        if self.lstm is not None:
            shown = np.asarray(tensor, np.float32)[-self.lstm.max_steps :]
            for place, effect in enumerate(self.lstm.occlusion(shown).tolist()):
                name, words, seconds = event_words(shown[place], self.spec)
                found.append(
                    Attribution(name, words, seconds, self.weights["lstm"] * effect, "event")
                )
        return sorted(found, key=lambda one: -abs(one.effect))

    def _feature_effects(self, row: npt.NDArray[np.float32]) -> dict[str, tuple[float, float]]:
        """Return value and effect of each column, over the trees and the linear part."""
        values = self.tree_rows(row)[0]
        names = (*self.feature_names, *DERIVED)
        found = {name: (value, 0.0) for name, value in zip(names, values.tolist(), strict=True)}
        if self.trees is not None:
            shares = self.trees.contributions(values, len(values))
            for name, share in zip(names, shares.tolist(), strict=False):
                found[name] = (found[name][0], self.weights["trees"] * share)
        if self.linear is not None:
            more = derive(row, self.rates.chances(row))
            shares = self.linear.contributions(amount_rows(row, more))
            for name, share in zip((*AMOUNTS, *DERIVED), shares.tolist(), strict=True):
                unseen = float(row[0, FEATURE_NAMES.index(name)]) if name in AMOUNTS else 0.0
                value, effect = found.get(name, (unseen, 0.0))
                found[name] = (value, effect + self.weights["linear"] * share)
        return found


def _calibration(settings: Mapping[str, Any]) -> Calibration:
    return Calibration(
        str(settings["kind"]),
        float(settings["slope"]),
        float(settings["shift"]),
        tuple(map(float, settings["x"])),
        tuple(map(float, settings["y"])),
    )


def logit(p: Floats) -> Floats:
    """Return log-odds, kept finite."""
    clipped = np.clip(p, 1e-6, 1 - 1e-6)
    found: Floats = np.log(clipped) - np.log1p(-clipped)
    return found


_MEANINGS = {feature.name: (feature.meaning, feature.unit) for feature in HOLD_FEATURES}


def feature_words(name: str, value: float) -> str:
    """Say a feature and its value in words."""
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
    """Return an event's name, what it was in words, and the seconds from it to the hold."""
    kinds = [column for column in spec.columns if column.startswith("is_")]
    found = [name for name in kinds if step[spec.column(name)] > 0]
    name = found[0].removeprefix("is_") if found else "other"
    seconds = float(np.expm1(step[spec.column("before_hold")]))
    words = name.replace("_", " ")
    if name == "held" and step[spec.column("code")] > 0:
        words += f" (code {step[spec.column('code')]:.0f})"
    if seconds < 0.5 and name == "held":
        return name, f"{words}: this hold", seconds
    return name, f"{words}, {duration(seconds)} before the hold", seconds


def duration(seconds: float) -> str:
    """Say a length of time in its largest fitting unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"


def settings_of(model: HeldModel) -> dict[str, Any]:
    """Return what `load` needs beside arrays: the manifest's entry `model`."""
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
    """Write a model and, last, its manifest."""
    directory.mkdir(parents=True, exist_ok=True)
    save_arrays(directory / REASONS, model.rates.arrays())
    if model.trees is not None:
        save_arrays(directory / TREES, model.trees.arrays())
    if model.linear is not None:
        save_arrays(directory / LINEAR, model.linear.arrays())
    if model.lstm is not None:
        save_arrays(directory / LSTM, model.lstm.arrays())
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
