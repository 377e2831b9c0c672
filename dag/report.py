"""A sweep's report: one self-contained HTML page, and its plots as PNG files."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from condor_advice.dag.plan import SweepPlan, trial_name
from condor_advice.dag.scripts import best_trials
from condor_advice.dag.state import Trial, TrialState
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.files import replace_file
from condor_advice.model.html_report import Section, page

MIN_RANKED_TRIALS = 8  # fewer trials do not show the importance of a parameter
MOST_LISTED = 50  # trials in the table


def write_report(
    plan: SweepPlan,
    trials: Sequence[Trial],
    evaluation: Sequence[Mapping[str, Any]] = (),
    facts: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write the report into the sweep's directory; return the files written."""
    directory = plan.report
    directory.mkdir(exist_ok=True)
    tried = [trial for trial in trials if trial.best(plan.metric) is not None]
    pictures: dict[str, bytes] = {}
    if tried:
        pictures["learning_curves"] = _learning_curves(plan, tried)
    varied = [p.name for p in plan.parameters if not p.is_constant]
    if len(tried) >= 2 and varied:
        pictures["parallel_coordinates"] = _parallel_coordinates(plan, tried, varied)
    weights = importance(plan, tried)
    if weights:
        pictures["importance"] = _importance_bars(weights)
    files = []
    for name, data in pictures.items():
        path = directory / f"{name}.png"
        path.write_bytes(data)
        files.append(path)
    index = directory / "index.html"
    replace_file(index, _page(plan, trials, evaluation, weights, pictures, facts or {}))
    table = directory / "trials.json"
    replace_file(table, json.dumps([_row(plan, trial) for trial in trials], indent=1) + "\n")
    return [index, *files, table]


def _row(plan: SweepPlan, trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "state": str(trial.state),
        "best": trial.best(plan.metric),
        "epochs": trial.epoch,
        "runs": trial.runs,
        "reason": trial.reason,
        "parameters": dict(trial.parameters),
    }


def importance(plan: SweepPlan, tried: Sequence[Trial]) -> dict[str, dict[str, float]]:
    """Return each parameter's importance, from a random forest, and its correlation.

    As W&B shows them: importances add up to 1, and the correlation is with the metric. Return
    nothing if there are too few trials.
    """
    varied = [p for p in plan.parameters if not p.is_constant]
    rows = [t for t in tried if t.state in (TrialState.FINISHED, TrialState.STOPPED)]
    if len(rows) < MIN_RANKED_TRIALS or not varied:
        return {}
    import numpy as np
    from sklearn.ensemble import RandomForestRegressor

    x = np.array([[p.share(trial.parameters[p.name]) for p in varied] for trial in rows])
    y = np.array([trial.best(plan.metric) for trial in rows], dtype=float)
    if y.std() == 0:
        return {}
    forest = RandomForestRegressor(200, random_state=0, n_jobs=1).fit(x, y)
    weights = {}
    for index, parameter in enumerate(varied):
        column = x[:, index]
        moves = column.std() > 0
        weights[parameter.name] = {
            "importance": float(forest.feature_importances_[index]),
            "correlation": float(np.corrcoef(column, y)[0, 1]) if moves else 0.0,
        }
    return dict(sorted(weights.items(), key=lambda item: -item[1]["importance"]))


# ---- plots ----------------------------------------------------------------------------------


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise AdviceError(
            "the report needs matplotlib; pip install 'condor-advice[train]'"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()


def _colours(plan: SweepPlan, tried: Sequence[Trial]) -> dict[int, Any]:
    """Return a colour for each trial; darker is better."""
    from matplotlib import colormaps

    ranked = sorted(tried, key=lambda t: plan.metric.loss(t.best(plan.metric) or 0.0))
    last = max(len(ranked) - 1, 1)
    return {t.number: colormaps["viridis"](0.9 * place / last) for place, t in enumerate(ranked)}


def _learning_curves(plan: SweepPlan, tried: Sequence[Trial]) -> bytes:
    figure = _figure(8, 4)
    axes = figure.subplots()
    colours = _colours(plan, tried)
    best = {t.number for t in best_trials(plan, list(tried), also_paused=True)[:5]}
    for trial in tried:
        rows = sorted(trial.losses(plan.metric).items())
        axes.plot(
            [epoch for epoch, _ in rows],
            [plan.metric.loss(loss) for _, loss in rows],
            color=colours[trial.number],
            marker="x" if trial.state is TrialState.STOPPED else ".",
            linewidth=2 if trial.number in best else 0.8,
            label=trial_name(trial.number) if trial.number in best else None,
        )
    axes.set_xlabel("epoch (x: stopped early)")
    axes.set_ylabel(plan.metric.name)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="best", fontsize=8)
    return _png(figure)


