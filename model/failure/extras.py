"""Studies around a failure model: class imbalance, retraining, sizes, profiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from condor_advice.gather.workloads.table import JobTable
from condor_advice.model.failure.online import prequential
from condor_advice.model.failure.profiles import Profiles, describe, fit_profiles
from condor_advice.model.failure.size_models import evaluate_sizes
from condor_advice.model.failure.sizes import TARGETS, used
from condor_advice.model.failure.study import STUDY_PARAMETERS, STUDY_ROUNDS, compare_ways
from condor_advice.model.failure.train import TrainSettings, fit
from condor_advice.model.infer import TreeEnsemble
from condor_advice.model.metrics import roc_auc
from condor_advice.preprocess.jobs.horizons import (
    Horizon,
    JobDataset,
    JobFeatures,
    Labels,
    TimeSplit,
)


def extras(
    table: JobTable,
    labels: Labels,
    share: float,
    settings: TrainSettings,
    report: dict[str, Any],
    *,
    compare: bool,
    online: bool,
    sizes: bool,
    profiles: bool,
) -> tuple[dict[str, Any], Profiles | None]:
    """Return the studies asked for, all at the submit horizon, and the fitted profiles."""
    table = table.in_submit_order()
    split = TimeSplit.at_share(table, share)
    maker = JobFeatures.for_table(table.known_at(split.moment), labels)
    data = maker.datasets(table, [Horizon.SUBMIT])[Horizon.SUBMIT]
    studies: dict[str, Any] = {}
    fitted = None
    if compare:
        studies["compare"] = compare_ways(data, split, settings)
    if online:
        parameters, rounds = _found_parameters(report)
        studies["online"] = prequential(data, split, parameters, rounds, settings)
    if sizes:
        studies["sizes"] = [
            evaluate_sizes(table, maker, data, target, split, settings.seed, settings.threads)
            for target in TARGETS
            if np.any(np.isfinite(used(table, target)))
        ]
    if profiles:
        fitted = fit_profiles(data, split.past(data), settings.seed)
        studies["profiles"] = {
            "components": len(fitted.weights),
            "bic": {str(number): value for number, value in fitted.bic.items()},
            "table": describe(fitted, data, table, labels),
            "as_features": profiles_as_features(data, fitted, split, settings),
        }
    return studies, fitted


def profiles_as_features(
    data: JobDataset, profiles: Profiles, split: TimeSplit, settings: TrainSettings
) -> dict[str, float]:
    """Return the ROC AUC on the future without and with the profiles as columns."""
    names, columns = profiles.as_features(data)
    with_profiles = replace(
        data, names=(*data.names, *names), features=np.concatenate([data.features, columns], axis=1)
    )
    areas = {}
    past, future = split.past(data), split.future(data)
    for name, variant in (("without", data), ("with", with_profiles)):
        trees = TreeEnsemble.from_xgboost(
            fit(
                variant.features[past],
                variant.label[past],
                STUDY_PARAMETERS,
                STUDY_ROUNDS,
                settings,
            )
        )
        areas[f"roc_auc_{name}"] = roc_auc(
            variant.label[future], trees.predict_margin(variant.features[future])
        )
    return areas


def _found_parameters(report: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the parameters found at submit, or the defaults if there was no search."""
    submit = report["horizons"].get(str(Horizon.SUBMIT))
    if submit is None:
        return STUDY_PARAMETERS, STUDY_ROUNDS
    parameters = dict(submit["parameters"])
    return parameters, int(parameters.pop("rounds"))
