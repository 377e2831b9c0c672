"""The search agrees with W&B's own engine, and learns."""

from __future__ import annotations

import json
import math
import random
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condor_advice.dag.search import (
    KnownTrial,
    next_band,
    propose,
    propose_by_wandb,
    should_stop,
)
from condor_advice.dag.space import Parameter
from condor_advice.dag.sweepfile import Hyperband, Metric

warnings.simplefilter("ignore")
sweeps = pytest.importorskip("sweeps", reason="W&B's own engine is what this compares with")

CONTINUOUS = {
    "uniform": {"min": 0.5, "max": 3.0},
    "q_uniform": {"min": 0.0, "max": 10.0, "q": 0.5},
    "log_uniform": {"min": -4.0, "max": 1.0},
    "log_uniform_values": {"min": 1e-4, "max": 0.3},
    "q_log_uniform": {"min": 0.0, "max": 5.0, "q": 2},
    "q_log_uniform_values": {"min": 1.0, "max": 300.0, "q": 2},
    "inv_log_uniform": {"min": 0.0, "max": 4.0},
    "inv_log_uniform_values": {"min": 0.01, "max": 4.0},
    "normal": {"mu": 1.0, "sigma": 2.0},
    "q_normal": {"mu": 1.0, "sigma": 2.0, "q": 0.25},
    "log_normal": {"mu": -1.0, "sigma": 0.5},
    "q_log_normal": {"mu": 2.0, "sigma": 0.5, "q": 1},
    "beta": {"a": 2.0, "b": 5.0},
    "q_beta": {"a": 0.5, "b": 0.7, "q": 0.05},
}


@pytest.mark.parametrize("kind", CONTINUOUS)
@pytest.mark.parametrize("share", [0.001, 0.2, 0.5, 0.77, 0.999])
def test_distributions_are_those_of_wandbs_engine(kind, share):
    from sweeps.params import HyperParameter

    theirs = HyperParameter("x", {"distribution": kind, **CONTINUOUS[kind]})
    ours = Parameter("x", kind, CONTINUOUS[kind])
    value = float(theirs.ppf(np.float64(share)))
    assert ours.at(share) == pytest.approx(value, rel=1e-6, abs=1e-9)
    if not kind.startswith("q_"):
        assert ours.share(value) == pytest.approx(float(theirs.cdf(value)), abs=1e-6)


@given(share=st.floats(0, 1), kind=st.sampled_from(sorted(CONTINUOUS)))
@settings(max_examples=200, deadline=None)
def test_a_value_lies_at_the_share_it_was_drawn_from(share, kind):
    parameter = Parameter("x", kind, CONTINUOUS[kind])
    value = parameter.at(share)
    assert math.isfinite(value)
    assert 0 <= parameter.share(value) <= 1
    if not kind.startswith("q_"):
        assert parameter.at(parameter.share(value)) == pytest.approx(value, rel=1e-5, abs=1e-9)


def test_choices_keep_their_types_and_probabilities():
    parameter = Parameter(
        "x",
        "categorical_w_probabilities",
        {"values": [1, 1.0, True, "a"], "probabilities": [0.1, 0.2, 0.3, 0.4]},
    )
    draws = random.Random(0)
    drawn = [parameter.at(draws.random()) for _ in range(10_000)]
    counts = [sum(type(d) is type(v) and d == v for d in drawn) for v in (1, 1.0, True, "a")]
    assert counts == pytest.approx([1000, 2000, 3000, 4000], abs=200)
    for value in (1, 1.0, True, "a"):
        back = parameter.at(parameter.share(value))
        assert back == value
        assert type(back) is type(value)


GRID = {
    "a": ("categorical", {"values": [3, 1, 2]}),
    "b": ("int_uniform", {"min": 1, "max": 2}),
    "c": ("q_uniform", {"min": 0.0, "max": 1.0, "q": 0.5}),
    "d": ("constant", {"value": "x"}),
}


def parameters(table: dict[str, tuple[str, dict[str, Any]]]) -> list[Parameter]:
    return [Parameter(name, kind, settings) for name, (kind, settings) in table.items()]


def config(table: dict[str, tuple[str, dict[str, Any]]], method: str) -> dict[str, Any]:
    return {
        "method": method,
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {n: {"distribution": k, **s} for n, (k, s) in table.items()},
    }


def test_a_grid_has_the_order_of_wandbs_and_ends():
    ours: list[KnownTrial] = []
    theirs: list[Any] = []
    while (found := propose("grid", parameters(GRID), ours, len(ours), 0)) is not None:
        ours.append(KnownTrial(len(ours), found))
        theirs.append(sweeps.next_run(config(GRID, "grid"), theirs))
    assert len(ours) == 3 * 2 * 2
    assert sweeps.next_run(config(GRID, "grid"), theirs) is None
    assert [dict(trial.parameters) for trial in ours] == [
        {name: value["value"] for name, value in run.config.items()} for run in theirs
    ]


