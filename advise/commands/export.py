"""`condor-advice export`: write events, episodes and features as Parquet, for training."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from condor_advice.advise.commands.options import json_option, zone_option
from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.errors import UsageError
from condor_advice.gather.store import Store, default_store_path

if TYPE_CHECKING:
    from condor_advice.preprocess.holds.timeline import Timeline


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
@click.option(
    "--pseudonymous",
    is_flag=True,
    help="Replace the names of people, hosts, files and batches by keyed hashes, for sharing.",
)
@click.option(
    "--key",
    "key_path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The key of the pseudonyms; created if it is missing. "
    "[default: pseudonyms.key beside the default store]",
)
@json_option
def export(
    directory: Path,
    store_path: str | None,
    logs: tuple[str, ...],
    access_point: str,
    zone: str | None,
    max_steps: int,
    no_events: bool,
    pseudonymous: bool,
    key_path: Path | None,
    as_json: bool,
) -> None:
    """Write events, hold episodes and features as Parquet to DIR.

    Each hold comes with its outcome, where known. Like the store, DIR contains user and file
    names: choose its place with care, or add --pseudonymous. docs/export.md describes its content.
    """
    if key_path is not None and not pseudonymous:
        raise click.UsageError("--key is for pseudonyms; add --pseudonymous")
    from condor_advice.preprocess.holds.export import export as write
    from condor_advice.preprocess.holds.tensors import TensorSpec
    from condor_advice.preprocess.holds.timeline import log_timeline, store_timeline

    spec = TensorSpec(max_steps=max_steps)
    disguised = _disguise(directory, key_path) if pseudonymous else lambda timeline: timeline
    if logs:
        timeline = disguised(log_timeline(logs, Clock(find_zone(zone)), access_point))
        exported = write(timeline, directory, spec, events=not no_events)
    else:
        with Store(store_path or default_store_path(), readonly=True) as store:
            timeline = disguised(store_timeline(store))
            exported = write(timeline, directory, spec, events=not no_events)
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


def _disguise(directory: Path, key_path: Path | None) -> Callable[[Timeline], Timeline]:
    """Return what gives pseudonyms to the names of a timeline."""
    from condor_advice.preprocess.holds.pseudonyms import (
        PseudonymousTimeline,
        Pseudonyms,
        default_key_path,
        read_or_make_key,
    )

    # A file of an earlier export could still have names in it.
    if directory.is_dir() and any(directory.iterdir()):
        raise UsageError(f"{directory}: is not empty; write what you share into a new directory")
    key_path = key_path or default_key_path()
    if directory.resolve() in key_path.resolve().parents:
        raise UsageError(
            f"{key_path}: whoever gets {directory} must not get the key; keep it elsewhere"
        )
    pseudonyms = Pseudonyms(read_or_make_key(key_path))
    return lambda timeline: PseudonymousTimeline(timeline, pseudonyms)
