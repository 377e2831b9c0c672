"""Training of a model for held jobs: parts, stack, calibration, abstention, thresholds.

Whatever is chosen is chosen on episodes that the parts did not learn from: each fold's parts
are trained on the other folds, and what they say of it (*out of fold*) is what stack,
calibration, abstention and thresholds are fitted on. A fold is a whole access point where
there are several, else a stretch of time; kin stay together in both cases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model import calibration
from condor_advice.model.arrays import Arrays, save_arrays
from condor_advice.model.held import conformal, drift, lstm, propensity, stack, thresholds
from condor_advice.model.held import model as held
from condor_advice.model.held.data import HeldData
from condor_advice.model.held.drift import Observed
from condor_advice.model.held.features import (
    DERIVED,
    SETS,
    ReasonRates,
    amount_rows,
    derive,
    direction,
)
from condor_advice.model.held.model import HeldModel, logit
from condor_advice.model.held.parts import trees
from condor_advice.model.held.parts.linear import Line
from condor_advice.model.held.rule_scores import rule_priors
from condor_advice.model.infer import LstmNetwork, TreeEnsemble, sigmoid
from condor_advice.model.metrics import OF_PROBABILITIES, figures, log_loss
from condor_advice.model.registry import manifest
from condor_advice.model.tracking import Tracker
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.tensors import TensorSpec

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Say = Callable[[str], None]

PARTS = ("rules", "linear", "trees", "lstm")
_WAIT = "wait"  # beside the parts' names
_ONLY_LEARNED = -1  # in place of a fold's number
# Full propensity weights leave a third of the episodes' worth: enough to put parts together, not
# to train them. Chosen among 0, 1/4 and 1/2 by the weighted log loss out of fold.
_PARTS_POWER = 0.25
_LEAST_WEIGHT = 0.02  # in the stack; a part below it is left out of the model


@dataclass(frozen=True, slots=True)
class HeldSettings:
    """How a model is trained; the seed settles everything that is random."""

    parts: tuple[str, ...] = PARTS
    trees: trees.TreeSettings = field(default_factory=trees.TreeSettings)
    lstm: lstm.LstmSettings = field(default_factory=lstm.LstmSettings)
    feature_sets: tuple[str, ...] = tuple(SETS)  # tried; the better one is kept
    # Both make up for people's choices. Trained on recordings with owners and judged on one
    # in which every hold was released, neither lowers the log loss: off, and reported.
    propensity: bool = False  # weigh labels by how unlikely they were to exist
    repaired_failed: bool = False  # what had to be repaired would not have succeeded as it was
    folds: int = 4  # in time, where there is one access point only
    later: float = 0.25  # share of the training episodes that early stopping looks at
    risk: float = conformal.RISK
    seed: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for a manifest."""
        return asdict(self)


@dataclass(frozen=True)
class Learned:
    """The parts, trained on all labelled episodes, and what each said out of fold.

    The arrays are over the judged episodes: all that have a label, but for those of sources
    that count little (such as simulated ones), which are only learned from.
    """

    data: HeldData  # the judged episodes
    seen: Observed  # all episodes of the judged sources, with a label or without
    judged: Ints  # where the judged ones are among those
    label: Floats
    weight: Floats
    margins: dict[str, Floats]  # log-odds of each part, out of fold
    feature_set: str
    trees: TreeEnsemble | None
    rates: ReasonRates
    linear: Line | None
    lstm: LstmNetwork | None
    trained: dict[str, Any]  # for people
    data_hash: str
    notes: dict[str, Any]

    def waits(self) -> Floats:
        """Return how much longer than "now" each job stayed on hold, as a logarithm.

        Now is what a quarter of the releases were at the latest. Where the time of the release
        is not known, or was chosen by a repair, it is now.
        """
        seconds = (self.data.released - self.data.time) / 1e6
        known = (self.data.released >= 0) & ~self.data.changed
        if not known.any():
            return np.zeros(len(seconds))
        longer = np.log1p(np.maximum(seconds, 0.0))
        found: Floats = np.where(known, longer - np.quantile(longer[known], 0.25), 0.0)
        return found


