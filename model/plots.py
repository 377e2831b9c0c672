"""Plots of a model's quality, as PNG files, from plain arrays.

matplotlib is imported with the first plot, and needs no display.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError
from condor_advice.model import metrics
from condor_advice.model.metrics import curve, pr_auc, reliability, roc_auc

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

BARS = 20  # more would be hard to read
_GOOD, _BAD, _GREY = "#2471a3", "#c0392b", "#b0b0b0"


@dataclass(frozen=True, slots=True)
class PlotData:
    """Predictions for episodes with a known outcome, as the plots need them."""

    label: Floats  # 1 if a release led to success
    p: Mapping[str, Floats]  # predictions by model; the plots are about the first
    reason: Sequence[str]  # the hold reason's family, for each episode
    release_above: float = 0.5
    importance: Mapping[str, float] = field(default_factory=dict)  # by feature, largest first
    risk: float | None = None  # the promised share of wrong confident answers

    @property
    def own(self) -> Floats:
        """The predictions of the model that the plots are about."""
        return next(iter(self.p.values()))


def draw_all(directory: Path, judged: PlotData) -> dict[str, Path]:
    """Draw every plot into a directory; return the files by caption."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {
        "ROC": roc(directory / "roc.png", judged.label, judged.p),
        "Precision and recall": precision_recall(
            directory / "precision-recall.png", judged.label, judged.p
        ),
        "Reliability": draw_reliability(directory / "reliability.png", judged.label, judged.own),
        "Coverage and risk": coverage_risk(
            directory / "coverage-risk.png", judged.label, judged.p, judged.risk
        ),
        "Right and wrong by hold reason": confusion_by_reason(
            directory / "confusion-by-reason.png",
            judged.label,
            judged.own >= judged.release_above,
            judged.reason,
        ),
    }
    if judged.importance:
        files["Importance"] = importance(directory / "importance.png", judged.importance)
    return files


def roc(path: Path, label: Floats, answers: Mapping[str, Floats]) -> Path:
    """Draw ROC curves of one or more models."""
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(5.5, 5))
    for name, p in answers.items():
        points = curve(label, p)
        axes.plot(
            np.r_[0.0, points["false_positive_rate"]],
            np.r_[0.0, points["recall"]],
            label=f"{name}: {roc_auc(label, p):.3f}",
        )
    axes.plot([0, 1], [0, 1], linestyle=":", color=_GREY)
    axes.set(xlabel="false positive rate", ylabel="true positive rate", title="ROC (area)")
    axes.legend(loc="lower right", fontsize=8)
    return save(figure, path)


def precision_recall(path: Path, label: Floats, answers: Mapping[str, Floats]) -> Path:
    """Draw precision against recall of one or more models."""
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(5.5, 5))
    for name, p in answers.items():
        points = curve(label, p)
        axes.step(
            np.r_[0.0, points["recall"]],
            np.r_[points["precision"][:1], points["precision"]],
            where="pre",
            label=f"{name}: {pr_auc(label, p):.3f}",
        )
    axes.axhline(float(np.mean(label)), linestyle=":", color=_GREY)
    axes.set(
        xlabel="recall", ylabel="precision", title="Precision and recall (average precision)",
        ylim=(0, 1.02),
    )  # fmt: skip
    axes.legend(loc="lower left", fontsize=8)
    return save(figure, path)


def draw_reliability(path: Path, label: Floats, p: Floats, bins: int = 10) -> Path:
    """Draw predicted against observed success, in bins of equally many episodes."""
    plot = pyplot()
    parts = reliability(label, p, bins)
    figure, (above, below) = plot.subplots(
        2, 1, figsize=(5.5, 6), height_ratios=(4, 1), sharex=True
    )
    above.plot([0, 1], [0, 1], linestyle=":", color=_GREY)
    happened = np.array([part["happened"] for part in parts])
    size = np.array([part["jobs"] for part in parts])
    above.errorbar(
        [part["said"] for part in parts],
        happened,
        yerr=1.96 * np.sqrt(happened * (1 - happened) / np.maximum(size, 1)),
        marker="o",
        capsize=2,
    )
    above.set(ylabel="share that succeeded", title="Reliability", ylim=(-0.02, 1.02))
    below.hist(p, bins=20, range=(0, 1), color=_GREY)
    below.set(xlabel="predicted probability", ylabel="episodes")
    return save(figure, path)


