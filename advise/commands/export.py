"""`condor-advice export`: Parquet of events, episodes and features, for training."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.store import Store, default_store_path


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--store",
    "store_path",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The store to export. [default: CONDOR_ADVICE_STORE, or in the XDG data directory]",
)
@click.option(
    "--log",
    "logs",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="Export event logs instead of a store; may be given several times.",
)
@click.option("--access-point", default="", metavar="NAME", help="Whose jobs the logs' are.")
@click.option(
    "--zone",
    metavar="ZONE",
    help="Time zone of logs that are not in UTC. [default: this machine's]",
)
@click.option(
    "--max-steps",
    default=64,
    show_default=True,
    type=click.IntRange(2, 4096),
    help="Steps of each job that are kept, counted back from the hold.",
)
@click.option("--no-events", is_flag=True, help="Leave out the table of all events.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def export(
    directory: Path,
    store_path: str | None,
    logs: tuple[str, ...],
    access_point: str,
    zone: str | None,
    max_steps: int,
    no_events: bool,
    as_json: bool,
) -> None:
    """Write events, hold episodes and features as Parquet files into DIR.

    What came of each hold is beside it, as far as it is known. DIR holds names of people and
    files, like the store itself: take care where it goes. docs/export.md says what is in it.
    """
    from condor_advice.preprocess.holds.export import export as write
    from condor_advice.preprocess.holds.tensors import TensorSpec
    from condor_advice.preprocess.holds.timeline import log_timeline, store_timeline

    spec = TensorSpec(max_steps=max_steps)
    if logs:
        timeline = log_timeline(logs, Clock(find_zone(zone)), access_point)
        found = write(timeline, directory, spec, events=not no_events)
    else:
        with Store(store_path or default_store_path(), readonly=True) as store:
            found = write(store_timeline(store), directory, spec, events=not no_events)
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    click.echo(
        f"{found.events:,} events, {found.episodes:,} hold episodes, "
        f"{found.labelled:,} of them with a known outcome of a release"
    )
    for name, count in sorted(found.outcomes.items(), key=lambda item: -item[1]):
        click.echo(f"  {name.lower().replace('_', ' '):15} {count:,}")
    odd = {
        name: found.counts.get(name, 0)
        for name in ("duplicates", "submits_not_seen", "out_of_order", "clock_steps")
    }
    if any(odd.values()):
        click.echo(
            "odd: "
            + ", ".join(
                f"{count:,} {name.replace('_', ' ')}" for name, count in odd.items() if count
            )
        )
    if not found.episodes:
        click.echo("no job was ever held in these logs: there is nothing to learn from yet")
