"""`condor-advice failures`: train and evaluate failure models on any scheduler's job tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from condor_advice.gather.errors import UsageError

if TYPE_CHECKING:
    from condor_advice.gather.workloads.table import JobTable
    from condor_advice.preprocess.jobs.horizons import Horizon, Labels

DEFAULT_HORIZONS = "submit,start,two_minutes"
_FILE = click.Path(path_type=Path)


class ManyFiles(click.Command):
    """A command whose file options accept several files, as shells expand patterns."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option in front of each additional file."""
        options = [p for p in self.params if isinstance(p, click.Option) and p.multiple]
        names = {name for option in options for name in option.opts}
        words: list[str] = []
        current = ""
        for word in args:
            if word.startswith("-"):
                current = word if word in names else ""
            elif current and words[-1] != current:
                words.append(current)
            words.append(word)
        return super().parse_args(ctx, words)


def table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name job tables and define which states count as failed."""
    for option in reversed(
        (
            click.option(
                "--swf",
                type=_FILE,
                multiple=True,
                metavar="FILE...",
                help="Standard Workload Format file, plain, .gz or .xz.",
            ),
            click.option(
                "--sacct", type=_FILE, multiple=True, metavar="FILE...", help="Output of sacct -P."
            ),
            click.option(
                "--slurmrestd",
                type=_FILE,
                multiple=True,
                metavar="FILE...",
                help="JSON from slurmrestd or sacct --json.",
            ),
            click.option(
                "--history",
                type=_FILE,
                multiple=True,
                metavar="FILE...",
                help="HTCondor history or epoch history files, condor_history -long or "
                "-json output.",
            ),
            click.option(
                "--schedd", is_flag=True, help="Read the history of this access point's schedd."
            ),
            click.option("--store", type=_FILE, help="A store written by `condor-advice gather`."),
            click.option(
                "--horizon",
                default=DEFAULT_HORIZONS,
                show_default=True,
                help="When to predict, separated by commas: submit, start, two_minutes, "
                "running; or post_mortem (evaluate only), which knows how the job ended.",
            ),
            click.option(
                "--failed",
                default="failed,timeout,out_of_memory,node_failed",
                show_default=True,
                help="States that count as failed; add cancelled if the log "
                "has no other state for failed jobs.",
            ),
            click.option(
                "--trials", default=20, show_default=True, help="Number of parameter sets to try."
            ),
            click.option(
                "--seed", default=0, show_default=True, help="Seed for all random choices."
            ),
            click.option("--threads", default=2, show_default=True, help="Threads for training."),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
            click.option("--quiet", is_flag=True, help="Print no progress."),
        )
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def failures() -> None:
    """Train and evaluate models that predict which jobs fail."""


@failures.command(cls=ManyFiles)
@table_options
@click.option(
    "--usage",
    type=_FILE,
    multiple=True,
    metavar="FILE...",
    help="Recorded usage: train the in-job hook's model instead.",
)
@click.option(
    "--out", type=_FILE, help="Where to write the model: a directory, or a file with --usage."
)
def train(
    usage: tuple[Path, ...],
    out: Path | None,
    horizon: str,
    failed: str,
    trials: int,
    seed: int,
    threads: int,
    as_json: bool,
    quiet: bool,
    **sources: Any,
) -> None:
    """Train on all jobs in the tables and write a model for `predict`."""
    if usage:
        _train_usage(usage, out, seed, as_json)
        return
    from condor_advice.model.failure.model import NotAPrediction, default_directory
    from condor_advice.model.failure.train import TrainSettings, train_models
    from condor_advice.preprocess.jobs.horizons import Horizon

    horizons = _horizons(horizon)
    if Horizon.POST_MORTEM in horizons:
        raise NotAPrediction
    table = read_tables(**sources)
    models = train_models(
        table,
        horizons,
        _labels(failed),
        TrainSettings(trials=trials, seed=seed, threads=threads),
        say=_progress(quiet or as_json),
    )
    directory = out or default_directory()
    models.save(directory)
    summary: dict[str, Any] = {
        "model": str(directory),
        "jobs": len(table),
        "bad_lines": len(table.bad_lines),
        "sizes": list(models.sizes),
        "horizons": {
            str(name): {
                key: model.notes[key]
                for key in ("rows", "failed", "validation_roc_auc", "rounds", "seconds")
            }
            for name, model in models.models.items()
        },
    }
    if as_json:
        click.echo(json.dumps(summary))
        return
    _print_bad_lines(table)
    for name, notes in summary["horizons"].items():
        click.echo(
            f"{name}: {notes['rows']} jobs, {notes['failed']} failed; validation ROC AUC "
            f"{notes['validation_roc_auc']:.3f}"
        )
    click.echo(f"model written to {directory}")


@failures.command(cls=ManyFiles)
@table_options
@click.option(
    "--split",
    default=0.6,
    show_default=True,
    help="Share of the jobs to train on; later jobs are the test set.",
)
@click.option("--precision", type=float, help="Choose the threshold that reaches this precision.")
@click.option(
    "--cost",
    type=float,
    help="Choose the threshold as if a missed failure cost this many false alarms.",
)
@click.option(
    "--bootstrap", default=200, show_default=True, help="Bootstrap rounds for the intervals."
)
@click.option("--report", type=_FILE, help="Write a report with figures to this directory.")
@click.option(
    "--compare", is_flag=True, help="Compare weighting, oversampling, SMOTE and active learning."
)
@click.option("--online", is_flag=True, help="Compare training once with retraining over time.")
@click.option("--sizes", is_flag=True, help="Evaluate suggested memory, disk and run time.")
@click.option(
    "--profiles", is_flag=True, help="Show clusters of similar jobs, and test them as features."
)
def evaluate(
    horizon: str,
    failed: str,
    trials: int,
    seed: int,
    threads: int,
    as_json: bool,
    quiet: bool,
    split: float,
    precision: float | None,
    cost: float | None,
    bootstrap: int,
    report: Path | None,
    compare: bool,
    online: bool,
    sizes: bool,
    profiles: bool,
    **sources: Any,
) -> None:
    """Train on the earlier jobs of a table and test on the later ones."""
    from condor_advice.model.failure.evaluate import evaluate as judge
    from condor_advice.model.failure.train import TrainSettings

    if precision is not None and cost is not None:
        raise UsageError("--precision and --cost exclude each other; both choose the threshold")
    threshold = (
        f"precision_{precision}"
        if precision is not None
        else f"cost_{cost:g}"
        if cost is not None
        else "f1"
    )
    table = read_tables(**sources)
    labels = _labels(failed)
    settings = TrainSettings(trials=trials, seed=seed, threads=threads)
    figures, tested = judge(
        table,
        _horizons(horizon),
        labels,
        split,
        settings,
        threshold,
        bootstrap,
        _progress(quiet or as_json),
    )
    fitted = None
    if compare or online or sizes or profiles or report is not None:
        from condor_advice.model.failure.extras import extras

        more, fitted = extras(
            table,
            labels,
            split,
            settings,
            figures,
            compare=compare,
            online=online,
            sizes=sizes,
            profiles=profiles or report is not None,
        )
        figures |= more
    if report is not None:
        from condor_advice.model.failure.report import write_report

        files = write_report(report, figures, tested, fitted)
        if not as_json:
            click.echo(f"{len(files)} files written to {report}")
    if as_json:
        click.echo(json.dumps(figures))
        return
    _print_bad_lines(table)
    _print(figures)


def read_tables(
    swf: tuple[Path, ...] = (),
    sacct: tuple[Path, ...] = (),
    slurmrestd: tuple[Path, ...] = (),
    history: tuple[Path, ...] = (),
    schedd: bool = False,
    store: Path | None = None,
) -> JobTable:
    """Read all named tables and join them in submit order."""
    from condor_advice.gather.workloads import (
        concatenate,
        read_condor_history,
        read_sacct,
        read_schedd_history,
        read_slurmrestd,
        read_swf,
    )

    tables = [read_swf(path) for path in swf]
    tables += [read_sacct(path) for path in sacct]
    tables += [read_slurmrestd(path) for path in slurmrestd]
    if history:
        tables.append(read_condor_history(*history))
    if schedd:
        tables.append(read_schedd_history())
    if store is not None:
        from condor_advice.preprocess.jobs.from_store import read_store_jobs

        tables.append(read_store_jobs(store))
    if not tables:
        raise UsageError(
            "no job table named; use --swf, --sacct, --slurmrestd, --history, --schedd or --store"
        )
    return concatenate(tables).in_submit_order()


def _horizons(text: str) -> list[Horizon]:
    from condor_advice.preprocess.jobs.horizons import Horizon

    try:
        return [Horizon(word.strip()) for word in text.split(",") if word.strip()]
    except ValueError as error:
        raise UsageError(f"--horizon: {error}; choose from {', '.join(Horizon)}") from error


def _labels(text: str) -> Labels:
    from condor_advice.model.failure.model import states
    from condor_advice.preprocess.jobs.horizons import Labels

    return Labels(failed=states([word.strip() for word in text.split(",") if word.strip()]))


def _train_usage(files: tuple[Path, ...], out: Path | None, seed: int, as_json: bool) -> None:
    from condor_advice.model import checkpoint_risk as usage

    if out is None:
        raise UsageError("--usage requires --out FILE: the hook's model is one file")
    summary = usage.train(list(files), out, seed=seed)
    if as_json:
        click.echo(json.dumps({"model": str(out), **summary}))
        return
    trees = summary["trees"]
    click.echo(
        f"{summary['jobs']} jobs; on the latest {summary['judged_jobs']}: ROC AUC "
        f"{trees['roc_auc']:.3f}, {trees['recall']:.0%} of the failures predicted, "
        f"{trees['precision']:.0%} of the alarms true"
    )
    click.echo(f"usage model written to {out}")


def _progress(quiet: bool) -> Callable[[str], None]:
    return (lambda _text: None) if quiet else (lambda text: click.echo(text, err=True))


def _print_bad_lines(table: JobTable) -> None:
    for bad in table.bad_lines[:5]:
        click.echo(f"{bad.path}:{bad.line}: skipped: {bad.reason}", err=True)
    if len(table.bad_lines) > 5:
        click.echo(f"... and {len(table.bad_lines) - 5} more lines skipped", err=True)


def _print(figures: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(
        f"{figures['jobs']} jobs {figures['states']}; trained on the first "
        f"{figures['split']:.0%}; failed means {', '.join(figures['failed_states'])}"
    )
    table = Table(
        "horizon", "model", "ROC AUC", "PR AUC", "F1", "precision", "recall", "accuracy", "jobs"
    )
    for horizon, scores in figures["horizons"].items():
        for name, row in {"trees": scores, **scores["baselines"]}.items():
            table.add_row(
                horizon if name == "trees" else "",
                name,
                *(
                    f"{row[key]:.3f}"
                    for key in ("roc_auc", "pr_auc", "f1", "precision", "recall", "accuracy")
                ),
                str(row["n_test"]),
            )
    console.print(table)
    for horizon, scores in figures["horizons"].items():
        low, high = scores["intervals"]["roc_auc"]
        console.print(
            f"{horizon}: ROC AUC {scores['roc_auc']:.3f}, 95% interval {low:.3f} to "
            f"{high:.3f}; threshold {scores['threshold']:.3f} chosen by "
            f"{scores['threshold_chosen_by']}"
        )
        if "note" in scores:
            console.print(f"{horizon} {scores['note']}")
    for name in ("compare", "online", "sizes", "profiles"):
        if name in figures:
            console.print(name, figures[name])
