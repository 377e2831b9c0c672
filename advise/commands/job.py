"""`condor-advice [JOBID...]`: advise on held jobs."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from condor_advice.advise.apply import Acting, apply_options
from condor_advice.advise.commands.options import zone_option
from condor_advice.advise.jobids import is_job_id, is_user_name, parse_job_id
from condor_advice.gather.errors import AdviceError, UsageError
from condor_advice.gather.foreign_text import clear_screen, one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


# The schedd serves everybody, so do not query it more often.
WATCH_SECONDS = 60.0


def _complete(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete verbs and the caller's held jobs; without a pool, verbs alone."""
    from click.shell_completion import CompletionItem

    from condor_advice.advise.cli import VERBS

    items = []
    if not ctx.params.get("job_ids"):
        items = [CompletionItem(verb) for verb in VERBS if verb != "job"]
    if not incomplete[:1].isalpha():
        try:
            from condor_advice.gather.live import AccessPoint

            items += [
                CompletionItem(str(live.job), help=one_line(live.ad.get("HoldReason", ""), 60))
                for live in AccessPoint.find().held_jobs(mine=True)
            ]
        except AdviceError:
            pass
    return [item for item in items if item.value.startswith(incomplete)]


class Unnamed(click.Command):
    """A command that is called without its name, so usage and errors omit the name."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **more: Any,
    ) -> click.Context:
        """Use the parent's name instead of the command's own."""
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
    help="Answer from event logs; no pool or store is needed.",
)
@click.option(
    "--store",
    metavar="FILE",
    type=click.Path(readable=False),
    help="Answer from this store, without asking the schedd.",
)
@click.option("--all", "everybody", is_flag=True, help="Advise on everybody's held jobs.")
@click.option("--user", metavar="NAME", help="Advise on the held jobs of one user.")
@click.option(
    "--constraint", metavar="EXPR", help="Advise on the held jobs that match a ClassAd expression."
)
@click.option(
    "--hold",
    "number",
    type=click.IntRange(1),
    metavar="N",
    help="Judge each job's N-th hold by what was known then. [default: the last]",
)
@zone_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per job.")
@click.option(
    "--explain", is_flag=True, help="Show which features and events contributed to the probability."
)
@click.option("-v", "--verbose", is_flag=True, help="Show the details of each group, not one line.")
@click.option("--watch", is_flag=True, help="Repeat every minute until Ctrl-C.")
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
    verbose: bool,
    watch: bool,
    acts: bool,
    yes: bool,
    confidence: float | None,
    fix: bool,
    remove: bool,
) -> None:
    """Say whether to release, fix or remove held jobs, and why.

    JOBID is 1234, 1234.7, 1234.0-9 or ap1#1234.7. Without a JOBID, the schedd is asked for your
    held jobs. A user's name instead of ids means --user NAME.
    """
    names = [word for word in job_ids if is_user_name(word)]
    if names and not logs:
        if user or everybody or len(job_ids) > 1:
            raise UsageError(f"{names[0]!r} is no job id; name one user, or job ids")
        user, job_ids = names[0], ()
    if logs and store:
        raise UsageError("--log and --store exclude each other")
    if everybody and user:
        raise UsageError("--all and --user exclude each other")
    if job_ids and (user or constraint):
        raise UsageError(
            f"{'--user' if user else '--constraint'} and job ids exclude each other; a cluster "
            "can be part of a constraint: --constraint 'ClusterId == 1234 && ...'"
        )
    if logs:  # `--log *.log`, as the shell expands it
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
        bare_word=bool(names) and not logs,
    )
    while True:
        if watch and sys.stdout.isatty() and not as_json:
            clear_screen()
        missing = answer(question, as_json, explain, acting, verbose)
        if not watch:
            if missing:
                raise AdviceError("; ".join(missing))
            acting.finish()
            return
        time.sleep(WATCH_SECONDS)
