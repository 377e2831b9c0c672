"""`condor-advice sweep`: search for better models on a pool, with DAGMan and W&B sweep files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from condor_advice.advise.commands.options import json_option
from condor_advice.gather.files import private_files

if TYPE_CHECKING:
    from condor_advice.dag.create import ShippedLogs
    from condor_advice.dag.status import Status

_DIRECTORY = click.argument(
    "directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path)
)
_MOST_EXPANSION = 20  # unpacked size of a recording over its packed size, at most


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def sweep(ctx: click.Context) -> None:
    """Search for better models on a pool.

    A W&B sweep file becomes a DAG, which DAGMan runs.
    """
    # Everything below a sweep's directory comes from a store that names other users' jobs.
    ctx.with_resource(private_files())


@sweep.command()
@click.argument("file", metavar="SWEEP.YAML", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--trials", type=int, help="Number of trials. [default: run_cap in the file]")
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new directory for the sweep.",
)
@json_option
def init(file: Path, trials: int | None, out: Path, as_json: bool) -> None:
    """Check SWEEP.YAML, and write the DAG, the data and the environment to DIR."""
    from condor_advice.dag.create import plan_sweep

    plan = plan_sweep(
        file,
        out,
        trials,
        recordings(),
        say=lambda text: None if as_json else click.echo(text, err=True),
    )
    if as_json:
        click.echo(
            json.dumps(
                {
                    "directory": str(plan.directory),
                    "name": plan.name,
                    "trials": plan.trials,
                    "preparations": len(plan.prepared),
                    "shards": len(plan.sources),
                }
            )
        )
        return
    click.echo(
        f"{plan.trials} trials by {plan.method} to {plan.metric.goal} "
        f"{plan.metric.name}; submit them with: condor-advice sweep submit {out}"
    )


def recordings() -> dict[str, ShippedLogs]:
    """Return the lab's recordings, since dag/ must not import the lab."""
    from condor_advice.dag.create import ShippedLogs
    from condor_advice.lab.recording import shipped, unpack
    from condor_advice.lab.training_data import recorded_logs

    def packed(name: str, bytes_packed: int) -> ShippedLogs:
        return ShippedLogs(
            _MOST_EXPANSION * bytes_packed,
            lambda directory: recorded_logs(name, unpack(name, directory)),
        )

    return {name: packed(name, int(about["bytes"])) for name, about in shipped().items()}


@sweep.command()
@_DIRECTORY
@json_option
def submit(directory: Path, as_json: bool) -> None:
    """Submit the DAG in DIR to this access point."""
    from condor_advice.dag.control import submit as start

    cluster = start(directory)
    if as_json:
        click.echo(json.dumps({"directory": str(directory), "cluster": cluster}))
        return
    click.echo(
        f"DAGMan runs as job {cluster}.0; follow it with: condor-advice sweep status {directory}"
    )


@sweep.command()
@_DIRECTORY
@json_option
def status(directory: Path, as_json: bool) -> None:
    """Show the progress of the sweep in DIR, and its best trial so far."""
    from condor_advice.dag.status import look

    progress = look(directory)
    if as_json:
        click.echo(json.dumps(progress.as_dict()))
        return
    _print_status(progress)


def _print_status(progress: Status) -> None:
    from rich.console import Console
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    console = Console(highlight=False)
    job = f", DAGMan job {progress.cluster}.0" if progress.cluster is not None else ""
    ended = "" if progress.exit_status is None else f", exit status {progress.exit_status}"
    console.print(f"sweep {progress.name}: {progress.state}{job}{ended}", markup=False)
    line = Table.grid(padding=(0, 1))
    left = "" if progress.seconds_left is None else f"about {_duration(progress.seconds_left)} left"
    line.add_row(
        ProgressBar(progress.total, progress.over, width=40),
        f"{progress.over}/{progress.total} trials",
        left,
    )
    console.print(line)
    counts = [
        f"{count} {word.replace('_', ' ')}" for word, count in progress.trials.items() if count
    ]
    console.print("  " + ", ".join(counts))
    if progress.best is not None:
        best = progress.best
        console.print(
            f"best: trial-{best.trial}, {progress.metric} {best.value:.6g} after epoch "
            f"{best.epoch} ({best.state})"
        )
        shown = ", ".join(f"{name} {value}" for name, value in best.parameters.items())
        console.print(f"  {shown}", markup=False)
    if progress.model is not None:
        console.print(
            f"registered as model {progress.model}: condor-advice model show {progress.model}"
        )
    for held in progress.held:
        where = f"{held['node']} (job {held['job']})"
        console.print(
            f"held: {where}: {held['code']}/{held['subcode']} {held['reason']}", markup=False
        )
        console.print(f"  ask: condor-advice {held['job']}")
    for node in progress.failed_nodes:
        console.print(f"failed: {node['node']}: {node['reason']}", markup=False)
    for trial in progress.failed_trials:
        console.print(f"failed: trial-{trial['trial']}: {trial['reason']}", markup=False)
    if progress.state in ("failed", "cancelled", "interrupted"):
        console.print(
            f"continue with: condor-advice sweep resume {progress.directory}", markup=False
        )
    for note in progress.notes:
        console.print(f"note: {note}", markup=False)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


