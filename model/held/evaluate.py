"""Every figure about a model for held jobs, each computed once over all of a test set.

Intervals come from drawing whole clusters again, since episodes of one cluster share their
fate; differences between two models are drawn in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model import metrics, plots
from condor_advice.model.held import conformal
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
    """A test set: labels, clusters, costs, and what the rules would do."""

    label: Floats
    kin: Ints
    costs: Costs
    rules_release: Bools
    rules_p: Floats

    @classmethod
    def of(cls, data: HeldData) -> Judged:
        """Take labelled episodes; `data` must have no others."""
        return cls(
            (data.label == 1).astype(np.float64),
            data.kin,
            job_costs(data.features, FEATURE_NAMES),
            rule_releases(data.features, FEATURE_NAMES),
            rule_chances(data.features, FEATURE_NAMES),
        )

    def draws(self, rounds: int, seed: int) -> list[Ints]:
        """Return rows of whole clusters, drawn again and again."""
        rng = np.random.default_rng(seed)
        distinct, which = np.unique(self.kin, return_inverse=True)
        order = np.argsort(which, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(which))[:-1])
        return [
            np.concatenate([members[one] for one in rng.integers(0, len(distinct), len(distinct))])
            for _ in range(rounds)
        ]


def figures(
    judged: Judged, p: Floats, threshold: float, rows: Ints | None = None
) -> dict[str, float]:
    """Return the figures of one model's answers."""
    rows = np.arange(len(p)) if rows is None else rows
    label, said = judged.label[rows], p[rows]
    costs = Costs(judged.costs.failed_release[rows], judged.costs.wrong_remove[rows])
    return {
        # Accuracy is of the likelier outcome; the threshold is about releases.
        **metrics.figures(label, said, (*metrics.OF_PROBABILITIES, "accuracy")),
        "f1": metrics.f1(label, said, threshold),
        "coverage_at_5_percent_risk": conformal.coverage_at(said, label, COVERAGE_RISK),
        "regret_cpu_hours": float(np.sum(costs.of(said >= threshold, label))),
    }


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return the middle part of drawn values."""
    tail = (1.0 - level) / 2.0
    found = np.nanquantile(np.array(values, float), [tail, 1.0 - tail])
    return float(found[0]), float(found[1])


def with_intervals(
    judged: Judged, p: Floats, threshold: float, draws: Sequence[Ints]
) -> dict[str, dict[str, Any]]:
    """Return each figure as {"value", "interval"}."""
    whole = figures(judged, p, threshold)
    drawn = [figures(judged, p, threshold, rows) for rows in draws]
    return {
        name: {"value": value, "interval": interval([one[name] for one in drawn])}
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
    """Return by how much one model's figure is above another's, drawn in pairs."""

    def gap(rows: Ints) -> float:
        one, other = (measure(judged.label[rows], p[rows]) for p in (better, than))
        return (one - other) / (other if relative else 1.0)

    return {
        "value": gap(np.arange(len(better))),
        "interval": interval([gap(rows) for rows in draws]),
    }


def regrets(judged: Judged, decisions: Mapping[str, Bools]) -> dict[str, float]:
    """Return CPU hours lost by decisions, against an oracle that loses none."""
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
    """Return the answers where the model is sure, and the rules' where it abstains."""
    return np.where(sure, p, judged.rules_p)


def abstention(judged: Judged, p: Floats, sure: Bools, model: HeldModel) -> dict[str, float]:
    """Return how often the model answers and how often it is wrong then."""
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
    """Judge the baselines on the same episodes; they know the base rate, and nothing else."""
    data = data.take(data.labelled)
    judged = Judged.of(data)
    draws = judged.draws(rounds, seed)
    rate = base_rate(data)
    return {
        name: with_intervals(judged, one(data, data), rate, draws)
        for name, one in BASELINES.items()
    }


def importances(model: HeldModel, data: HeldData, most: int = 200) -> dict[str, float]:
    """Return the mean size of each feature's SHAP value over some episodes, largest first."""
    trees = model.parts.get("trees")
    if not isinstance(trees, TreePart):
        return {}
    rows = np.linspace(0, len(data) - 1, min(most, len(data))).astype(np.int64)
    prepared = model.prepare(Inputs.of(data.take(rows)))
    shares = [trees.shares(row) for row in trees.rows(prepared.features, prepared.derived)]
    means = np.mean([np.abs([*one.values()]) for one in shares], axis=0) * model.weights["trees"]
    named = zip(shares[0], means.tolist(), strict=True)
    return dict(sorted(named, key=lambda one: -one[1]))


def pictured(model: HeldModel, data: HeldData) -> plots.PlotData:
    """Return labelled episodes with all that the pictures show."""
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
        [FAMILIES[one] for one in family.tolist()],
        model.release_above,
        importances(model, data),
        model.abstention.risk,
    )


def evaluate(model: HeldModel, data: HeldData, rounds: int = 200, seed: int = 0) -> dict[str, Any]:
    """Judge one model on labelled episodes: all that the command and the card show."""
    data = data.take(data.labelled)
    judged = Judged.of(data)
    answers = model.predict(Inputs.of(data))
    p = answers.p_success
    draws = judged.draws(rounds, seed)
    found: dict[str, Any] = {
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
    return found