@given(
    st.lists(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=12), min_size=1, max_size=8),
    st.sampled_from([2.0, 3.0]),
    st.sampled_from([(1, 3, 9), (2, 4, 8), (2, 6)]),
    st.sampled_from(["minimize", "maximize"]),
)
@settings(max_examples=150, deadline=None)
def test_hyperband_stops_the_trials_that_wandbs_engine_stops(histories, eta, bands, goal):
    sign = -1 if goal == "maximize" else 1
    known = [
        KnownTrial(number, {}, dict(enumerate(losses, 1)), running=number == 0)
        for number, losses in enumerate(histories)
    ]
    ours = should_stop(Hyperband(bands, eta), known, 0) is not None
    # W&B counts logged values from 0, as if an untrained network had been logged first.
    runs = [
        sweeps.SweepRun(
            name=str(number),
            state="running" if number == 0 else "finished",
            sampledHistory=[{"loss": sign * v} for v in [max(losses) + 1, *losses]],
        )
        for number, losses in enumerate(histories)
    ]
    import sweeps.hyperband_stopping as theirs

    settings = {
        "method": "random",
        "metric": {"name": "loss", "goal": goal},
        "parameters": {"a": {"values": [1, 2]}},
        "early_terminate": {"type": "hyperband", "min_iter": bands[0], "eta": bands[1] / bands[0]},
    }
    if settings["early_terminate"]["eta"] != eta:
        return  # W&B has one setting for bands and share
    stopped = theirs.hyperband_stop_runs(runs, settings)
    assert ours == bool(stopped)


def test_a_trial_runs_to_its_next_band_and_finally_to_its_end():
    hyperband = Hyperband((2, 6, 18), 3)
    assert [next_band(hyperband, epoch, 10) for epoch in (0, 2, 5, 6, 9)] == [2, 6, 6, 10, 10]
    assert next_band(None, 3, 10) == 10


SPACE = {
    "x": ("uniform", {"min": -2.0, "max": 2.0}),
    "y": ("log_uniform_values", {"min": 1e-4, "max": 1.0}),
    "z": ("categorical", {"values": ["a", "b", "c"]}),
    "k": ("constant", {"value": 7}),
}


def valley(p: dict[str, Any]) -> float:
    """Return a loss that is lowest, 0, at x = 0.7, y = 0.01, z = b."""
    return float(
        (p["x"] - 0.7) ** 2
        + 0.3 * (math.log10(p["y"]) + 2) ** 2
        + {"a": 0.5, "b": 0.0, "c": 1.0}[p["z"]]
    )


def run_search(method: str, seed: int, trials: int = 25) -> float:
    known: list[KnownTrial] = []
    for number in range(trials):
        chosen = propose(method, parameters(SPACE), known, number, seed)
        assert chosen is not None
        assert chosen["k"] == 7
        json.dumps(chosen)
        known.append(KnownTrial(number, chosen, {1: valley(chosen)}))
    return min(valley(dict(trial.parameters)) for trial in known)


def test_bayes_finds_a_valley_that_random_search_does_not():
    bayes = [run_search("bayes", seed) for seed in range(6)]
    blind = [run_search("random", seed) for seed in range(6)]
    assert np.median(bayes) < 0.5 * np.median(blind)


def test_bayes_proposes_other_points_while_trials_run_and_avoids_failures():
    space = parameters({"x": ("uniform", {"min": 0.0, "max": 1.0})})
    done = [
        KnownTrial(i, {"x": x}, {1: (x - 0.6) ** 2}) for i, x in enumerate((0.1, 0.4, 0.8, 1.0))
    ]
    first = propose("bayes", space, done, 9, 0)
    assert first is not None
    running = [*done, KnownTrial(9, first, running=True)]
    second = propose("bayes", space, running, 10, 0)
    assert second is not None
    assert abs(second["x"] - first["x"]) > 0.01
    failed = [*done, *(KnownTrial(20 + i, {"x": 0.5 + i / 50}, failed=True) for i in range(10))]
    third = propose("bayes", space, failed, 30, 0)
    assert third is not None
    assert not 0.5 < third["x"] < 0.69


def test_the_same_question_has_the_same_answer():
    known = [
        KnownTrial(i, {"x": i / 4, "y": 0.01, "z": "a", "k": 7}, {1: 1.0 * i}) for i in range(5)
    ]
    for method in ("random", "bayes"):
        first = propose(method, parameters(SPACE), known, 5, 3)
        assert first == propose(method, parameters(SPACE), known, 5, 3)
        assert first != propose(method, parameters(SPACE), known, 6, 3)


def test_wandbs_engine_can_propose_instead_and_gives_plain_values():
    metric = Metric("loss")
    known = [
        KnownTrial(i, {"x": i / 4, "y": 0.01, "z": "a", "k": 7}, {1: 1.0 + i, 2: 0.5 + i})
        for i in range(5)
    ]
    found = propose_by_wandb(config(SPACE, "bayes"), metric, known, 5, 0)
    assert found is not None
    assert set(found) == set(SPACE)
    assert -2 <= json.loads(json.dumps(found))["x"] <= 2
    assert found == propose_by_wandb(config(SPACE, "bayes"), metric, known, 5, 0)