@dataclass(frozen=True)
class Trained:
    """A model, and what was found on the way."""

    model: HeldModel
    label: Floats  # of the judged episodes
    p: Floats  # what the model says of them, out of fold and calibrated
    reference: Arrays  # what drift is told by
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
    """Train a model on the labelled episodes; `weight` is what each episode of data counts.

    In the directory `work` the LSTM's state is kept, epoch by epoch, to go on from.
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
    if settings.repaired_failed:
        # In the recordings one in nine would have; to know nothing of them would be worse,
        # since those that are repaired are mostly the hopeless ones.
        data = replace(data, label=np.where(data.changed, 0, data.label).astype(np.int8))
    rows = data.labelled
    label = data.label[rows].astype(np.float64)
    given = np.ones(len(data)) if weight is None else weight
    counts_fully = given >= given.max()
    judged = np.flatnonzero(counts_fully[rows])
    counts = given  # of each episode when the parts are put together
    notes: dict[str, Any] = {}
    if settings.propensity:
        found = propensity.estimate(data, settings.seed)
        counts = given * found.weight
        given = given * found.weight**_PARTS_POWER
        notes["propensity"] = {"roc_auc": found.roc_auc, "effective_share": found.effective}
        say(
            f"labels are foreseen with ROC AUC {found.roc_auc:.2f}; weighted by that, the "
            f"labelled episodes are worth {found.effective:.0%} of their number"
        )
    weight = given[rows] / given[rows][judged].mean()
    counts = counts[rows][judged] / counts[rows][judged].mean()
    fold = np.full(len(rows), _ONLY_LEARNED)
    fold[judged] = folds_of(data, rows[judged], settings.folds)
    training = _Training(data, rows, label, weight, fold, settings, say, work)
    margins: dict[str, Floats] = {}
    if "rules" in settings.parts:
        margins["rules"] = logit(rule_priors(data.features[rows], FEATURE_NAMES))
    chosen, rounds = settings.feature_sets[0], 0
    if "trees" in settings.parts:
        tried = {one: training.out_of_fold_trees(one) for one in settings.feature_sets}
        losses = {
            one: log_loss(label[judged], sigmoid(margin[judged]), weight[judged])
            for one, (margin, _) in tried.items()
        }
        chosen = min(losses, key=lambda one: losses[one])
        margins["trees"], rounds = tried[chosen]
        notes["trees"] = {"log_loss_by_feature_set": losses, "set": chosen, "rounds": rounds}
    line = None
    if "linear" in settings.parts:
        margins["linear"] = training.out_of_fold_line()
        line, _ = training.fit_line(np.arange(len(rows)))
    network = None
    if "lstm" in settings.parts:
        margins["lstm"], epochs = training.out_of_fold_lstm()
        network = training.last_lstm(epochs, tracker, progress)
        notes["lstm"] = {"epochs": epochs}
    ensemble, rates = training.fit_trees(np.arange(len(rows)), chosen, rounds)
    whole = np.flatnonzero(counts_fully)
    return Learned(
        data.take(rows[judged]),
        Observed.of(data).take(whole),
        np.searchsorted(whole, rows[judged]),
        label[judged],
        counts,
        {part: margin[judged] for part, margin in margins.items()},
        chosen,
        ensemble,
        rates,
        line,
        network,
        {
            **data.summary(),
            "from": _second(int(data.time.min())),
            "until": _second(int(data.time.max())),
        },
        data.hash(),
        notes,
    )


def assemble(
    learned: Learned, settings: HeldSettings, parts: Sequence[str], name: str = ""
) -> Trained:
    """Make a model of some of the parts: stack, calibration, abstention and thresholds."""
    label, weight, kin = learned.label, learned.weight, learned.data.kin
    margins = {part: learned.margins[part] for part in parts}
    weights, bias, margin = _stack(margins, learned.waits(), label, weight)
    chosen, losses = calibration.choose(margin, label, weight, kin, settings.seed)
    # What the model says at the hold: of the wait that followed it knows nothing.
    now = stack.combine({part: margins[part] for part in weights}, weights, bias)
    p = chosen(now)
    lines = thresholds.choose(p, label, thresholds.job_costs(learned.data.features, FEATURE_NAMES))
    created = manifest.now()
    model = HeldModel(
        name=name or manifest.new_name(created, learned.data_hash),
        feature_names=SETS[learned.feature_set],
        spec=TensorSpec(max_steps=max(settings.lstm.max_steps, 2)),
        release_above=lines["cost"],
        thresholds=lines,
        trained=learned.trained,
        weights=weights,
        bias=bias,
        centre={part: float(np.average(margins[part], weights=weight)) for part in weights},
        calibration=chosen,
        interval=calibration.fit_interval(p, label, kin),
        abstention=conformal.choose_bounds(p, label, kin, settings.risk),
        trees=learned.trees if "trees" in weights else None,
        columns=_columns(learned.feature_set),
        rates=learned.rates,
        linear=learned.linear if "linear" in weights else None,
        lstm=learned.lstm if "lstm" in weights else None,
    )
    notes = {
        **learned.notes,
        "gains": stack.gains(margins, label, weight, kin, settings.seed),
        "calibration_log_loss": losses,
        "data_hash": learned.data_hash,
        "created": created,
        "weights": weights,
    }
    p = calibration.out_of_fold(chosen.kind, margin, label, weight, kin, settings.seed, now)
    said = np.full(len(learned.seen), np.nan)
    said[learned.judged] = p
    reference = drift.reference(replace(learned.seen, p=said))
    return Trained(model, label, p, reference, notes)


def save(
    trained: Trained, directory: Path, settings: HeldSettings, metrics: dict[str, Any]
) -> manifest.Manifest:
    """Write a trained model and its manifest."""
    directory.mkdir(parents=True, exist_ok=True)
    save_arrays(directory / drift.FILE, trained.reference)
    return held.save(
        trained.model,
        directory,
        {
            "data_hash": trained.notes["data_hash"],
            "created": trained.notes["created"],
            "metrics": metrics,
            "settings": settings.as_dict(),
            "seeds": {
                "all": settings.seed,
                "trees": settings.trees.seed,
                "lstm": settings.lstm.seed,
            },
        },
    )


def validation_figures(trained: Trained) -> dict[str, float]:
    """Return the figures on the episodes that each fold left out, for the manifest."""
    names = ("n_test", "base_rate", *OF_PROBABILITIES, "accuracy")
    return figures(trained.label, trained.p, names)


def _stack(
    parts: dict[str, Floats], waits: Floats, label: Floats, weight: Floats
) -> tuple[dict[str, float], float, Floats]:
    """Fit the stack, without the parts that it would hardly listen to.

    How long people waited before the release is fitted beside the parts and then left out: what
    remains is the answer for a release now. Returns weights, bias, and the log-odds of each
    episode as it was released.
    """
    kept = dict(parts)
    while True:
        weights, bias = stack.fit({**kept, _WAIT: waits}, label, weight)
        patience = weights.pop(_WAIT)
        least = min(weights, key=lambda part: weights[part])
        if weights[least] >= _LEAST_WEIGHT or len(kept) == 1:
            return weights, bias, stack.combine(kept, weights, bias) + patience * waits
        del kept[least]


def _columns(feature_set: str) -> Ints:
    return np.array([FEATURE_NAMES.index(name) for name in SETS[feature_set]], np.int64)


def _second(microseconds: int) -> str:
    return str(np.datetime64(microseconds, "us").astype("datetime64[s]")) + "Z"


# ---- folds ---------------------------------------------------------------------------------


def folds_of(data: HeldData, rows: Ints, count: int) -> Ints:
    """Return which fold each of some rows is in."""
    source = data.source[rows].astype(np.int64)
    sizes = np.bincount(source, minlength=len(data.sources))
    if np.count_nonzero(sizes >= len(rows) / 10) >= 2:
        return np.unique(source, return_inverse=True)[1]
    first = _first_of_kin(data, rows)
    # Kin share the time of the first of them, so that they share the fold.
    borders = np.quantile(first, np.arange(1, count) / count)
    return np.searchsorted(borders, first, side="left")


def later_ones(data: HeldData, rows: Ints, share: float) -> Bools:
    """Tell which rows are the later ones of their source; kin are where the first of them is."""
    found = np.zeros(len(rows), np.bool_)
    for source in np.unique(data.source[rows]).tolist():
        own = np.flatnonzero(data.source[rows] == source)
        first = _first_of_kin(data, rows[own])
        found[own] = first > np.quantile(first, 1.0 - share)
    return found


def _first_of_kin(data: HeldData, rows: Ints) -> Ints:
    """Return for each row when the first of its kin among the rows was held."""
    _, which = np.unique(data.kin[rows], return_inverse=True)
    first = np.full(int(which.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, which, data.time[rows])
    found: Ints = first[which]
    return found


# ---- parts ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Training:
    """The labelled rows of a training; places below are places among these rows."""

    data: HeldData
    rows: Ints
    label: Floats
    weight: Floats
    fold: Ints
    settings: HeldSettings
    say: Say
    states: Path | None = None  # where the LSTM's state is kept

    @property
    def several(self) -> bool:
        """Tell whether the folds are access points."""
        judged = self.fold != _ONLY_LEARNED
        source = self.data.source[self.rows[judged]]
        return len(np.unique(source)) > 1 and all(
            len(np.unique(source[self.fold[judged] == nth])) == 1
            for nth in np.unique(self.fold[judged])
        )

    def folds(self) -> Sequence[tuple[Ints, Ints]]:
        """Return (learned from, left out) for each fold."""
        return [
            (np.flatnonzero(self.fold != nth), np.flatnonzero(self.fold == nth))
            for nth in np.unique(self.fold[self.fold != _ONLY_LEARNED]).tolist()
        ]

    def split(self, places: Ints) -> tuple[Ints, Ints]:
        """Split places into the earlier and the later ones."""
        late = later_ones(self.data, self.rows[places], self.settings.later)
        if len(np.unique(self.label[places[late]])) < 2:
            late = np.arange(len(places)) % 4 == 3  # too few to be choosy
        return places[~late], places[late]

    def rates(self, places: Ints) -> ReasonRates:
        """Learn how reasons ended."""
        table = self.data.features[self.rows[places]]
        return ReasonRates.learn(table, self.label[places], self.weight[places])

    def tree_rows(
        self, places: Ints, feature_set: str, rates: ReasonRates, learned: bool
    ) -> npt.NDArray[np.float32]:
        """Return what the trees look at; where the rates come from the same rows, without kin."""
        table = self.data.features[self.rows[places]]
        more = self.derived(places, rates, learned)
        return np.concatenate((table[:, _columns(feature_set)], more), axis=1)

    def derived(self, places: Ints, rates: ReasonRates, learned: bool) -> npt.NDArray[np.float32]:
        """Return the derived columns."""
        table = self.data.features[self.rows[places]]
        without = None
        if learned:
            kin = self.data.kin[self.rows[places]]
            without = (self.label[places], self.weight[places], kin)
        return derive(table, rates.chances(table, without))

    def amounts(self, places: Ints, rates: ReasonRates, learned: bool) -> npt.NDArray[np.float32]:
        """Return what the linear part looks at."""
        table = self.data.features[self.rows[places]]
        return amount_rows(table, self.derived(places, rates, learned))

    def fit_line(self, places: Ints) -> tuple[Line, ReasonRates]:
        """Fit the linear part on some rows, and the rates that it looks at."""
        rates = self.rates(places)
        rows = self.amounts(places, rates, learned=True)
        return Line.fit(rows, self.label[places], self.weight[places]), rates

    def out_of_fold_line(self) -> Floats:
        """Return the linear part's log-odds out of fold."""
        margin = np.full(len(self.rows), np.nan)
        for kept, left in self.folds():
            line, rates = self.fit_line(kept)
            margin[left] = line.margins(self.amounts(left, rates, learned=False))
        return margin

    def directions(self, feature_set: str) -> list[int]:
        """Return which way each column may speak."""
        return [direction(name) for name in (*SETS[feature_set], *DERIVED)]

    def fit_trees(
        self, places: Ints, feature_set: str, rounds: int
    ) -> tuple[TreeEnsemble | None, ReasonRates]:
        """Train trees on some rows, and the rates that they look at."""
        rates = self.rates(places)
        if not rounds:
            return None, rates
        ensemble = trees.fit(
            self.tree_rows(places, feature_set, rates, learned=True),
            self.label[places],
            self.weight[places],
            rounds,
            self.settings.trees,
            self.directions(feature_set),
        )
        return ensemble, rates

    def out_of_fold_trees(self, feature_set: str) -> tuple[Floats, int]:
        """Return the log-odds out of fold, and the number of rounds that was best on later rows.

        The number is one for all folds, since each alone has few episodes to find it on.
        """
        curves = []
        for kept, left in self.folds():
            # Another access point tells best when to stop; a single one's later episodes do.
            early, late = (kept, left) if self.several else self.split(kept)
            rates = self.rates(early)
            rows = [
                self.tree_rows(early, feature_set, rates, learned=True),
                self.tree_rows(late, feature_set, rates, learned=False),
            ]
            curves.append(
                trees.loss_by_round(
                    (rows[0], self.label[early], self.weight[early]),
                    (rows[1], self.label[late], self.weight[late]),
                    self.settings.trees,
                    self.directions(feature_set),
                )
            )
        rounds = 1 + int(np.argmin(np.mean(curves, axis=0)))
        margin = np.full(len(self.rows), np.nan)
        for kept, left in self.folds():
            ensemble, rates = self.fit_trees(kept, feature_set, rounds)
            assert ensemble is not None
            margin[left] = ensemble.predict_margin(
                self.tree_rows(left, feature_set, rates, learned=False)
            )
        self.say(f"trees on the {feature_set} features: {rounds} rounds")
        return margin, rounds

    def out_of_fold_lstm(self) -> tuple[Floats, int]:
        """Return the log-odds out of fold, and the median of the best numbers of epochs."""
        margin = np.full(len(self.rows), np.nan)
        epochs = []
        for nth, (kept, left) in enumerate(self.folds()):
            early, late = self.split(kept)
            trained = lstm.train(
                self.data.take(self.rows[early]),
                self.data.take(self.rows[late]),
                self.settings.lstm,
                self.states and self.states / f"lstm-fold-{nth}.state",
                weight=self.weight[early],
            )
            epochs.append(trained.best_epoch)
            unseen = self.data.take(self.rows[left])
            margin[left] = trained.network.margins(unseen.steps, unseen.offsets)
        self.say(f"LSTM: best after {', '.join(map(str, epochs))} epochs")
        return margin, int(np.median(epochs))

    def last_lstm(self, epochs: int, tracker: Tracker | None, progress: bool) -> LstmNetwork:
        """Train on all rows for as many epochs as were best before."""
        everything = self.data.take(self.rows)
        settings = replace(self.settings.lstm, epochs=epochs, patience=0, keep="last")
        late = np.flatnonzero(
            later_ones(everything, np.arange(len(everything)), self.settings.later)
        )
        return lstm.train(
            everything,
            everything.take(late),
            settings,
            self.states and self.states / "lstm.state",
            weight=self.weight,
            tracker=tracker,
            progress=progress,
        ).network
