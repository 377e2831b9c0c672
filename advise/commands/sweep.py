"""`condor-advice sweep`: search for better models on a pool, with DAGMan and W&B's sweep files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from condor_advice.dag.planning import Recording

_DIRECTORY = click.argument(
    "directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path)
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def sweep() -> None:
    """Search for better models on a pool: a W&B sweep file becomes a DAG."""


@sweep.command()
@click.argument("file", metavar="SWEEP.YAML", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--trials", type=int, help="How many trials. [default: run_cap of the file]")
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new directory for the sweep.",
)
@_JSON
def init(file: Path, trials: int | None, out: Path, as_json: bool) -> None:
    """Check SWEEP.YAML and write the DAG, the data and the environment into DIR."""
    from condor_advice.dag.planning import plan_sweep

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
        f"{plan.trials} trials by {plan.method} for the {plan.metric.goal[:3]}imum of "
        f"{plan.metric.name}; submit them with: condor-advice sweep submit {out}"
    )


def recordings() -> dict[str, Recording]:
    """Return the lab's recordings, which dag/ does not know of."""
    from condor_advice.dag.planning import Recording
    from condor_advice.lab.recording import shipped, unpack

    def opener(name: str) -> Recording:
        return Recording(
            20 * int(shipped()[name]["bytes"]),
            lambda into: unpack(name, into) / "events" / "EventLog",
        )

    return {name: opener(name) for name in shipped()}


@sweep.command()
@_DIRECTORY
@_JSON
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