def _parallel_coordinates(plan: SweepPlan, tried: Sequence[Trial], varied: list[str]) -> bytes:
    figure = _figure(max(6.0, 1.6 * (len(varied) + 1)), 4)
    axes = figure.subplots()
    colours = _colours(plan, tried)
    by_name = {p.name: p for p in plan.parameters}
    values = [trial.best(plan.metric) or 0.0 for trial in tried]
    low, high = min(values), max(values)
    for trial in sorted(tried, key=lambda t: -plan.metric.loss(t.best(plan.metric) or 0.0)):
        shares = [by_name[name].share(trial.parameters[name]) for name in varied]
        end = ((trial.best(plan.metric) or 0.0) - low) / ((high - low) or 1.0)
        axes.plot(range(len(varied) + 1), [*shares, end], color=colours[trial.number], alpha=0.8)
    for place, name in enumerate(varied):
        parameter = by_name[name]
        choices = parameter.choices()
        shown = choices if choices and len(choices) <= 6 else None
        marks = (
            [(parameter.share(value), value) for value in shown]
            if shown
            else [(share, parameter.at(share)) for share in (0.02, 0.5, 0.98)]
        )
        axes.axvline(place, color="0.6", linewidth=0.8)
        for share, value in marks:
            text = f"{value:.3g}" if isinstance(value, float) else str(value)
            axes.text(place, share, f" {text}", fontsize=7, va="center")
    axes.axvline(len(varied), color="0.6", linewidth=0.8)
    for end, value in ((0, low), (1, high)):
        axes.text(len(varied), end, f" {value:.4g}", fontsize=7, va="center")
    axes.set_xticks(range(len(varied) + 1), [*varied, plan.metric.name])
    axes.set_yticks([])
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    return _png(figure)


def _importance_bars(weights: Mapping[str, Mapping[str, float]]) -> bytes:
    figure = _figure(7, 0.6 + 0.4 * len(weights))
    axes = figure.subplots()
    names = list(weights)[::-1]
    colours = ["#2f7d4f" if weights[n]["correlation"] >= 0 else "#b3452c" for n in names]
    axes.barh(names, [weights[name]["importance"] for name in names], color=colours)
    axes.set_xlabel("importance (green: the metric rises with it, red: it falls)")
    return _png(figure)


# ---- the page -------------------------------------------------------------------------------


def _page(
    plan: SweepPlan,
    trials: Sequence[Trial],
    evaluation: Sequence[Mapping[str, Any]],
    weights: Mapping[str, Mapping[str, float]],
    pictures: Mapping[str, bytes],
    facts: Mapping[str, Any],
) -> str:
    sections = [Section("Summary", facts=_summary(plan, trials, facts))]
    ranked = best_trials(plan, list(trials), also_paused=True)
    if ranked:
        sections.append(_ranking(plan, ranked))
    titles = {
        "learning_curves": "Learning curves",
        "parallel_coordinates": "Parallel coordinates",
        "importance": "Importance of parameters",
    }
    sections += [Section(titles[name], pictures={titles[name]: p}) for name, p in pictures.items()]
    if not weights:
        text = f"Too few trials have finished; at least {MIN_RANKED_TRIALS} are needed."
        sections.append(Section(titles["importance"], [text]))
    if evaluation:
        sections.append(_evaluation(evaluation))
    failed = [trial for trial in trials if trial.state is TrialState.FAILED]
    if failed:
        items = [f"{trial_name(trial.number)}: {trial.reason}" for trial in failed]
        sections.append(Section("Failed trials", items=items))
    return page(f"Sweep {plan.name}", sections)


def _summary(
    plan: SweepPlan, trials: Sequence[Trial], facts: Mapping[str, Any]
) -> Mapping[str, object]:
    counts = {state: sum(t.state is state for t in trials) for state in TrialState}
    return {
        "search": f"{plan.method} for the {plan.metric.goal[:3]}imum of {plan.metric.name}",
        "trials": ", ".join(f"{count} {state}" for state, count in counts.items() if count),
        "data": ", ".join(source.value for source in plan.sources),
        "seeds": ", ".join(map(str, plan.seeds)),
        "planned": plan.created,
        **facts,
    }


def _ranking(plan: SweepPlan, ranked: Sequence[Trial]) -> Section:
    names = [p.name for p in plan.parameters]
    rows: list[list[object]] = [["trial", plan.metric.name, "epochs", "state", *names]]
    for trial in ranked[:MOST_LISTED]:
        value = f"{trial.best(plan.metric):.5g}"
        parameters = [_short(trial.parameters[name]) for name in names]
        rows.append([trial_name(trial.number), value, trial.epoch, trial.state, *parameters])
    more = [f"The best {MOST_LISTED} of {len(ranked)}."] if len(ranked) > MOST_LISTED else []
    return Section("Trials", more, [rows], best_first=True)


def _evaluation(evaluation: Sequence[Mapping[str, Any]]) -> Section:
    names = ("log_loss", "roc_auc", "pr_auc", "brier", "calibration_error")
    columns = [(part, name) for part in ("validation", "test") for name in names]
    rows: list[list[object]] = [["trial", *(f"{part} {name}" for part, name in columns)]]
    for candidate in evaluation:
        figures = [f"{candidate[part][name]:.4f}" for part, name in columns]
        rows.append([trial_name(candidate["trial"]), *figures])
    text = "The validation split chose the winner; the test split was used only here."
    return Section("The best trials on the test split", [text], [rows])


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    return str(value)
