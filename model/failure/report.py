"""Write a report on a failure model: curves, importance, one job's waterfall, profiles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.failure.evaluate import curves
from condor_advice.model.failure.model import HorizonModel
from condor_advice.model.failure.profiles import Profiles
from condor_advice.model.infer import sigmoid
from condor_advice.model.plots import importance, pyplot, save
from condor_advice.preprocess.jobs.horizons import Horizon, JobDataset

WATERFALL_BARS = 12


def write_report(
    directory: Path,
    report: Mapping[str, Any],
    tested: Mapping[Horizon, tuple[HorizonModel, JobDataset]],
    profiles: Profiles | None = None,
) -> list[Path]:
    """Write report.json, a Markdown page and the figures; return the files."""
    directory.mkdir(parents=True, exist_ok=True)
    files = [directory / "report.json", directory / "report.md"]
    files[0].write_text(json.dumps(report, indent=1) + "\n")
    for horizon, (model, data) in tested.items():
        files += [
            _curves(directory, horizon, model, data),
            _reliability(directory, horizon, report["horizons"][str(horizon)]),
            _importance(directory, horizon, report["horizons"][str(horizon)]),
        ]
        riskiest = int(np.argmax(model.probability(data)))
        files.append(
            waterfall(directory / f"{horizon}-job.png", model, model.select(data)[riskiest])
        )
    if profiles is not None:
        files.append(elbow(directory / "profiles-bic.png", profiles))
    files[1].write_text(_page(report, [file.name for file in files[2:]]))
    return files


def waterfall(path: Path, model: HorizonModel, row: npt.NDArray[np.float32]) -> Path:
    """Plot how one job's features move the log-odds of failing from the mean to its own."""
    plot = pyplot()
    reasons = model.reasons(row)
    shown, rest = reasons[:WATERFALL_BARS], reasons[WATERFALL_BARS:]
    steps = [(f"{name} = {value:.3g}", share) for name, value, share in shown]
    steps.append((f"{len(rest)} others", sum(share for _, _, share in rest)))
    total = float(model.slope * model.trees.predict_margin(row)[0] + model.offset)
    at = total - sum(share for _, share in steps)
    figure, axes = plot.subplots(figsize=(8, 0.4 * len(steps) + 1.5))
    for place, (_, share) in enumerate(reversed(steps)):
        axes.barh(place, share, left=at, color="#c0392b" if share > 0 else "#2471a3")
        axes.text(at + share / 2, place, f"{share:+.2f}", ha="center", va="center", fontsize=7)
        at += share
    axes.set_yticks(range(len(steps)), [name for name, _ in reversed(steps)], fontsize=8)
    chance = float(sigmoid(np.array([total]))[0])
    axes.set_xlabel(f"log-odds of failing; ends at {total:.2f}, probability {chance:.2f}")
    return save(figure, path)


def elbow(path: Path, profiles: Profiles) -> Path:
    """Plot the BIC against the number of profiles."""
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(6, 4))
    axes.plot(list(profiles.bic), list(profiles.bic.values()), marker="o")
    axes.axvline(len(profiles.weights), linestyle=":")
    axes.set(xlabel="profiles", ylabel="BIC (lower is better)")
    return save(figure, path)


def _curves(directory: Path, horizon: Horizon, model: HorizonModel, data: JobDataset) -> Path:
    plot = pyplot()
    values = curves(model, data)
    figure, (left, right) = plot.subplots(1, 2, figsize=(10, 4.5))
    left.plot(values["false_positive_rate"], values["recall"])
    left.plot([0, 1], [0, 1], linestyle=":")
    left.set(xlabel="false positive rate", ylabel="recall", title=f"{horizon}: ROC")
    right.plot(values["recall"], values["precision"])
    right.axhline(float(np.mean(data.label)), linestyle=":")
    right.set(xlabel="recall", ylabel="precision", title=f"{horizon}: precision and recall")
    return save(figure, directory / f"{horizon}-curves.png")


def _reliability(directory: Path, horizon: Horizon, found: Mapping[str, Any]) -> Path:
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(5, 5))
    axes.plot([0, 1], [0, 1], linestyle=":")
    axes.plot(
        [part["said"] for part in found["reliability"]],
        [part["happened"] for part in found["reliability"]],
        marker="o",
    )
    axes.set(xlabel="predicted probability", ylabel="share that failed", title=str(horizon))
    return save(figure, directory / f"{horizon}-reliability.png")


def _importance(directory: Path, horizon: Horizon, found: Mapping[str, Any]) -> Path:
    return importance(directory / f"{horizon}-importance.png", found["importance"])


def _page(report: Mapping[str, Any], pictures: Sequence[str]) -> str:
    lines = [
        "# Failure models",
        "",
        f"{report['jobs']} jobs, split at {report['split']}, seed {report['seed']}, "
        f"{report['trials']} trials per search; failed: {', '.join(report['failed_states'])}.",
        "",
        *score_table(report),
        "",
    ]
    lines += [f"![{name}]({name})" for name in pictures]
    return "\n".join(lines) + "\n"


def score_table(report: Mapping[str, Any]) -> list[str]:
    """Return the figures of every horizon and its baselines as Markdown."""
    lines = [
        "| horizon | model | ROC AUC | PR AUC | F1 | precision | recall | accuracy | jobs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for horizon, found in report["horizons"].items():
        low, high = found["intervals"]["roc_auc"]
        low_f1, high_f1 = found["intervals"]["f1"]
        lines.append(
            f"| {horizon} | **trees** | {found['roc_auc']:.3f} ({low:.3f} to {high:.3f}) "
            f"| {found['pr_auc']:.3f} | {found['f1']:.3f} ({low_f1:.3f} to {high_f1:.3f}) "
            f"| {found['precision']:.3f} | {found['recall']:.3f} | {found['accuracy']:.3f} "
            f"| {found['n_test']} |"
        )
        for name, rule in found["baselines"].items():
            lines.append(
                f"| {horizon} | {name.replace('_', ' ')} | {rule['roc_auc']:.3f} "
                f"| {rule['pr_auc']:.3f} | {rule['f1']:.3f} | {rule['precision']:.3f} "
                f"| {rule['recall']:.3f} | {rule['accuracy']:.3f} | {rule['n_test']} |"
            )
    return lines
