"""Evaluate models for held jobs: every figure, computed over a whole test set.

Intervals come from a bootstrap over clusters, since episodes of one cluster share their fate.
Differences between two models use a paired bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model import metrics, plots
from condor_advice.model.held.baselines import BASELINES, base_rate
from condor_advice.model.held.data import HeldData
from condor_advice.model.held.model import HeldModel
from condor_advice.model.held.parts import Inputs
from condor_advice.model.held.parts.trees import TreePart
from condor_advice.model.held.rule_scores import rule_chances, rule_releases
from condor_advice.model.held.thresholds import Costs, job_costs
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.templates import FAMILIES

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

COVERAGE_RISK = 0.05


@dataclass(frozen=True)
class Judged:
    """A test set: labels, clusters, costs, and the rules' decisions."""

    label: Floats
    kin: Ints
    costs: Costs
    rules_release: Bools
    rules_p: Floats

    @classmethod
    def of(cls, data: HeldData) -> Judged:
        """Build it from episodes that all have a label."""
        return cls(
            (data.label == 1).astype(np.float64),
            data.kin,
            job_costs(data.features, FEATURE_NAMES),
            rule_releases(data.features, FEATURE_NAMES),
            rule_chances(data.features, FEATURE_NAMES),
        )

    def draws(self, rounds: int, seed: int) -> list[Ints]:
        """Return the rows of each bootstrap round, drawn by whole clusters."""
        rng = np.random.default_rng(seed)
        distinct, which = np.unique(self.kin, return_inverse=True)
        order = np.argsort(which, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(which))[:-1])
        return [
            np.concatenate([members[nth] for nth in rng.integers(0, len(distinct), len(distinct))])
            for _ in range(rounds)
        ]


