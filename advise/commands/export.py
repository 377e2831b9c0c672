"""`condor-advice export`: write events, episodes and features as Parquet, for training."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from condor_advice.advise.commands.options import json_option, zone_option
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
@click.option("--access-point", default="", metavar="NAME", help="Access point of the logs.")
@zone_option
@click.option(
    "--max-steps",
    default=64,
    show_default=True,
    type=click.IntRange(2, 4096),
    help="How many steps of each job to keep, counted back from the hold.",
)
@click.option("--no-events", is_flag=True, help="Leave out the table of all events.")
@json_option
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
    """Write events, hold episodes and features as Parquet to DIR.

    Each hold comes with its outcome, where known. Like the store, DIR contains user and file
    names: choose its place with care. docs/export.md describes its content.
    """
    from condor_advice.preprocess.holds.export import export as write
    from condor_advice.preprocess.holds.tensors import TensorSpec
    from condor_advice.preprocess.holds.timeline import log_timeline, store_timeline

    spec = TensorSpec(max_steps=max_steps)
    if logs:
        timeline = log_timeline(logs, Clock(find_zone(zone)), access_point)
        exported = write(timeline, directory, spec, events=not no_events)
    else:
        with Store(store_path or default_store_path(), readonly=True) as store:
            exported = write(store_timeline(store), directory, spec, events=not no_events)
    if as_json:
        click.echo(json.dumps(asdict(exported)))
        return
    click.echo(
        f"{exported.events:,} events, {exported.episodes:,} hold episodes, "
        f"{exported.labelled:,} of them with a known outcome after a release"
    )
    for name, count in sorted(exported.outcomes.items(), key=lambda item: -item[1]):
        click.echo(f"  {name.lower().replace('_', ' '):15} {count:,}")
    oddities = {
        name: exported.counts.get(name, 0)
        for name in ("duplicates", "submits_not_seen", "out_of_order", "clock_steps")
    }
    if any(oddities.values()):
        click.echo(
            "oddities: "
            + ", ".join(
                f"{count:,} {name.replace('_', ' ')}" for name, count in oddities.items() if count
            )
        )
    if not exported.episodes:
        click.echo("these logs contain no holds, so there is nothing to learn from yet")
