"""`condor-advice annotate`: write advice into the ads of held jobs, for `condor_q` and policies.

Administrators run it on the access point, from SCHEDD_CRON or cron. Then anybody can run
`condor_q -af AdviceVerdict`, and SYSTEM_PERIODIC_RELEASE can use the attributes.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from condor_advice.advise.commands.options import json_option
from condor_advice.gather.errors import AdviceError, Unreachable
from condor_advice.gather.foreign_text import one_line

if TYPE_CHECKING:
    from condor_advice.advise.advice import Advice
    from condor_advice.gather.live import AccessPoint, LiveJob

VERDICT, PROBABILITY, SOURCE, AT = (
    "AdviceVerdict",
    "AdviceProbability",
    "AdviceSource",
    "AdviceAt",
)
JOBS_PER_EDIT = 1000


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--constraint", metavar="EXPR", help="Annotate only held jobs that match a ClassAd expression."
)
@click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
@click.option(
    "--cron",
    is_flag=True,
    help="Print totals as ClassAd attributes, for SCHEDD_CRON to add to the schedd's ad.",
)
@json_option
def annotate(constraint: str | None, dry_run: bool, cron: bool, as_json: bool) -> None:
    """Write the advice into held jobs' ads, for condor_q.

    The attributes are AdviceVerdict, AdviceProbability, AdviceSource and AdviceAt. AdviceAt is
    the time of the advice; if it is later than EnteredCurrentStatus, the advice is about the
    current hold. Jobs whose ads already have the same advice are not touched.
    """
    from condor_advice.advise.answer import judge, remember
    from condor_advice.advise.find_holds import Question
    from condor_advice.gather.ledger import now
    from condor_advice.gather.live import AccessPoint
    from condor_advice.model.held.rules import Verdict

    point = AccessPoint.find()
    question = Question(everybody=True, constraint=constraint)
    advices, found_holds = judge(question)
    for problem in found_holds.unjudged:
        click.echo(f"note: {one_line(problem)}", err=True)
    if any(not advice.hold.ad for advice in advices):
        raise Unreachable(
            "the schedd stopped answering, so nothing was written; check that it is running"
        )
    current = {live.job: live for live in _held_ads(point, advices)}
    changed = [
        advice for advice in advices
        if advice.hold.job in current and not _is_current(current[advice.hold.job], advice)
    ]  # fmt: skip
    refused = [] if dry_run else _write(point, changed, int(now()))
    if not dry_run:
        remember([advice for advice in changed if str(advice.hold.job) not in refused])
    counts = Counter(advice.verdict.value for advice in advices)
    totals = {
        "held": len(advices),
        "written": 0 if dry_run else len(changed) - len(refused),
        "unchanged": len(advices) - len(changed),
        "would_write": len(changed) if dry_run else None,
        "verdicts": dict(counts),
        "refused": refused,
    }
    if cron:
        # A line of "-" ends the ad; the prefix comes from SCHEDD_CRON_ADVICE_PREFIX.
        for verdict in Verdict:
            click.echo(f"Held{verdict.value.capitalize()} = {counts[verdict.value]}")
        click.echo(f"HeldAt = {int(now())}\n-")
    elif as_json:
        click.echo(json.dumps(totals))
    else:
        _print(totals, dry_run)
    if refused:
        raise AdviceError(
            f"cannot edit {len(refused)} jobs ({', '.join(refused[:5])}...); only users in "
            "QUEUE_SUPER_USERS may edit other users' job ads"
        )


def _held_ads(point: AccessPoint, advices: Sequence[Advice]) -> list[LiveJob]:
    """Return the ads of the jobs that are still held, with one query."""
    jobs = [(advice.hold.job.cluster, advice.hold.job.proc) for advice in advices]
    wanted = ("ClusterId", "ProcId", "JobStatus", "EnteredCurrentStatus", VERDICT, PROBABILITY,
              SOURCE, AT)  # fmt: skip
    from condor_advice.gather.events import JobStatus

    return [live for live in point.jobs(jobs, wanted) if live.ad.get("JobStatus") == JobStatus.HELD]


def _values(advice: Advice) -> dict[str, str]:
    return {
        VERDICT: f'"{advice.verdict.value}"',
        PROBABILITY: f"{advice.p_success:.2f}",
        SOURCE: f'"{advice.source}"',
    }


def _is_current(live: LiveJob, advice: Advice) -> bool:
    """Tell whether an ad already has this advice about this hold."""
    ad = live.ad
    if ad.get(AT, 0) < ad.get("EnteredCurrentStatus", 0):
        return False
    annotated = {
        VERDICT: f'"{ad.get(VERDICT)}"',
        PROBABILITY: f"{float(ad.get(PROBABILITY, -1)):.2f}",
        SOURCE: f'"{ad.get(SOURCE)}"',
    }
    return annotated == _values(advice)


def _write(point: AccessPoint, advices: Sequence[Advice], at: int) -> list[str]:
    """Write the attributes, many jobs in one edit; return the jobs that could not be edited.

    AdviceAt is written last, so that a reader who checks it never sees partial advice.
    """
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for advice in advices:
        for name, value in _values(advice).items():
            groups[name, value].append(str(advice.hold.job))
    refused: set[str] = set()
    for (name, value), jobs in groups.items():
        refused |= point.annotate(jobs, name, value, JOBS_PER_EDIT)
    written = [str(advice.hold.job) for advice in advices]
    refused |= point.annotate(
        [job for job in written if job not in refused], AT, str(at), JOBS_PER_EDIT
    )
    return sorted(refused)


def _print(totals: dict[str, Any], dry_run: bool) -> None:
    verdicts = ", ".join(f"{count} {name}" for name, count in sorted(totals["verdicts"].items()))
    click.echo(f"{totals['held']} held jobs" + (f": {verdicts}" if verdicts else ""))
    if dry_run:
        click.echo(f"{totals['would_write']} would be written, {totals['unchanged']} are unchanged")
    else:
        click.echo(f"{totals['written']} written, {totals['unchanged']} unchanged")