def figures(
    judged: Judged, p: Floats, threshold: float, rows: Ints | None = None
) -> dict[str, float]:
    """Return the figures of one model's predictions."""
    rows = np.arange(len(p)) if rows is None else rows
    label, predicted = judged.label[rows], p[rows]
    costs = Costs(judged.costs.failed_release[rows], judged.costs.wrong_remove[rows])
    return {
        # Accuracy is that of the likelier outcome; the threshold is for releases.
        **metrics.figures(label, predicted, (*metrics.OF_PROBABILITIES, "accuracy")),
        "f1": metrics.f1(label, predicted, threshold),
        "coverage_at_5_percent_risk": metrics.coverage_at(predicted, label, COVERAGE_RISK),
        "regret_cpu_hours": float(np.sum(costs.of(predicted >= threshold, label))),
    }


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return the central interval of bootstrap values."""
    tail = (1.0 - level) / 2.0
    low, high = np.nanquantile(np.array(values, float), [tail, 1.0 - tail])
    return float(low), float(high)


def with_intervals(
    judged: Judged, p: Floats, threshold: float, draws: Sequence[Ints]
) -> dict[str, dict[str, Any]]:
    """Return each figure as {"value", "interval"}."""
    whole = figures(judged, p, threshold)
    drawn = [figures(judged, p, threshold, rows) for rows in draws]
    return {
        name: {"value": value, "interval": interval([figure[name] for figure in drawn])}
        for name, value in whole.items()
    }


def compare(
    judged: Judged,
    better: Floats,
    than: Floats,
    draws: Sequence[Ints],
    measure: Callable[[Floats, Floats], float],
    relative: bool = False,
) -> dict[str, Any]:
    """Return how far one model's figure is above another's, by a paired bootstrap."""

    def gap(rows: Ints) -> float:
        first, second = (measure(judged.label[rows], p[rows]) for p in (better, than))
        return (first - second) / (second if relative else 1.0)

    return {
        "value": gap(np.arange(len(better))),
        "interval": interval([gap(rows) for rows in draws]),
    }


def regrets(judged: Judged, decisions: Mapping[str, Bools]) -> dict[str, float]:
    """Return the CPU hours that decisions lose, compared with an oracle."""
    everything = np.ones(len(judged.label), bool)
    fixed = {
        "always release": everything,
        "always remove": ~everything,
        "rules": judged.rules_release,
        "oracle": judged.label > 0,
    }
    return {
        name: float(np.sum(judged.costs.of(released, judged.label)))
        for name, released in {**fixed, **decisions}.items()
    }


def with_the_rules(judged: Judged, p: Floats, sure: Bools) -> Floats:
    """Return the model's answers where it is sure, and the rules' where it abstains."""
    return np.where(sure, p, judged.rules_p)


def abstention(judged: Judged, p: Floats, sure: Bools, model: HeldModel) -> dict[str, float]:
    """Return how often the model answers, and how often those answers are wrong."""
    wrong = (p[sure] >= model.abstention.succeeds_from) != (judged.label[sure] > 0)
    return {
        "risk_promised": model.abstention.risk,
        "coverage": float(np.mean(sure)) if len(sure) else 0.0,
        "wrong_among_confident": float(np.mean(wrong)) if len(wrong) else 0.0,
        "confident": float(np.sum(sure)),
    }


def evaluate_baselines(
    data: HeldData, rounds: int = 200, seed: int = 0
) -> dict[str, dict[str, dict[str, Any]]]:
    """Evaluate the baselines on these episodes; they know only the base rate."""
    data = data.take(data.labelled)
    judged = Judged.of(data)
    draws = judged.draws(rounds, seed)
    rate = base_rate(data)
    return {
        name: with_intervals(judged, baseline(data, data), rate, draws)
        for name, baseline in BASELINES.items()
    }


def importances(model: HeldModel, data: HeldData, most: int = 200) -> dict[str, float]:
    """Return the mean absolute SHAP value of each feature over some episodes, largest first."""
    trees = model.parts.get("trees")
    if not isinstance(trees, TreePart):
        return {}
    rows = np.linspace(0, len(data) - 1, min(most, len(data))).astype(np.int64)
    prepared = model.prepare(Inputs.of(data.take(rows)))
    shares = [trees.shares(row) for row in trees.rows(prepared)]
    means = (
        np.mean([np.abs([*share.values()]) for share in shares], axis=0) * model.weights["trees"]
    )
    named = zip(shares[0], means.tolist(), strict=True)
    return dict(sorted(named, key=lambda entry: -entry[1]))


def pictured(model: HeldModel, data: HeldData) -> plots.PlotData:
    """Return what the plots of a model show, from labelled episodes."""
    label = (data.label == 1).astype(np.float64)
    family = np.nan_to_num(data.features[:, FEATURE_NAMES.index("hold_family")]).astype(int)
    answers = model.predict(Inputs.of(data))
    return plots.PlotData(
        label,
        {
            model.name: answers.p_success,
            "rules": rule_chances(data.features, FEATURE_NAMES),
            "template rate": BASELINES["template rate"](data, data),
        },
        [FAMILIES[index] for index in family.tolist()],
        model.release_above,
        importances(model, data),
        model.abstention.risk,
    )


def evaluate(model: HeldModel, data: HeldData, rounds: int = 200, seed: int = 0) -> dict[str, Any]:
    """Evaluate one model on labelled episodes: all that the command and the card show."""
    data = data.take(data.labelled)
    judged = Judged.of(data)
    answers = model.predict(Inputs.of(data))
    p = answers.p_success
    draws = judged.draws(rounds, seed)
    return {
        "model": model.name,
        "n_test": len(data),
        "clusters": len(np.unique(data.kin)),
        "base_rate": float(np.mean(judged.label)) if len(data) else float("nan"),
        "figures": with_intervals(judged, p, model.thresholds["f1"], draws),
        "abstention": abstention(judged, p, answers.sure, model),
        "regret_cpu_hours": regrets(
            judged,
            {
                "model": p >= model.release_above,
                "model, per job": p >= judged.costs.thresholds(),
            },
        ),
        "thresholds": dict(model.thresholds),
    }
