"""`condor-advice [JOBID...]`: what to do with held jobs."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from condor_advice.advise.apply.options import Acting, apply_options
from condor_advice.advise.jobids import is_job_id, parse_job_id
from condor_advice.gather.errors import AdviceError, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


# The schedd serves everybody; it is not asked more often than this.
WATCH_SECONDS = 60.0


def _complete(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the verbs and the caller's held jobs to a shell; a pool that is away is no matter."""
    from click.shell_completion import CompletionItem

    from condor_advice.advise.cli import VERBS

    found = []
    if not ctx.params.get("job_ids"):
        found = [CompletionItem(verb) for verb in VERBS if verb != "job"]
    if not incomplete[:1].isalpha():
        try:
            from condor_advice.gather.live import AccessPoint

            live = AccessPoint.find().held_jobs(mine=True)
            found += [
                CompletionItem(str(one.job), help=str(one.ad.get("HoldReason", ""))[:60])
                for one in live
            ]
        except AdviceError:
            pass
    return [one for one in found if one.value.startswith(incomplete)]


class Unnamed(click.Command):
    """A command that people call without its name, and that is spoken of as they call it."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **more: Any,
    ) -> click.Context:
        """Leave its name out of what usage and errors say."""
        name = parent.info_name if parent else info_name
        return super().make_context(name, args, parent=None, **more)


@click.command(cls=Unnamed, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("job_ids", metavar="[JOBID]...", nargs=-1, shell_complete=_complete)
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
@click.option(
    "--hold",
    "number",
    type=click.IntRange(1),
    metavar="N",
    help="The N-th hold of each job, by what was known then; the default is the last.",
)
@click.option(
    "--zone",
    metavar="ZONE",
    help="Time zone of logs that carry local time (default: the machine's).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per job.")
@click.option("--explain", is_flag=True, help="Say which features and events made the probability.")
@click.option("--watch", is_flag=True, help="Look again every minute, until Ctrl-C.")
@apply_options
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
    acts: bool,
    yes: bool,
    confidence: float | None,
    fix: bool,
    remove: bool,
) -> None:
    """Say whether held jobs are better released, fixed or removed, and why.

    JOBID is 1234, 1234.7, 1234.0-9 or ap1#1234.7; with none, your own held jobs are meant, as
    the schedd has them.
    """
    if logs and store:
        raise UsageError("--log and --store are two places to look in; name one of them")
    if everybody and user:
        raise UsageError("--all and --user exclude each other")
    if job_ids and (user or constraint):
        raise UsageError(
            f"{'--user' if user else '--constraint'} and job ids exclude each other; a cluster "
            "can be part of a constraint: --constraint 'ClusterId == 1234 && ...'"
        )
    if logs:  # `--log *.log`: what a shell makes of it
        more = tuple(word for word in job_ids if not is_job_id(word) and os.path.exists(word))
        job_ids = tuple(word for word in job_ids if word not in more)
        logs += more
    acting = Acting(acts, yes, confidence, fix, remove, quiet=as_json)
    acting.check(log=logs, store=store, hold=number)
    from condor_advice.advise.answer import answer
    from condor_advice.advise.find_holds import Question

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
    while True:
        if watch and sys.stdout.isatty() and not as_json:
            click.clear()
        missing = answer(question, as_json, explain, acting)
        if not watch:
            if missing:
                raise AdviceError("; ".join(missing))
            acting.finish()
            return
        time.sleep(WATCH_SECONDS)
