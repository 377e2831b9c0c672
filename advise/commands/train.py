"""`condor-advice train`: learn from hold episodes whether a release succeeds."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from condor_advice.advise.commands.episode_sources import Sources, source_options

if TYPE_CHECKING:
    from condor_advice.model.held.data import HeldData
    from condor_advice.model.held.train import HeldSettings, Trained
    from condor_advice.model.registry.gate import GateResult

_PATH = click.Path(path_type=Path)


@click.command()
@source_options
@click.option(
    "--parts",
    default="rules,linear,trees,lstm",
    show_default=True,
    help="What the model may be made of, with commas.",
)
@click.option(
    "--propensity/--no-propensity",
    default=False,
    show_default=True,
    help="Weigh outcomes by how unlikely such a job was to be released.",
)
@click.option("--risk", default=0.1, show_default=True, help="Share of confident answers that "
              "may be wrong; beyond it the model abstains.")  # fmt: skip
@click.option("--epochs", default=20, show_default=True, help="Of the LSTM, at most.")
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", default=1, show_default=True, help="Cores to use.")
@click.option("--name", default="", help="Of the model. [default: by date and data]")
@click.option(
    "--work",
    type=_PATH,
    metavar="DIR",
    help="Keep the state of the training there, and go on from it after a kill.",
)
@click.option(
    "--out", type=_PATH, metavar="DIR", help="Write the model there, not to the registry."
)
@click.option("--no-promote", is_flag=True, help="Add the model to the registry, and ask nothing.")
@click.option("--track", metavar="PROJECT", help="Send the LSTM's figures to this W&B project.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--quiet", is_flag=True, help="Say nothing while working.")
def train(
    sources: Sources,
    parts: str,
    propensity: bool,
    risk: float,
    epochs: int,
    seed: int,
    threads: int,
    name: str,
    work: Path | None,
    out: Path | None,
    no_promote: bool,
    track: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train a model for held jobs, and let it answer if it is not worse than the current one.

    Without a source the recordings that come with condor-advice are learned from. The newest
    fifth of the episodes is kept from training: on it the gate compares the new model with the
    current one. `train --store FILE --since 90d` from cron is all that retraining takes.
    """
    from condor_advice.lab.training_data import training_recordings
    from condor_advice.model.registry.gate import hold_out_newest
    from condor_advice.model.tracking import WandbTracking

    settings = _settings(parts, propensity, risk, epochs, seed, threads)
    data = sources.read(training_recordings())
    data.check()
    older, window = hold_out_newest(data)
    talk = not (quiet or as_json)
    trained = _train(older, settings, name, work, track and WandbTracking(track), talk)
    with tempfile.TemporaryDirectory(prefix="condor-advice-") as scratch:
        directory = out or Path(scratch) / "model"
        summary = _write(trained, directory, settings, window)
        gate = None if out else _register(directory, window, no_promote)
    summary |= {
        "model": trained.model.name,
        "directory": str(out) if out else None,
        "gate": gate.as_dict() if gate else None,
        "promoted": bool(gate and gate.passed),
    }
    if as_json:
        click.echo(json.dumps(summary))
        return
    _tell(summary, gate)


def _settings(
    parts: str, propensity: bool, risk: float, epochs: int, seed: int, threads: int
) -> HeldSettings:
    from condor_advice.gather.errors import UsageError
    from condor_advice.model.held.train import PART_NAMES, HeldSettings

    chosen = tuple(part.strip() for part in parts.split(",") if part.strip())
    unknown = [part for part in chosen if part not in PART_NAMES]
    if unknown or not chosen:
        raise UsageError(f"--parts {parts}: a model is made of {', '.join(PART_NAMES)}; name some")
    if not 0 < risk < 1:
        raise UsageError(f"--risk {risk}: a share between 0 and 1 is needed")
    settings = HeldSettings(parts=chosen, propensity=propensity, risk=risk, seed=seed)
    return settings.change_all(seed=seed, threads=threads).change("lstm", epochs=epochs)


def _train(
    data: HeldData,
    settings: HeldSettings,
    name: str,
    work: Path | None,
    tracker: Any,
    talk: bool,
) -> Trained:
    from condor_advice.model.held.train import train as learn

    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
    return learn(
        data,
        settings,
        name,
        say=lambda text: click.echo(text, err=True) if talk else None,
        tracker=tracker or None,
        progress=talk,
        work=work,
    )


def _write(
    trained: Trained, directory: Path, settings: HeldSettings, window: HeldData
) -> dict[str, Any]:
    """Write model, manifest and card; return what to tell."""
    from condor_advice.model.held.evaluate import evaluate, pictured
    from condor_advice.model.held.train import save, validation_figures
    from condor_advice.model.registry import card

    metrics: dict[str, Any] = {"validation": validation_figures(trained)}
    if len(window.labelled):
        judged = evaluate(trained.model, window, rounds=100)
        metrics["newest"] = {
            "n_test": judged["n_test"],
            **{key: one["value"] for key, one in judged["figures"].items()},
        }
    manifest = save(trained, directory, settings, metrics)
    shown = window.take(window.labelled)
    card.write(directory, manifest, pictured(trained.model, shown) if len(shown) else None)
    return {
        "trained_on": dict(trained.model.trained),
        "metrics": metrics,
        "weights": dict(trained.model.weights),
        "gains": trained.notes["gains"],
        "seconds": trained.notes["seconds"],
    }


def _register(directory: Path, window: HeldData, no_promote: bool) -> GateResult | None:
    from condor_advice.model.registry.versions import Registry

    if no_promote:
        Registry().add(directory)
        return None
    return Registry().propose(directory, window)


def _tell(summary: dict[str, Any], gate: GateResult | None) -> None:
    on, validation = summary["trained_on"], summary["metrics"]["validation"]
    click.echo(
        f"{summary['model']}: learned from {on['labelled']:,} of {on['episodes']:,} hold episodes "
        f"in {summary['seconds']:.0f} s"
    )
    click.echo(
        f"on episodes left out in turn: ROC AUC {validation['roc_auc']:.3f}, Brier score "
        f"{validation['brier']:.4f}, calibration error {validation['calibration_error']:.3f}"
    )
    parts = ", ".join(f"{part} {weight:.2f}" for part, weight in summary["weights"].items())
    click.echo(f"made of: {parts}")
    if summary["directory"]:
        click.echo(f"written to {summary['directory']}")
    elif gate is None:
        click.echo("added to the registry; `condor-advice model promote` lets it answer")
    elif gate.passed:
        click.echo(f"promoted over {gate.current}: {gate.reason}")
    else:
        click.echo(f"{gate.current} stays: {gate.reason}")
