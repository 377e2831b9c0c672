"""`condor-advice demo`: advise on the held jobs of a log that comes with the package."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.collect import Collector
from condor_advice.gather.store import Store

LOG = Path(__file__).resolve().parents[1] / "demo.log"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Advise on the held jobs of an event log from a real pool."""
    from condor_advice.advise.commands.job import job
    from condor_advice.preprocess.holds.episode_store import KeptEpisodes

    with tempfile.TemporaryDirectory(prefix="condor-advice-") as directory:
        path = Path(directory) / "store.sqlite"
        with Store(path) as store:
            clock = Clock(find_zone("UTC"))
            Collector(store, [str(LOG)], access_point="demo", clock=clock, rotations=False).read()
            KeptEpisodes(store).take_up()
            events = sum(store.counts_by_type().values())
        click.echo(f"{events} events from {LOG.name}, recorded on a real HTCondor pool:\n")
        ctx.invoke(job, store=str(path))
