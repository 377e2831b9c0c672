"""`condor-advice evaluate`: how good a model for held jobs is, against simple answers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from condor_advice.advise.commands.episode_sources import Sources, source_options

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
    help="A model of the registry, or a directory. [default: the one that answers]",
)
@click.option("--bootstrap", default=200, show_default=True, help="Rounds for the intervals.")
@click.option("--figures", type=_PATH, metavar="DIR", help="Draw PNG pictures into this directory.")
@click.option("--report", type=_PATH, metavar="FILE", help="Write one HTML page with all of it.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(
    sources: Sources,
    model_name: str | None,
    bootstrap: int,
    figures: Path | None,
    report: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Judge a model on hold episodes whose outcome is known.

    Without a source the shipped recording is taken in which every hold was released, and from
    which no model of ours has learned. On a store that a model was trained on, name --since.
    """
    from condor_advice.lab.training_data import RANDOMISED
    from condor_advice.model.held import evaluate as held_evaluate
    from condor_advice.model.held.data import CannotTrain
    from condor_advice.model.held.model import HeldModel as Model

    model = Model.load(_model_directory(model_name))
    data = sources.read((RANDOMISED,))
    if len(data.labelled) < 2:
        raise CannotTrain(
            f"{len(data):,} hold episodes, of which {len(data.labelled)} tell what a release as "
            "is did; there is nothing to judge by: gather more logs"
        )
    found = held_evaluate.evaluate(model, data, bootstrap, seed)
    found["baselines"] = held_evaluate.evaluate_baselines(data, bootstrap, seed)
    found["sources"] = list(data.sources)
    # By name only: but that is how it mostly happens.
    found["learned_from"] = sorted({*data.sources} & {*model.trained.get("sources", ())})
    if figures or report:
        with tempfile.TemporaryDirectory(prefix="condor-advice-") as scratch:
            pictures = _draw(model, data, figures or Path(scratch))
            if report:
                report.write_text(_page(found, pictures))  # which holds the pictures itself
                found["report"] = str(report)
        if figures:
            found["pictures"] = {caption: str(path) for caption, path in pictures.items()}
    if as_json:
        click.echo(json.dumps(found))
        return
    _tell(found)


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
    "coverage_at_5_percent_risk": "coverage at 5 % risk",
    "regret_cpu_hours": "CPU hours lost",
}


def _tell(found: dict[str, Any]) -> None:
    click.echo(
        f"{found['model']} on {', '.join(found['sources'])}: {found['n_test']:,} episodes of "
        f"{found['clusters']:,} clusters, {found['base_rate']:.1%} succeeded"
    )
    if found["learned_from"]:
        click.echo(
            f"note: the model learned from {', '.join(found['learned_from'])}, so that these "
            "figures are better than it is; name other episodes, or --since"
        )
    names = ["model", *found["baselines"]]
    click.echo(f"{'':22}" + "".join(f"{name[:14]:>16}" for name in names))
    for key, title in _SHOWN.items():
        values = [found["figures"][key], *(one[key] for one in found["baselines"].values())]
        click.echo(f"{title:22}" + "".join(f"{one['value']:16.3f}" for one in values))
    low, high = found["figures"]["roc_auc"]["interval"]
    click.echo(f"the model's ROC AUC is between {low:.3f} and {high:.3f} (95 %, by clusters)")
    said = found["abstention"]
    click.echo(
        f"it is sure of {said['coverage']:.1%} of the episodes, and wrong in "
        f"{said['wrong_among_confident']:.1%} of these (promised: {said['risk_promised']:.0%})"
    )
    hours = ", ".join(f"{name} {value:.1f}" for name, value in found["regret_cpu_hours"].items())
    click.echo(f"CPU hours lost: {hours}")


def _page(found: dict[str, Any], pictures: dict[str, Path]) -> str:
    from condor_advice.model.html_report import Section, number, page

    head = ["", "model", "95 %", *found["baselines"]]
    rows: list[list[object]] = [list(head)]
    for key, title in _SHOWN.items():
        own = found["figures"][key]
        between = " to ".join(number(value) for value in own["interval"])
        others = [number(one[key]["value"]) for one in found["baselines"].values()]
        rows.append([title, number(own["value"]), between, *others])
    said = found["abstention"]
    return page(
        f"Model {found['model']}",
        [
            Section(
                "Figures",
                [
                    f"{found['n_test']:,} hold episodes of {found['clusters']:,} clusters from "
                    f"{', '.join(found['sources'])}; {found['base_rate']:.1%} succeeded after a "
                    "release as is.",
                    f"The model is sure of {said['coverage']:.1%} of them, and wrong in "
                    f"{said['wrong_among_confident']:.1%} of these answers; at most "
                    f"{said['risk_promised']:.0%} was promised.",
                ],
                [rows],
            ),
            Section(
                "CPU hours lost",
                ["Against an oracle that knows what a release would do and loses none."],
                [[["decision", "hours"], *map(list, found["regret_cpu_hours"].items())]],
            ),
            Section("Pictures", pictures=pictures),
        ],
    )
