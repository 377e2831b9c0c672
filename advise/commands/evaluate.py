"""`condor-advice evaluate`: measure a model for held jobs against simple baselines."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from condor_advice.advise.commands.episode_sources import Sources, source_options
from condor_advice.advise.commands.options import json_option
from condor_advice.gather.errors import UsageError
from condor_advice.gather.foreign_text import one_line

if TYPE_CHECKING:
    from condor_advice.model.held.data import HeldData
    from condor_advice.model.held.model import HeldModel

_PATH = click.Path(path_type=Path)


@click.command()
@source_options
@click.option(
    "--model",
    "model_name",
    metavar="NAME|DIR",
    help="A model in the registry, or a directory. [default: the model in use]",
)
@click.option(
    "--bootstrap", default=200, show_default=True, help="Bootstrap rounds for the intervals."
)
@click.option("--figures", type=_PATH, metavar="DIR", help="Write PNG figures to this directory.")
@click.option("--report", type=_PATH, metavar="FILE", help="Write an HTML page with all results.")
@click.option(
    "--replay",
    "as_replay",
    is_flag=True,
    help="Walk through the logs (--log) in time, and answer right before each release.",
)
@click.option(
    "--learn",
    is_flag=True,
    help="With --replay: let the model adapt to outcomes as they become known.",
)
@click.option(
    "--answers",
    type=_PATH,
    metavar="FILE",
    help="With --replay: write each answer and its outcome to this file, as JSON lines.",
)
@click.option("--seed", default=0, show_default=True)
@json_option
def evaluate(
    sources: Sources,
    model_name: str | None,
    bootstrap: int,
    figures: Path | None,
    report: Path | None,
    as_replay: bool,
    learn: bool,
    answers: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Evaluate a model on hold episodes with a known outcome.

    Without a source, use the shipped recording in which every hold was released; no shipped model
    was trained on it. For a store that the model was trained on, add --since.

    With --replay, every answer uses only what was known right before the release it is about.
    """
    if as_replay:
        _replay(sources, model_name, learn, answers, as_json)
        return
    if learn or answers:
        raise UsageError("--learn and --answers belong to --replay; add it, and name a --log")
    from condor_advice.lab.training_data import RANDOMISED
    from condor_advice.model.held import evaluate as held_evaluate
    from condor_advice.model.held.data import CannotTrain
    from condor_advice.model.held.model import HeldModel as Model

    model = Model.load(_model_directory(model_name))
    data = sources.read((RANDOMISED,))
    if len(data.labelled) < 2:
        raise CannotTrain(
            f"cannot evaluate: of {len(data):,} hold episodes, {len(data.labelled)} were released "
            "unchanged and have a known outcome; gather more logs"
        )
    results = held_evaluate.evaluate(model, data, bootstrap, seed)
    results["baselines"] = held_evaluate.evaluate_baselines(data, bootstrap, seed)
    results["sources"] = list(data.sources)
    # Compared by name: this misses renamed sources, but catches the usual mistake.
    results["learned_from"] = sorted({*data.sources} & {*model.trained.get("sources", ())})
    if figures or report:
        with tempfile.TemporaryDirectory(prefix="condor-advice-") as scratch:
            pictures = _draw(model, data, figures or Path(scratch))
            if report:
                report.write_text(_page(results, pictures))  # embeds the pictures
                results["report"] = str(report)
        if figures:
            results["pictures"] = {caption: str(path) for caption, path in pictures.items()}
    if as_json:
        click.echo(json.dumps(results))
        return
    _print(results)


def _replay(
    sources: Sources, model_name: str | None, learn: bool, answers: Path | None, as_json: bool
) -> None:
    """Answer right before each release of some logs; print how good the answers were."""
    from condor_advice.advise.replay import walk
    from condor_advice.gather.files import private_files, replace_file
    from condor_advice.lab.training_data import recorded, training_recordings
    from condor_advice.model.held.data import join
    from condor_advice.model.held.model import HeldModel as Model
    from condor_advice.model.held.replay import figures as replay_figures

    if not sources.logs or sources.stores or sources.recordings or sources.exports:
        raise UsageError(
            "--replay walks through event logs: name them with --log, and nothing else"
        )

    def recordings() -> HeldData:
        return join([recorded(name).data for name in training_recordings()])

    walked = walk(
        Model.load(_model_directory(model_name)),
        [str(log) for log in sources.logs],
        sources.zone,
        learn=learn,
        recorded=recordings,
    )
    if answers:
        lines = "".join(f"{json.dumps(line)}\n" for line in walked.answers())
        with private_files():
            replace_file(answers, lines)
    results = replay_figures(walked.played, walked.data, walked.model)
    results |= {"sources": [str(log) for log in sources.logs], "learn": learn}
    if as_json:
        click.echo(json.dumps(results))
        return
    _print_replay(results)


_REPLAY_SHOWN = {
    "roc_auc": "ROC AUC",
    "brier_over_base_rate": "Brier / base rate's",
    "log_loss": "log loss",
    "calibration_error": "calibration error",
}


