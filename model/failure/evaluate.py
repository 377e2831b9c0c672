"""Evaluate failure models: split in time, baselines, fixed seeds and intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.workloads.table import JobState, JobTable
from condor_advice.model.failure.model import HorizonModel
from condor_advice.model.failure.train import TrainSettings, train_horizon
from condor_advice.model.metrics import (
    bootstrap,
    curve,
    reliability,
    scores,
    threshold_for_f1,
)
from condor_advice.preprocess.jobs.horizons import (
    Horizon,
    JobDataset,
    JobFeatures,
    Labels,
    TimeSplit,
)

Floats = npt.NDArray[np.float64]

POST_MORTEM_NOTE = (
    "uses run time and CPU time, which are known only after the job has ended: "
    "it describes failures and does not predict them"
)


def evaluate(
    table: JobTable,
    horizons: Sequence[Horizon],
    labels: Labels,
    share: float,
    settings: TrainSettings,
    threshold: str = "f1",
    bootstrap_rounds: int = 200,
    say: Callable[[str], None] = lambda _text: None,
) -> tuple[dict[str, Any], dict[Horizon, tuple[HorizonModel, JobDataset]]]:
    """Train on the past and test on the future; choose nothing on the future.

    Features of later jobs use outcomes as they became known, as a running service would.
    Returns the report, and per horizon the model with its test rows.
    """
    table = table.in_submit_order()
    split = TimeSplit.at_share(table, share)
    maker = JobFeatures.for_table(table.known_at(split.moment), labels)
    datasets = maker.datasets(table, horizons)
    state = table.state
    report: dict[str, Any] = {
        "jobs": len(table),
        "split": share,
        "split_moment": split.moment,
        "seed": settings.seed,
        "trials": settings.trials,
        "bad_lines": len(table.bad_lines),
        "failed_states": sorted(failed.name.lower() for failed in labels.failed),
        "states": {
            kind.name.lower(): int(np.sum(state == kind))
            for kind in JobState
            if np.any(state == kind)
        },
        "horizons": {},
    }
    tested = {}
    for horizon in horizons:
        data = datasets[horizon]
        model = train_horizon(data, split, settings, say)
        future = data.take(split.future(data))
        limit = _threshold(model, threshold)
        probability = model.probability(future)
        figures: dict[str, Any] = scores(future.label, probability, limit).as_dict()
        # Jobs of one day are not independent, so the bootstrap draws days, not jobs.
        figures["intervals"] = bootstrap(
            future.label,
            probability,
            limit,
            np.floor(future.submit / 86400.0),
            settings.seed,
            bootstrap_rounds,
        )
        figures["n_train"] = model.notes["rows"]
        figures["threshold_chosen_by"] = threshold
        figures["baselines"] = baselines(data, split)
        figures["at_half"] = scores(future.label, probability, 0.5).as_dict()
        figures["reliability"] = reliability(future.label, probability)
        figures["validation_roc_auc"] = model.notes["validation_roc_auc"]
        figures["parameters"] = {**model.notes["parameters"], "rounds": model.notes["rounds"]}
        figures["importance"] = importance(model, future)
        figures["seconds"] = model.notes["seconds"]
        if horizon is Horizon.POST_MORTEM:
            figures["note"] = POST_MORTEM_NOTE
        report["horizons"][str(horizon)] = figures
        tested[horizon] = model, future
    return report, tested


def baselines(data: JobDataset, split: TimeSplit) -> dict[str, dict[str, float]]:
    """Return the figures of three rules that need no training.

    `majority` always predicts what most jobs did. `last_outcome` repeats the last known outcome of
    the same user's jobs of the same signature, else of any of the user's. `signature_rate` is
    that signature's failure rate so far, with a threshold chosen on the past.
    """
    past, future = split.past(data), split.future(data)
    base = float(np.mean(data.label[past]))
    label = data.label[future]
    level = "signature" if "signature.fail_last" in data.names else "user_shape"

    def known(feature: str, otherwise: float) -> Floats:
        own = data.column(f"{level}.{feature}").astype(np.float64)
        user = data.column(f"user.{feature}").astype(np.float64)
        values = np.where(np.isfinite(own), own, user)
        return np.where(np.isfinite(values), values, otherwise)

    if f"{level}.fail_last" not in data.names or "user.fail_last" not in data.names:
        return {"majority": scores(label, np.full(len(label), base), 0.5).as_dict()}
    # fail_last halves with every further outcome: at least one half means the last one failed.
    last = (known("fail_last", base) >= 0.5).astype(np.float64)
    rate = known("fail_rate", base)
    return {
        "majority": scores(label, np.full(len(label), base), 0.5).as_dict(),
        "last_outcome": scores(label, last[future], 0.5).as_dict(),
        "signature_rate": scores(
            label, rate[future], threshold_for_f1(data.label[past], rate[past])
        ).as_dict(),
    }


def importance(
    model: HorizonModel,
    data: JobDataset,
    rows: int = 200,
    top: int = 20,
) -> dict[str, float]:
    """Return each feature's mean contribution to the log-odds over some rows, largest first."""
    step = max(1, len(data) // rows)
    chosen = model.select(data)[::step]
    total = np.zeros(len(model.names))
    for row in chosen:
        total += np.abs(model.slope * model.trees.contributions(row, len(model.names))[:-1])
    mean = total / max(1, len(chosen))
    return {model.names[index]: float(mean[index]) for index in np.argsort(-mean)[:top]}


def curves(model: HorizonModel, data: JobDataset) -> dict[str, Floats]:
    """Return precision, recall and false positive rate of a model on test rows."""
    return curve(data.label, model.probability(data))


def _threshold(model: HorizonModel, name: str) -> float:
    """Return a named threshold; compute it from the validation curve if it is not stored."""
    if name in model.thresholds:
        return float(model.thresholds[name])
    kind, _, number = name.partition("_")
    stored = model.notes["curve"]
    values = {key: np.array(stored[key]) for key in stored}
    if kind == "precision":
        good = np.flatnonzero(values["precision"] >= float(number))
        return float(values["threshold"][good[-1]]) if len(good) else 1.0 + 1e-9
    failed = model.notes["failed"] / model.notes["rows"]
    cost = (
        float(number) * failed * (1 - values["recall"])
        + (1 - failed) * values["false_positive_rate"]
    )
    return float(values["threshold"][int(np.argmin(cost))])
