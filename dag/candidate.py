"""Train a whole model with the winning trial's settings, and register it as a candidate.

A trial trains only the network. The model that gives advice combines rules, trees and network,
weighted and calibrated together (model/held/train.py). So the whole model is trained once more
with the winner's settings, on everything but the test split.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from condor_advice.dag.nodes import settings_of
from condor_advice.dag.plan import SweepPlan
from condor_advice.dag.state import Trial
from condor_advice.model.held import train as held_train
from condor_advice.model.held.data import HeldData
from condor_advice.model.held.model import HeldModel
from condor_advice.model.held.parts import Inputs
from condor_advice.model.metrics import OF_EPISODES, figures
from condor_advice.model.registry import manifest
from condor_advice.preprocess.holds.labels import NO_LABEL


def can_serve(trial: Trial) -> bool:
    """Return whether advice can use this trial's network: not if it needs neighbours' steps."""
    return not trial.parameters.get("neighbours", 0)


def lineage(plan: SweepPlan, trial: Trial) -> dict[str, Any]:
    """Return the origin of a winning trial, for its manifest."""
    return {
        "name": plan.name,
        "directory": plan.directory.name,
        "created": plan.created,
        "method": plan.method,
        "trials": plan.trials,
        "trial": trial.number,
        "parameters": dict(trial.parameters),
        "metric": {
            "name": plan.metric.name,
            "goal": plan.metric.goal,
            "value": trial.best(plan.metric),
        },
        "seeds": list(plan.seeds),
        "search_seed": plan.search_seed,
        "sources": [f"{source.kind}: {Path(source.value).name}" for source in plan.sources],
    }


def build(data_file: Path, task: Mapping[str, Any], lineage: Mapping[str, Any], out: Path) -> None:
    """Train the model and write it with its manifest; `task` is the trial's task.

    The test split is used only once, for the manifest's figures.
    """
    whole, rows = HeldData.load_with_parts(data_file)
    settings = held_train.HeldSettings(parts=held_train.PART_NAMES, seed=int(task["seeds"][0]))
    settings = replace(settings, by_part={"lstm": settings_of(dict(task))})
    settings = settings.change_all(seed=settings.seed, threads=int(task["threads"]))
    trained = held_train.train(whole.take(before_test(whole, rows)), settings)
    metrics = {
        "validation": held_train.validation_figures(trained),
        "test": test_figures(trained.model, whole.take(rows["test"])),
    }
    held_train.save(trained, out, settings, metrics)
    written = manifest.read(out).manifest
    manifest.write(
        out,
        replace(
            written,
            data_hash=whole.hash(),
            settings=dict(written.settings) | {"sweep": dict(lineage)},
        ),
    )


def before_test(data: HeldData, rows: Mapping[str, Any]) -> Any:
    """Return the rows to train on: the train and validation splits, and unlabelled episodes.

    Unlabelled episodes show which holds get released at all. Those after the test split begins
    are left out, and so are labels that were still open then.
    """
    chosen = [rows["train"], rows["validation"]]
    for index in range(len(data.sources)):
        own = data.source == index
        test = rows["test"][own[rows["test"]]]
        border = data.time[test].min() if len(test) else np.iinfo(np.int64).max
        chosen.append(np.flatnonzero(own & (data.label == NO_LABEL) & (data.time < border)))
    return np.sort(np.concatenate(chosen))


def test_figures(model: HeldModel, data: HeldData) -> dict[str, float]:
    """Return a model's figures on episodes that it has not seen."""
    label = data.label.astype(np.float64)
    p = model.predict(Inputs.of(data)).p_success
    return figures(label, p, OF_EPISODES)


def build_listed(inputs: Path, out: Path) -> None:
    """Build the candidate that `winner.json` describes, if there is one."""
    winner = json.loads((inputs / "winner.json").read_text())
    if winner:
        build(inputs / winner["data"], winner["task"], winner["lineage"], out)