def _print_replay(results: dict[str, Any]) -> None:
    logs = ", ".join(one_line(log, 60) for log in results["sources"])
    click.echo(
        f"{results['model']} on {logs}: {results['releases']:,} releases, "
        f"{results['n_test']:,} of them as is and with a known outcome"
    )
    if "roc_auc" not in results["figures"]:
        click.echo("they all ended alike, so there is nothing to tell apart")
        return
    click.echo(f"{results['base_rate']:.1%} succeeded")
    thirds = ("first third", "second third", "last third")
    columns = {"all": results["figures"]}
    columns |= dict(zip(thirds, results["thirds"], strict=True)) | results["baselines"]
    for names in (("all", *thirds), tuple(results["baselines"])):
        click.echo(f"{'':22}" + "".join(f"{name:>15}" for name in names))
        for key, title in _REPLAY_SHOWN.items():
            values = [columns[name].get(key) for name in names]
            shown = ["-" if value is None else f"{value:.3f}" for value in values]
            click.echo(f"{title:22}" + "".join(f"{value:>15}" for value in shown))
    sure = results["sure"]
    click.echo(
        f"sure of {sure['share']:.1%} of the answers, wrong in {sure['wrong']:.1%} of these; "
        f"sure of success in {sure['share_of_success']:.1%}"
    )
    if results["learn"]:
        click.echo(f"learned from {results['outcomes_learned']:,} outcomes on the way")


def _model_directory(name: str | None) -> Path:
    from condor_advice.model.registry.versions import Registry

    if name is None:
        return Registry().current()
    return Path(name) if Path(name).is_dir() else Registry().path(name)


def _draw(model: HeldModel, data: HeldData, directory: Path) -> dict[str, Path]:
    from condor_advice.model.held.evaluate import pictured
    from condor_advice.model.plots import draw_all

    return draw_all(directory, pictured(model, data.take(data.labelled)))


_SHOWN = {
    "roc_auc": "ROC AUC",
    "pr_auc": "PR AUC",
    "brier": "Brier score",
    "log_loss": "log loss",
    "calibration_error": "calibration error",
    "accuracy": "accuracy",
    "f1": "F1",
    "coverage_at_5_percent_risk": "coverage at 5% risk",
    "regret_cpu_hours": "CPU hours lost",
}


def _print(results: dict[str, Any]) -> None:
    click.echo(
        f"{results['model']} on {', '.join(results['sources'])}: {results['n_test']:,} episodes of "
        f"{results['clusters']:,} clusters, {results['base_rate']:.1%} succeeded"
    )
    if results["learned_from"]:
        click.echo(
            f"note: the model learned from {', '.join(results['learned_from'])}, so these "
            "figures are too good; name other episodes, or add --since"
        )
    names = ["model", *results["baselines"]]
    click.echo(f"{'':22}" + "".join(f"{name[:14]:>16}" for name in names))
    for key, title in _SHOWN.items():
        values = [
            results["figures"][key],
            *(baseline[key] for baseline in results["baselines"].values()),
        ]
        click.echo(f"{title:22}" + "".join(f"{figure['value']:16.3f}" for figure in values))
    low, high = results["figures"]["roc_auc"]["interval"]
    click.echo(
        f"the model's ROC AUC is between {low:.3f} and {high:.3f} (95% interval, by cluster)"
    )
    abstention = results["abstention"]
    click.echo(
        f"it is sure of {abstention['coverage']:.1%} of the episodes, and wrong in "
        f"{abstention['wrong_among_confident']:.1%} of these (target: at most "
        f"{abstention['risk_promised']:.0%})"
    )
    hours = ", ".join(f"{name} {value:.1f}" for name, value in results["regret_cpu_hours"].items())
    click.echo(f"CPU hours lost: {hours}")


def _page(results: dict[str, Any], pictures: dict[str, Path]) -> str:
    from condor_advice.model.html_report import Section, number, page

    head = ["", "model", "95% interval", *results["baselines"]]
    rows: list[list[object]] = [list(head)]
    for key, title in _SHOWN.items():
        own = results["figures"][key]
        between = " to ".join(number(value) for value in own["interval"])
        others = [number(baseline[key]["value"]) for baseline in results["baselines"].values()]
        rows.append([title, number(own["value"]), between, *others])
    abstention = results["abstention"]
    return page(
        f"Model {results['model']}",
        [
            Section(
                "Figures",
                [
                    f"{results['n_test']:,} hold episodes of {results['clusters']:,} clusters from "
                    f"{', '.join(results['sources'])}; {results['base_rate']:.1%} succeeded "
                    "when released unchanged.",
                    f"The model is sure of {abstention['coverage']:.1%} of them, and wrong in "
                    f"{abstention['wrong_among_confident']:.1%} of these; the target is "
                    f"at most {abstention['risk_promised']:.0%}.",
                ],
                [rows],
            ),
            Section(
                "CPU hours lost",
                ["Compared with an oracle that knows the outcome of every release and loses none."],
                [[["decision", "hours"], *map(list, results["regret_cpu_hours"].items())]],
            ),
            Section("Pictures", pictures=pictures),
        ],
    )
