"""A sweep's report: one HTML page that stands alone, and its pictures as PNG files."""

from __future__ import annotations

import base64
import html
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from condor_advice.dag.plan import Plan, trial_name
from condor_advice.dag.scripts import best_trials
from condor_advice.dag.state import Trial, TrialState
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.files import replace_file

ENOUGH = 8  # trials without which the importance of a parameter cannot be told

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }
th, td { text-align: right; padding: .25rem .75rem; border-bottom: 1px solid #d5d9de }
th:first-child, td:first-child, td.text { text-align: left }
img { max-width: 100%; height: auto }
.best { background: #eef6ee } .failed { color: #9a2a1f }
"""


def write_report(
    plan: Plan,
    trials: Sequence[Trial],
    evaluation: Sequence[Mapping[str, Any]] = (),
    facts: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write the report into the sweep's directory; the files written."""
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
    page = directory / "index.html"
    replace_file(page, _page(plan, trials, evaluation, weights, pictures, facts or {}))
    table = directory / "trials.json"
    replace_file(table, json.dumps([_row(plan, trial) for trial in trials], indent=1) + "\n")
    return [page, *files, table]


def _row(plan: Plan, trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "state": str(trial.state),
        "best": trial.best(plan.metric),
        "epochs": trial.epoch,
        "runs": trial.runs,
        "reason": trial.reason,
        "parameters": dict(trial.parameters),
    }


def importance(plan: Plan, tried: Sequence[Trial]) -> dict[str, dict[str, float]]:
    """Return how much each parameter explains, by a random forest, and which way it goes.

    As W&B shows it: importance adds up to 1, correlation is that with the metric. Empty with
    too few trials to tell.
    """
    varied = [p for p in plan.parameters if not p.is_constant]
    rows = [t for t in tried if t.state in (TrialState.FINISHED, TrialState.STOPPED)]
    if len(rows) < ENOUGH or not varied:
        return {}
    import numpy as np
    from sklearn.ensemble import RandomForestRegressor

    x = np.array([[p.share(trial.parameters[p.name]) for p in varied] for trial in rows])
    y = np.array([trial.best(plan.metric) for trial in rows], dtype=float)
    if y.std() == 0:
        return {}
    forest = RandomForestRegressor(200, random_state=0, n_jobs=1).fit(x, y)
    found = {}
    for index, parameter in enumerate(varied):
        column = x[:, index]
        moves = column.std() > 0
        found[parameter.name] = {
            "importance": float(forest.feature_importances_[index]),
            "correlation": float(np.corrcoef(column, y)[0, 1]) if moves else 0.0,
        }
    return dict(sorted(found.items(), key=lambda item: -item[1]["importance"]))


# ---- pictures -------------------------------------------------------------------------------


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


def _colours(plan: Plan, tried: Sequence[Trial]) -> dict[int, Any]:
    """Return a colour for each trial: the darker the better."""
    from matplotlib import colormaps

    ranked = sorted(tried, key=lambda t: plan.metric.loss(t.best(plan.metric) or 0.0))
    last = max(len(ranked) - 1, 1)
    return {t.number: colormaps["viridis"](0.9 * place / last) for place, t in enumerate(ranked)}


def _learning_curves(plan: Plan, tried: Sequence[Trial]) -> bytes:
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
    axes.set_xlabel("epoch (x: ended early)")
    axes.set_ylabel(plan.metric.name)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="best", fontsize=8)
    return _png(figure)


def _parallel_coordinates(plan: Plan, tried: Sequence[Trial], varied: list[str]) -> bytes:
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
    plan: Plan,
    trials: Sequence[Trial],
    evaluation: Sequence[Mapping[str, Any]],
    weights: Mapping[str, Mapping[str, float]],
    pictures: Mapping[str, bytes],
    facts: Mapping[str, Any],
) -> str:
    ranked = best_trials(plan, list(trials), also_paused=True)
    parts = [f"<h1>Sweep {html.escape(plan.name)}</h1>", _summary(plan, trials, facts)]
    if ranked:
        parts.append(_trial_table(plan, ranked))
    titles = {
        "learning_curves": "Learning curves",
        "parallel_coordinates": "Parallel coordinates",
        "importance": "Importance of parameters",
    }
    for name, data in pictures.items():
        coded = base64.b64encode(data).decode()
        parts.append(f"<h2>{titles[name]}</h2>")
        parts.append(f'<img alt="{titles[name]}" src="data:image/png;base64,{coded}">')
    if not weights:
        parts.append(
            f"<p>With fewer than {ENOUGH} trials that ended, the importance of parameters "
            "cannot be told.</p>"
        )
    if evaluation:
        parts.append(_evaluation_table(evaluation))
    failed = [trial for trial in trials if trial.state is TrialState.FAILED]
    if failed:
        parts.append('<h2 class="failed">Trials that failed</h2><ul>')
        parts += [f"<li>{trial_name(t.number)}: {html.escape(t.reason)}</li>" for t in failed]
        parts.append("</ul>")
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Sweep {html.escape(plan.name)}</title><style>{_STYLE}</style></head>\n"
        f"<body>{body}</body></html>\n"
    )


def _summary(plan: Plan, trials: Sequence[Trial], facts: Mapping[str, Any]) -> str:
    counts = {state: sum(t.state is state for t in trials) for state in TrialState}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    rows = {
        "search": f"{plan.method} for the {plan.metric.goal[:3]}imum of {plan.metric.name}",
        "trials": said,
        "data": ", ".join(source.value for source in plan.sources),
        "seeds": ", ".join(map(str, plan.seeds)),
        "planned": plan.created,
        **facts,
    }
    cells = "".join(
        f'<tr><td>{html.escape(str(k))}</td><td class="text">{html.escape(str(v))}</td></tr>'
        for k, v in rows.items()
    )
    return f"<table>{cells}</table>"


def _trial_table(plan: Plan, ranked: Sequence[Trial]) -> str:
    names = [p.name for p in plan.parameters]
    head = "".join(
        f"<th>{html.escape(name)}</th>"
        for name in ("trial", plan.metric.name, "epochs", "state", *names)
    )
    rows = []
    for place, trial in enumerate(ranked[:50]):
        value = trial.best(plan.metric)
        cells = [trial_name(trial.number), f"{value:.5g}", trial.epoch, trial.state]
        cells += [_short(trial.parameters[name]) for name in names]
        kind = ' class="best"' if place == 0 else ""
        rows.append(
            f"<tr{kind}>" + "".join(f"<td>{html.escape(str(c))}</td>" for c in cells) + "</tr>"
        )
    more = f"<p>The best 50 of {len(ranked)}.</p>" if len(ranked) > 50 else ""
    return f"<h2>Trials</h2><table><tr>{head}</tr>{''.join(rows)}</table>{more}"


def _evaluation_table(evaluation: Sequence[Mapping[str, Any]]) -> str:
    names = ("log_loss", "roc_auc", "pr_auc", "brier", "calibration_error")
    head = "".join(f"<th>{part} {name}</th>" for part in ("validation", "test") for name in names)
    rows = []
    for one in evaluation:
        cells = [f"{one[part][name]:.4f}" for part in ("validation", "test") for name in names]
        rows.append(
            f"<tr><td>{trial_name(one['trial'])}</td>"
            + "".join(f"<td>{cell}</td>" for cell in cells)
            + "</tr>"
        )
    return (
        "<h2>The best trials on the test split</h2><p>The winner was chosen by validation; "
        "the test split was looked at once, here.</p>"
        f"<table><tr><th>trial</th>{head}</tr>{''.join(rows)}</table>"
    )


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    return str(value)
