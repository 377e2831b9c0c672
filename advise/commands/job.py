"""`condor-advice [JOBID...]`: what to do with held jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from condor_advice.advise.advice import advise_on
from condor_advice.advise.jobids import WantedJobs, parse_job_id
from condor_advice.advise.report import report
from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.errors import NoSuchJob
from condor_advice.gather.sequences import JobSequence, read_log, sequences
from condor_advice.gather.store import Store, default_store_path
from condor_advice.preprocess.episodes import HoldEpisode, hold_episodes, is_held


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("job_ids", metavar="[JOBID]...", nargs=-1)
@click.option("--log", "logs", multiple=True, metavar="FILE", help="Read event logs, not a store.")
@click.option("--store", metavar="FILE", help="The store to use.")
@click.option("--hold", "number", type=click.IntRange(1), help="The N-th hold, not the last.")
@click.option("--zone", help="Time zone of logs that carry local time (default: the machine's).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per job.")
def job(
    job_ids: tuple[str, ...],
    logs: tuple[str, ...],
    store: str | None,
    number: int | None,
    zone: str | None,
    as_json: bool,
) -> None:
    """Say whether held jobs are better released, fixed or removed, and why.

    JOBID is 1234, 1234.7, 1234.0-9 or ap1#1234.7; with none, all held jobs are meant.
    """
    wanted = [parse_job_id(text) for text in job_ids]
    found = _from_logs(logs, zone) if logs else _from_store(store, wanted)
    holds = _wanted_holds(found, wanted, number)
    if not holds:
        click.echo("No job is on hold.", err=as_json)  # a script reads objects or nothing
        return
    others = [episode for sequence in found for episode in hold_episodes(sequence)]
    advices = [advise_on(episode, others) for episode in holds]
    if as_json:
        for advice in advices:
            click.echo(json.dumps(advice.as_dict()))
    else:
        click.echo(report(advices))


def _from_logs(logs: Sequence[str], zone: str | None) -> list[JobSequence]:
    clock = Clock(find_zone(zone))
    return sequences(event for log in logs for event in read_log(log, clock).events())


def _from_store(path: str | None, wanted: Sequence[WantedJobs]) -> list[JobSequence]:
    with Store(path or default_store_path(), readonly=True) as store:
        if wanted:
            # A job's cluster-mates are its likes, so the whole cluster is read.
            clusters = dict.fromkeys(jobs.cluster for jobs in wanted)
            pieces = [piece for cluster in clusters for piece in store.job_pieces(cluster)]
        else:
            pieces = list(store.pieces())
        return sequences(
            event for piece in pieces for event in piece.columns.events(piece.access_point)
        )


def _wanted_holds(
    found: Sequence[JobSequence], wanted: Sequence[WantedJobs], number: int | None
) -> list[HoldEpisode]:
    """Return the hold to judge of each job that is asked for, in the order of asking."""
    if not wanted:
        held = [s for s in found if (hold_episodes(s) if number else is_held(s))]
        return [hold for s in held for hold in _chosen(s, number)]
    holds = []
    for jobs in wanted:
        named = [
            sequence
            for sequence in found
            if jobs.includes(sequence.job.cluster, sequence.job.proc)
            and jobs.access_point in (None, sequence.job.access_point)
        ]
        if not named:
            raise NoSuchJob(f"job {jobs}: not in what was read; check the id, or name its --log")
        chosen = [
            hold for sequence in named if number or is_held(sequence)
            for hold in _chosen(sequence, number)
        ]  # fmt: skip
        if not chosen:
            which = f"has no hold number {number}" if number else "is not on hold"
            raise NoSuchJob(f"job {jobs}: {which}")
        holds += chosen
    return holds


def _chosen(sequence: JobSequence, number: int | None) -> list[HoldEpisode]:
    holds = hold_episodes(sequence)
    return holds[-1:] if number is None else holds[number - 1 : number]
