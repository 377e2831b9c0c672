"""`condor-advice history`: list past actions on held jobs and their outcomes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from condor_advice.advise.jobids import parse_job_id
from condor_advice.gather.errors import NoSuchJob, Unreachable
from condor_advice.gather.foreign_text import one_line

if TYPE_CHECKING:
    from condor_advice.advise.jobids import WantedJobs
    from condor_advice.gather.ledger import Action


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("job_ids", metavar="[JOBID]...", nargs=-1)
@click.option(
    "--days",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    help="How far back to look.",
)
@click.option(
    "--store",
    metavar="FILE",
    type=click.Path(readable=False, path_type=Path),
    help="The store to read, in addition to your own ledger.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per action.")
def history(job_ids: tuple[str, ...], days: float, store: Path | None, as_json: bool) -> None:
    """Show what `condor-advice --apply` did, and the outcomes.

    The outcome of a release is looked up in the queue, the schedd's history, the store and the
    job's own log, whichever can be reached.
    """
    from condor_advice.advise.apply import past_with_effects, reachable_sources
    from condor_advice.gather.ledger import now

    wanted = [parse_job_id(text) for text in job_ids]
    sources = reachable_sources(store)
    actions = past_with_effects(sources, store, now(), since=now() - 86400 * days)
    shown = [action for action in actions if not wanted or _is_wanted(action, wanted)]
    if as_json:
        from condor_advice.advise.apply import action_as_dict

        for action in shown:
            click.echo(json.dumps(action_as_dict(action)))
    elif not shown:
        if wanted and (unknown := _unknown(wanted, now() - 86400 * days)):
            raise NoSuchJob(unknown)
        of = f" on {' '.join(map(str, wanted))}" if wanted else ""
        click.echo(f"No actions{of} in the last {days:g} days.")
    else:
        _print(shown)


def _unknown(wanted: Sequence[WantedJobs], since: float) -> str:
    """Say which of the named jobs neither the queue nor the schedd's history has."""
    from condor_advice.gather.live import AccessPoint

    try:
        point = AccessPoint.find()
        queued = point.jobs([(jobs.cluster, None) for jobs in wanted])
        ended = point.finished_jobs([(jobs.cluster, None) for jobs in wanted], since)
    except Unreachable:
        return ""  # nobody can tell
    known = [live.job for live in (*queued, *ended)]
    missing = [
        jobs for jobs in wanted if not any(jobs.includes(job.cluster, job.proc) for job in known)
    ]
    return "; ".join(f"there is no job {jobs} in the queue or the history" for jobs in missing)


def _is_wanted(action: Action, wanted: Sequence[WantedJobs]) -> bool:
    given = action.advice
    return any(
        jobs.includes(given.cluster, given.proc) and jobs.access_point in (None, given.access_point)
        for jobs in wanted
    )


def _print(actions: Sequence[Action]) -> None:
    rows = [("WHEN", "JOB", "ACTION", "RESULT", "OUTCOME", "ADVICE")]
    for action in actions:
        given = action.advice
        first = " first" if action.canary else ""
        advice = f"{given.verdict} {given.p_success:.0%} ({given.source})"
        rows.append(
            (
                datetime.fromtimestamp(action.at).strftime("%m-%d %H:%M"),
                str(given.job),
                action.action + first,
                action.result.value,
                one_line(_effect(action)),
                advice,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
    click.echo()
    click.echo(_totals(actions))


def _effect(action: Action) -> str:
    from condor_advice.gather.ledger import Result

    if action.result is not Result.DONE:
        return action.message
    return action.effect.value if action.action == "release" else ""


def _totals(actions: Sequence[Action]) -> str:
    from condor_advice.gather.ledger import Result

    done = [action for action in actions if action.result is Result.DONE]
    released = [action for action in done if action.action == "release"]
    effects = Counter(action.effect.value for action in released)
    words = [f"{count} {effect}" for effect, count in effects.most_common()]
    parts = [f"{len(released)} released" + (f": {', '.join(words)}" if words else "")]
    for name, word in (("edit", "edited"), ("remove", "removed")):
        if count := sum(action.action == name for action in done):
            parts.append(f"{count} {word}")
    if others := len(actions) - len(done):
        parts.append(f"{others} not done")
    return "; ".join(parts)
