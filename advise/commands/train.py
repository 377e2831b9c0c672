"""`condor-advice train`: learn from hold episodes which releases succeed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from condor_advice.advise.commands.episode_sources import Sources, source_options
from condor_advice.advise.commands.options import json_option

if TYPE_CHECKING:
    from condor_advice.model.held.data import HeldData
    from condor_advice.model.held.train import HeldSettings, Trained
    from condor_advice.model.registry.gate import GateResult

_PATH = click.Path(path_type=Path)


@click.command()
@source_options
@click.option(
    "--parts",
    default="",
    help="Parts that the model may combine, separated by commas. [default: all parts]",
)
@click.option(
    "--propensity/--no-propensity",
    default=False,
    show_default=True,
    help="Weight each outcome by how unlikely its release was.",
)
@click.option("--risk", default=0.1, show_default=True, help="Share of confident answers that "
              "may be wrong; the model abstains rather than exceed it.")  # fmt: skip
@click.option("--epochs", default=20, show_default=True, help="Epochs of the LSTM, at most.")
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", default=1, show_default=True, help="Cores to use.")
@click.option("--name", default="", help="Name of the model. [default: from date and data]")
@click.option(
    "--work",
    type=_PATH,
    metavar="DIR",
    help="Keep training state there, and resume from it after an interruption.",
)
@click.option(
    "--out",
    type=_PATH,
    metavar="DIR",
    help="Write the model to this directory, not to the registry.",
)
@click.option(
    "--no-promote", is_flag=True, help="Add the model to the registry, but do not promote it."
)
@click.option("--track", metavar="PROJECT", help="Send the LSTM's metrics to this W&B project.")
@json_option
@click.option("--quiet", is_flag=True, help="Print no progress.")
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
    """Train a model for held jobs; use it if it is no worse.

    Without a source, the recordings that come with condor-advice are the training data. The newest
    fifth of the episodes is held out, and the gate compares the new model with the current one on
    it. To retrain regularly, run `train --store FILE --since 90d` from cron.
    """
    from condor_advice.lab.training_data import training_recordings
    from condor_advice.model.registry.gate import hold_out_newest
    from condor_advice.model.tracking import WandbTracking

    settings = _settings(parts, propensity, risk, epochs, seed, threads)
    data = sources.read(training_recordings())
    data.check()
    older, window = hold_out_newest(data)
    verbose = not (quiet or as_json)
    trained = _train(older, settings, name, work, track and WandbTracking(track), verbose)
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
    _print(summary, gate)


def _settings(
    parts: str, propensity: bool, risk: float, epochs: int, seed: int, threads: int
) -> HeldSettings:
    from condor_advice.gather.errors import UsageError
    from condor_advice.model.held.train import DEFAULT_PARTS, PART_NAMES, HeldSettings

    named = tuple(part.strip() for part in parts.split(",") if part.strip())
    chosen = named if parts else DEFAULT_PARTS
    unknown = [part for part in chosen if part not in PART_NAMES]
    if unknown or not chosen:
        raise UsageError(f"--parts {parts}: choose from {', '.join(PART_NAMES)}")
    if not 0 < risk < 1:
        raise UsageError(f"--risk {risk}: must be between 0 and 1")
    settings = HeldSettings(parts=chosen, propensity=propensity, risk=risk, seed=seed)
    return settings.change_all(seed=seed, threads=threads).change("lstm", epochs=epochs)


def _train(
    data: HeldData,
    settings: HeldSettings,
    name: str,
    work: Path | None,
    tracker: Any,
    verbose: bool,
) -> Trained:
    from condor_advice.model.held.train import train as learn

    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
    return learn(
        data,
        settings,
        name,
        say=lambda text: click.echo(text, err=True) if verbose else None,
        tracker=tracker or None,
        progress=verbose,
        work=work,
    )


def _write(
    trained: Trained, directory: Path, settings: HeldSettings, window: HeldData
) -> dict[str, Any]:
    """Write model, manifest and card; return a summary."""
    from condor_advice.model.held.evaluate import evaluate, pictured
    from condor_advice.model.held.train import save, validation_figures
    from condor_advice.model.registry import card

    metrics: dict[str, Any] = {"validation": validation_figures(trained)}
    if len(window.labelled):
        judged = evaluate(trained.model, window, rounds=100)
        metrics["newest"] = {
            "n_test": judged["n_test"],
            **{key: figure["value"] for key, figure in judged["figures"].items()},
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


def _print(summary: dict[str, Any], gate: GateResult | None) -> None:
    on, validation = summary["trained_on"], summary["metrics"]["validation"]
    click.echo(
        f"{summary['model']}: trained on {on['labelled']:,} of {on['episodes']:,} hold episodes "
        f"in {summary['seconds']:.0f} s"
    )
    click.echo(
        f"cross-validation: ROC AUC {validation['roc_auc']:.3f}, Brier score "
        f"{validation['brier']:.4f}, calibration error {validation['calibration_error']:.3f}"
    )
    parts = ", ".join(f"{part} {weight:.2f}" for part, weight in summary["weights"].items())
    click.echo(f"weights: {parts}")
    if summary["directory"]:
        click.echo(f"written to {summary['directory']}")
    elif gate is None:
        click.echo("added to the registry; `condor-advice model promote` puts it to use")
    elif gate.passed:
        click.echo(f"promoted over {gate.current}: {gate.reason}")
    else:
        click.echo(f"{gate.current} stays in use: {gate.reason}")
