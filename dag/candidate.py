"""Make a whole model around the winning trial's network, and register it as a candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from condor_advice.dag.episodes import load_episodes, load_split
from condor_advice.dag.plan import Plan
from condor_advice.dag.state import Trial
from condor_advice.model import (
    calibration,
    conformal,
    held,
    held_train,
    manifest,
    stack,
    thresholds,
)
from condor_advice.model.held import HeldModel
from condor_advice.model.held_data import HeldData
from condor_advice.model.infer import LstmNetwork
from condor_advice.model.registry import Registry
from condor_advice.preprocess.features import FEATURE_NAMES
from condor_advice.preprocess.tensors import TensorSpec


def can_serve(trial: Trial) -> bool:
    """Whether the advice path could ask this trial's network: it sees no neighbours' steps."""
    return not trial.parameters.get("neighbours", 0)


def register(plan: Plan, trial: Trial, evaluation: Mapping[str, Any], registry: Registry) -> str:
    """Add the winner to the registry; its name there.

    Rules and trees are trained on what the network was trained on, and the parts are weighed
    and calibrated on the validation split, which none of them learned from.
    """
    key = plan.prepared_for(trial.parameters)
    path = plan.prepared_file(key)
    parts = load_split(path)
    whole, _ = load_episodes(path)
    settings = held_train.HeldSettings(parts=("rules", "trees"), seed=plan.seeds[0])
    base = held_train.train(parts["train"], settings)
    arrays_file = plan.trial_directory(trial.number) / "out" / "model.npz"
    network = LstmNetwork.from_arrays(manifest.read_arrays(arrays_file.read_bytes(), arrays_file))
    digest = whole.hash()
    created = manifest.now()
    model = _with_network(base.model, network, parts["validation"], settings)
    model = replace(
        model,
        name=manifest.new_name(created, digest),
        spec=TensorSpec(**plan.prepared[key]),
        trained=whole.summary()
        | {"from": base.model.trained["from"], "until": base.model.trained["until"]},
    )
    directory = plan.directory / "candidate"
    directory.mkdir(exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    manifest.save_arrays(directory / held.LSTM, network.arrays())
    held.save(
        model,
        directory,
        {
            "data_hash": digest,
            "created": created,
            "metrics": _metrics(model, parts) | {"network": dict(evaluation)},
            "settings": {
                "held": settings.as_dict(),
                "sweep": {
                    "name": plan.name,
                    "directory": str(plan.directory),
                    "trial": trial.number,
                    "method": plan.method,
                    "trials": plan.trials,
                    "parameters": dict(trial.parameters),
                    "metric": {"name": plan.metric.name, "value": trial.best(plan.metric)},
                    "sources": [f"{s.kind}: {Path(s.value).name}" for s in plan.sources],
                    "split_hash": parts["train"].hash(),
                },
            },
            "seeds": {"search": plan.search_seed}
            | {f"training_{index}": seed for index, seed in enumerate(plan.seeds)},
        },
    )
    return registry.add(directory)


def _with_network(
    model: HeldModel, network: LstmNetwork, data: HeldData, settings: held_train.HeldSettings
) -> HeldModel:
    """Return the model with a network as one more part, weighed and calibrated anew."""
    label = data.label.astype(np.float64)
    weight = np.ones(len(label))
    margins = model.part_margins(data.features, data.steps, data.offsets)
    margins["lstm"] = network.margins(data.steps, data.offsets)
    weights, bias = stack.fit(margins, label, weight)
    margin = stack.combine(margins, weights, bias)
    chosen, _ = calibration.choose(margin, label, weight, data.kin, settings.seed)
    p = chosen(margin)
    lines = thresholds.choose(p, label, thresholds.job_costs(data.features, FEATURE_NAMES))
    return replace(
        model,
        weights=weights,
        bias=bias,
        centre={part: float(np.mean(values)) for part, values in margins.items()},
        calibration=chosen,
        interval=calibration.fit_interval(p, label, data.kin),
        abstention=conformal.choose_bounds(p, label, data.kin, settings.risk),
        release_above=lines["cost"],
        thresholds=lines,
        lstm=network,
    )


def _metrics(model: HeldModel, parts: Mapping[str, HeldData]) -> dict[str, Any]:
    from condor_advice.model.failure_metrics import pr_auc, roc_auc

    found = {}
    for name in ("validation", "test"):
        data = parts[name]
        label = data.label.astype(np.float64)
        p = model.predict(data.features, data.steps, data.offsets).p_success
        found[name] = {
            "episodes": len(data),
            "log_loss": calibration.log_loss(label, p),
            "roc_auc": roc_auc(label, p),
            "pr_auc": pr_auc(label, p),
            "brier": float(np.mean((p - label) ** 2)),
        }
    return found
