"""`condor-advice [JOBID...]`: what to do with held jobs."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from condor_advice.advise.jobids import parse_job_id
from condor_advice.gather.errors import AdviceError, UsageError

if TYPE_CHECKING:
    from condor_advice.advise.advice import Advice
    from condor_advice.advise.asking import Question
    from condor_advice.model.held import HeldModel

# The schedd serves everybody; it is not asked more often than this.
WATCH_SECONDS = 60.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("job_ids", metavar="[JOBID]...", nargs=-1)
@click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="FILE",
    type=click.Path(readable=False),
    help="Read event logs; neither a pool nor a store is needed.",
)
@click.option(
    "--store",
    metavar="FILE",
    type=click.Path(readable=False),
    help="Answer from this store, without asking the schedd.",
)
@click.option("--all", "everybody", is_flag=True, help="Everybody's held jobs.")
@click.option("--user", metavar="NAME", help="The held jobs of one user.")
@click.option(
    "--constraint", metavar="EXPR", help="Held jobs for which a ClassAd expression holds."
)
@click.option("--hold", "number", type=click.IntRange(1), help="The N-th hold, not the last.")
@click.option("--zone", help="Time zone of logs that carry local time (default: the machine's).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per job.")
@click.option("--explain", is_flag=True, help="Say which features and events made the probability.")
@click.option("--watch", is_flag=True, help="Look again every minute, until Ctrl-C.")
def job(
    job_ids: tuple[str, ...],
    logs: tuple[str, ...],
    store: str | None,
    everybody: bool,
    user: str | None,
    constraint: str | None,
    number: int | None,
    zone: str | None,
    as_json: bool,
    explain: bool,
    watch: bool,
) -> None:
    """Say whether held jobs are better released, fixed or removed, and why.

    JOBID is 1234, 1234.7, 1234.0-9 or ap1#1234.7; with none, your own held jobs are meant, as
    the schedd has them.
    """
    if logs and store:
        raise UsageError("--log and --store are two places to look in; name one of them")
    if everybody and user:
        raise UsageError("--all and --user exclude each other")
    from condor_advice.advise.asking import Question

    question = Question(
        wanted=tuple(parse_job_id(text) for text in job_ids),
        logs=logs,
        store=store,
        number=number,
        zone=zone,
        everybody=everybody,
        user=user,
        constraint=constraint,
    )
    if not watch:
        answer(question, as_json, explain)
        return
    while True:
        if sys.stdout.isatty() and not as_json:
            click.clear()
        answer(question, as_json, explain)
        time.sleep(WATCH_SECONDS)


def answer(question: Question, as_json: bool, explain: bool) -> list[Advice]:
    """Find the holds, judge them, print; return the advice for those who act on it."""
    from condor_advice.advise.advice import Adviser
    from condor_advice.advise.asking import find_holds
    from condor_advice.advise.site import load_site

    site = load_site()
    found = find_holds(question, site)
    try:
        if not found.holds:
            click.echo("No job is on hold.", err=as_json)  # a script reads objects or nothing
            for note in found.notes:
                click.echo(f"note: {note}", err=True)
            return []
        model = _model(found.notes)
        adviser = Adviser(model, site, as_of_hold=question.number is not None)
        advices = adviser.advise(found.holds, explain)
    finally:
        found.close()
    if as_json:
        out = "\n".join(json.dumps(advice.as_dict()) for advice in advices)
        click.echo(out)
        for note in found.notes:
            click.echo(f"note: {note}", err=True)
    else:
        from condor_advice.advise.advice import caller
        from condor_advice.advise.report import Style, report

        mine = caller() if found.private else None
        click.echo(report(advices, found.notes, Style.of_stdout(), mine))
    return advices


def _model(notes: list[str]) -> HeldModel | None:
    """Load the model in use; without one the rules answer, and say so."""
    from condor_advice.model.held import STARTER, HeldModel

    try:
        try:
            from condor_advice.model.registry import Registry

            return HeldModel.load(Registry().current())
        except ModuleNotFoundError:
            return HeldModel.load(STARTER)
    except AdviceError as error:
        notes.append(f"no model could be used, so the rules answer: {error}")
        return None