@sweep.command()
@_DIRECTORY
@json_option
def best(directory: Path, as_json: bool) -> None:
    """Print the best trial of the sweep in DIR: its parameters and the path of its model."""
    from condor_advice.dag.plan import SweepPlan
    from condor_advice.dag.state import SweepState
    from condor_advice.dag.status import learning_curve, require_result

    plan = SweepPlan.load(directory.absolute())
    trial = require_result(plan)
    with SweepState(plan.directory) as state:
        model = state.noted("model")
    if as_json:
        evaluation = json.loads(plan.evaluation.read_text()) if plan.evaluation.exists() else []
        figures = next((entry for entry in evaluation if entry["trial"] == trial.trial), None)
        click.echo(
            json.dumps(
                {
                    "trial": trial.trial,
                    "metric": plan.metric.name,
                    "value": trial.value,
                    "epoch": trial.epoch,
                    "state": trial.state,
                    "parameters": dict(trial.parameters),
                    "network": trial.model,
                    "model": model,
                    "evaluation": figures,
                    "history": learning_curve(plan, trial.trial),
                }
            )
        )
        return
    click.echo(
        f"trial-{trial.trial}: {plan.metric.name} {trial.value:.6g} after epoch {trial.epoch} "
        f"({trial.state})"
    )
    for name, value in trial.parameters.items():
        click.echo(f"  {name}: {value}")
    if model is not None:
        click.echo(
            f"registered as model {model}; promote it with: condor-advice model promote {model}"
        )
    else:
        click.echo(f"its network: {trial.model}")


@sweep.command()
@_DIRECTORY
@json_option
def resume(directory: Path, as_json: bool) -> None:
    """Continue the sweep in DIR: keep what is done, and repeat failed trials."""
    from condor_advice.dag.control import resume as start

    cluster, again = start(directory)
    if as_json:
        click.echo(json.dumps({"cluster": cluster, "failed_trials_again": again}))
        return
    click.echo(f"DAGMan runs as job {cluster}.0; {again} failed trials will be repeated")


@sweep.command()
@_DIRECTORY
@json_option
def cancel(directory: Path, as_json: bool) -> None:
    """Stop the sweep in DIR and remove its jobs; `resume` continues it."""
    from condor_advice.dag.control import cancel as stop

    cluster = stop(directory)
    if as_json:
        click.echo(json.dumps({"cluster": cluster}))
        return
    click.echo(f"job {cluster}.0 and its nodes are being removed")


@sweep.command()
@_DIRECTORY
@json_option
def report(directory: Path, as_json: bool) -> None:
    """Write a report on the sweep in DIR now; the FINAL node writes one at the end."""
    from condor_advice.dag.plan import SweepPlan
    from condor_advice.dag.report import write_report
    from condor_advice.dag.state import SweepState

    plan = SweepPlan.load(directory.absolute())
    with SweepState(plan.directory) as state:
        trials = state.trials()
        model = state.noted("model")
    evaluation = json.loads(plan.evaluation.read_text()) if plan.evaluation.exists() else []
    files = write_report(plan, trials, evaluation, {"model": model} if model else {})
    click.echo(json.dumps({"files": [str(f) for f in files]}) if as_json else str(files[0]))


@sweep.command()
@_DIRECTORY
@click.option("--follow", is_flag=True, help="Keep sending runs until the sweep ends.")
@json_option
def sync(directory: Path, follow: bool, as_json: bool) -> None:
    """Send the sweep in DIR and its runs to W&B; WANDB_API_KEY must be set."""
    from dataclasses import asdict

    from condor_advice.dag import sync as sending
    from condor_advice.dag.plan import SweepPlan
    from condor_advice.dag.status import look

    plan = SweepPlan.load(directory.absolute())

    def say(text: str) -> None:
        click.echo(text, err=as_json)

    if follow:
        result = sending.follow(plan, lambda: look(directory).state == "running", say)
    else:
        result = sending.sync(plan)
    if as_json:
        click.echo(json.dumps(asdict(result)))
    else:
        click.echo(
            f"W&B sweep {result.sweep}: {len(result.runs)} runs sent, {result.unchanged} known"
        )
        for problem in result.problems:
            click.echo(f"not sent: {problem}", err=True)
    if result.problems:
        raise click.exceptions.Exit(1)


@sweep.command()
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the jobs' submit files, output and logs.",
)
@click.option(
    "--store",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The store. [default: CONDOR_ADVICE_STORE, or in the XDG data directory]",
)
@click.option(
    "--gather",
    "logs",
    multiple=True,
    metavar="LOG",
    type=click.Path(path_type=Path),
    help="Also gather this event log regularly; may be repeated.",
)
@click.option("--gather-every", default=5, show_default=True, metavar="MINUTES")
@click.option("--retrain-at", default="3:30", show_default=True, metavar="H:MM")
@click.option("--since", default="90d", show_default=True, help="How far back training goes.")
@click.option("--submit/--no-submit", "do_submit", default=True, show_default=True)
@json_option
def cron(
    out: Path,
    store: Path | None,
    logs: tuple[Path, ...],
    gather_every: int,
    retrain_at: str,
    since: str,
    do_submit: bool,
    as_json: bool,
) -> None:
    """Let HTCondor retrain every night, and gather logs if any are named.

    A new model is used only if it passes the gate. The jobs run on this access point and stay in
    the queue; condor_rm ends them.
    """
    from condor_advice.dag.cron import plan_cron, submit_cron, write_cron
    from condor_advice.gather.store import default_store_path

    jobs = plan_cron(store or Path(default_store_path()), logs, gather_every, retrain_at, since)
    files = write_cron(jobs, out.absolute())
    clusters = submit_cron(jobs, out.absolute()) if do_submit else {}
    if as_json:
        click.echo(json.dumps({"files": [str(file) for file in files], "clusters": clusters}))
        return
    for job, file in zip(jobs, files, strict=True):
        when = f"hour {job.hour}, minute {job.minute}"
        where = f"job {clusters[job.name]}.0" if clusters else f"condor_submit {file}"
        click.echo(f"{job.name} at {when}: {where}")