def coverage_risk(
    path: Path, label: Floats, answers: Mapping[str, Floats], risk: float | None = None
) -> Path:
    """Draw the share of wrong answers against coverage, most certain answers first."""
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(5.5, 4.5))
    for name, p in answers.items():
        covered, wrong = metrics.coverage_risk(p, label)
        axes.plot(covered, wrong, label=name)
    if risk is not None:
        axes.axhline(risk, linestyle=":", color=_BAD)
    axes.set(
        xlabel="share of holds answered", ylabel="share of answers that are wrong",
        title="Coverage and risk", xlim=(0, 1),
    )  # fmt: skip
    axes.legend(fontsize=8)
    return save(figure, path)


def confusion_by_reason(path: Path, label: Floats, release: Bools, reason: Sequence[str]) -> Path:
    """Draw the confusion matrix of each hold reason as a bar."""
    plot = pyplot()
    names, place = np.unique(np.asarray(reason, dtype=np.str_), return_inverse=True)
    good = label > 0.5
    kinds = (
        ("released, succeeded", release & good, _GOOD),
        ("not released, would have failed", ~release & ~good, "#7fb3d5"),
        ("released, failed", release & ~good, _BAD),
        ("not released, would have succeeded", ~release & good, "#e6b0aa"),
    )
    total = np.bincount(place, minlength=len(names))
    order = np.argsort(-total, kind="stable")[:BARS][::-1]
    figure, axes = plot.subplots(figsize=(8, 0.32 * len(order) + 1.8))
    left = np.zeros(len(order))
    for words, which, colour in kinds:
        share = np.bincount(place[which], minlength=len(names))[order] / total[order]
        axes.barh(range(len(order)), share, left=left, color=colour, label=words)
        left += share
    rows = [f"{names[bar]} ({total[bar]:,})".replace("_", " ") for bar in order]
    axes.set_yticks(range(len(order)), rows, fontsize=8)
    axes.set(xlabel="share of the reason's episodes", xlim=(0, 1))
    axes.legend(ncols=2, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return save(figure, path)


def importance(path: Path, values: Mapping[str, float]) -> Path:
    """Draw the features with the largest effects."""
    plot = pyplot()
    names = list(values)[:BARS][::-1]
    figure, axes = plot.subplots(figsize=(8, 0.3 * len(names) + 1))
    axes.barh(range(len(names)), [values[name] for name in names], color=_GOOD)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xlabel("mean |share of the log-odds|")
    return save(figure, path)


def over_time(
    path: Path,
    series: Mapping[str, Sequence[tuple[datetime, float]]],
    limits: Mapping[str, float],
) -> Path:
    """Draw signals of drift over time, one below the other, with their limits."""
    plot = pyplot()
    figure, axes = plot.subplots(
        len(series), 1, figsize=(8, 1.9 * len(series) + 0.6), sharex=True, squeeze=False
    )
    for axis, (name, points) in zip(axes[:, 0], series.items(), strict=True):
        axis.plot([at for at, _ in points], [value for _, value in points], marker=".")
        if np.isfinite(limits[name]):
            axis.axhline(limits[name], linestyle=":", color=_BAD)
        axis.set(ylabel=name.replace("_", " "), ylim=(0, None))
    figure.autofmt_xdate()
    return save(figure, path)


def pyplot() -> Any:
    """Return matplotlib's pyplot, set to draw to files only."""
    try:
        import matplotlib
    except ImportError:
        raise AdviceError(
            "plots need matplotlib, which is not installed; install it with "
            "`pip install 'condor-advice[train]'`"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plot

    return plot


def save(figure: Any, path: Path) -> Path:
    """Write a figure to a file and close it."""
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    pyplot().close(figure)
    return path
