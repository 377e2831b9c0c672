"""Advice as text: an overview with a line per group, or a block per group with the details.

Several jobs get the overview (overview.py). One job, one group that was asked for by its ids, and
`-v` get blocks: what to do, then why, then how sure. A terminal gets colours; a pipe gets the same
words without them.
"""

from __future__ import annotations

import math
import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from condor_advice.advise.advice import Advice
from condor_advice.advise.because import Because
from condor_advice.advise.job_facts import last_message, missing_directory, removal, workflow
from condor_advice.advise.overview import COLOURS, compact_ids, overview, ranges, span_words
from condor_advice.advise.remedies import PATHS_FAULT, POINTS_FAULT, named_path
from condor_advice.advise.terminal_style import Style
from condor_advice.gather.events import JobId, JobStatus
from condor_advice.gather.foreign_text import one_line, shell_word
from condor_advice.model.held.rules import Verdict
from condor_advice.preprocess.holds.known import Tally

__all__ = ["Group", "Style", "commands", "compact_ids", "grouped", "hours", "ranges", "report"]

SHOWN_IDS = 8  # ranges of ids in a title
SHOWN_OWNERS = 4
SHOWN_BLOCKS = 12
# Somebody held the job on purpose: a chance would mean nothing.
BY_HAND = (
    Because.OWNER_HELD,
    Because.SOMEBODY_ELSE_HELD,
    Because.SOMEBODY_HELD,
    Because.ON_PURPOSE,
)
LONGEST_WORDS = 20_000  # characters of a sentence, and of a command that can still be pasted
LONGEST_COMMAND = 100_000
LONGEST_CONSTRAINT = 2000  # characters of a command
PROCS_IN_A_TERM = 300  # of one cluster
SHOWN_COMMANDS = 8  # of one kind in a block
SHOWN_ATTRIBUTIONS = 8
SHOWN_PATHS = 4  # besides the first
LABEL = 9  # columns before the words


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs with one verdict for one reason."""

    advices: tuple[Advice, ...]
    hidden: bool = False  # other people's: counted, not named
    owners: tuple[str, ...] = ()  # named where the answer is about several people's jobs

    @property
    def first(self) -> Advice:
        """The one that speaks for all."""
        return self.advices[0]

    def __len__(self) -> int:
        return len(self.advices)


def report(
    advices: Sequence[Advice],
    notes: Sequence[str] = (),
    style: Style | None = None,
    mine: str | None = None,
    by: str = "",
    *,
    verbose: bool = False,
    named: bool = False,
    complete: bool = False,
) -> str:
    """Return the whole answer: the groups, largest first, then totals and what is missing.

    With `mine`, jobs of other owners are counted and not named. `named` tells that the caller
    named the jobs, `complete` that the answer has all held jobs of each cluster.
    """
    style = style or Style()
    groups = grouped(advices, mine)
    if not (verbose or len(advices) == 1 or (named and len(groups) == 1)):
        lines = overview(advices, style, mine, complete=complete)
        return "\n".join([*lines, "", _totals(advices, notes, style, by, more=True)])
    parts = [_block(group, style) for group in groups[:SHOWN_BLOCKS]]
    if len(groups) > SHOWN_BLOCKS:
        rest = [advice for group in groups[SHOWN_BLOCKS:] for advice in group.advices]
        parts.append("\n".join(overview(rest, style, mine)))
        parts.append("These are shown in short: name their ids, or use --json")
    parts.append(_totals(advices, notes, style, by))
    return "\n\n".join(parts)


def grouped(advices: Iterable[Advice], mine: str | None = None) -> list[Group]:
    """Group jobs that share a verdict, a reason and the commands that mend it.

    With `mine`, other owners' jobs are in groups of their own, which are hidden.
    """
    groups: dict[tuple[object, ...], list[Advice]] = {}
    owners: set[str] = set()
    for advice in advices:
        hold, rule = advice.hold, advice.rule
        owners.add(hold.owner)
        hidden = mine is not None and hold.owner != mine
        programs = () if hidden else tuple(command.split(" ")[0] for command in advice.commands)
        reason = (rule.id, hold.code, hold.subcode, "" if hidden else hold.template)
        groups.setdefault((hidden, advice.verdict, programs, *reason), []).append(advice)
    return sorted(
        (
            Group(tuple(members), bool(key[0]), _owners(members) if len(owners) > 1 else ())
            for key, members in groups.items()
        ),
        key=lambda group: (-len(group), group.first.hold.job),
    )


def _owners(advices: Iterable[Advice]) -> tuple[str, ...]:
    """Return the owners of these jobs, the one with most jobs first."""
    counts = Counter(advice.hold.owner for advice in advices if advice.hold.owner)
    return tuple(owner for owner, _ in counts.most_common())


# ---- one group -------------------------------------------------------------------------------


def _block(group: Group, style: Style) -> str:
    """Say what to do, then why, then how sure that is."""
    advice = group.first
    hold = advice.hold
    now = style.now or datetime.now(UTC)
    title = f"{advice.verdict.value:<8} "
    lines = _wrapped(title, f"{_who(group)}: {advice.rule.name}", style.prose, " " * LABEL).split(
        "\n"
    )
    lines[0] = style.paint(title.strip(), COLOURS[advice.verdict]) + lines[0][len(title.strip()) :]
    lines.append(labelled_line("do", _do(group), style))
    when = _when(group, now)
    if group.hidden:
        # Reasons, templates and evidence may name users, files and hosts; the rule's text cannot.
        lines.append(labelled_line("held", when, style))
    else:
        lines += [
            f"{'':11}{style.strong(one_line(command, LONGEST_COMMAND))}"
            for command in commands(group)
        ]
        lines.append(labelled_line("why", "; ".join(why(advice)), style))
        held = f"{when}: {shortened(hold.reason) or 'no reason given'}"
        lines.append(labelled_line("held", held, style, limit=4))
        lines += [
            labelled_line(label, words, style) for label, words in _facts(group, now) if words
        ]
    if advice.grounds.reason not in BY_HAND:  # nobody's releases tell what a person wants
        sure = "; ".join([_chance(group), *([] if group.hidden else how_sure(advice))])
        lines.append(labelled_line("sure", sure, style))
    if advice.attributions and not group.hidden:
        lines += _explained(advice, style)
    if cost := _cost(group):
        lines.append(labelled_line("cost", cost, style))
    return "\n".join(lines)


def _facts(group: Group, now: datetime) -> list[tuple[str, str]]:
    """Return what a person would look up next, each with its label; empty where unknown."""
    hold = group.first.hold
    missing = missing_directory(hold)
    first = "" if len(group) == 1 else f"{hold.job}: "
    message = last_message(hold)
    return [
        ("stderr", f"{first}{message}" if message else ""),
        ("dag", workflow(hold)),
        ("missing", f"the directory {missing} does not exist" if missing else ""),
        ("until", removal(hold, now)),
    ]


_TRANSFER = re.compile(
    r"^(Transfer \w+ files failure) at .*? Details: (?:\d+ total failures: first failure: )?"
)
_ERROR_FROM = re.compile(r"^Error from \S+: ")


def shortened(reason: str) -> str:
    """Return a hold reason without the job's owner and host, which are shown beside it."""
    words = " ".join(one_line(reason).split())
    return _ERROR_FROM.sub("", _TRANSFER.sub(r"\1: ", words))


def _who(group: Group) -> str:
    if group.hidden:
        return _jobs(len(group)) + " of others"
    jobs = [advice.hold.job for advice in group.advices]
    count = f"{len(jobs):,} jobs, " if len(jobs) > 1 else ""
    return count + compact_ids(jobs, SHOWN_IDS) + _whose(group.owners)


def _whose(owners: Sequence[str]) -> str:
    if not owners:
        return ""
    more = len(owners) - SHOWN_OWNERS
    return f" of {', '.join(owners[:SHOWN_OWNERS])}" + (f" and {more:,} more" if more > 0 else "")


def _chance(group: Group) -> str:
    chances = sorted(advice.p_success for advice in group.advices)
    low, high = group.first.interval
    if all(advice.remedy.gone for advice in group.advices):
        # The model judged the hold, not what was mended since.
        return "already corrected"
    if len(group) > 1 and f"{chances[0]:.0%}" != f"{chances[-1]:.0%}":
        return f"{chances[0]:.0%} to {chances[-1]:.0%} would succeed if released as is"
    # An estimate lies within its interval, also once all three are rounded.
    percent = min(99, max(1, round(100 * group.first.p_success)))
    low, high = min(math.floor(100 * low), percent - 1), max(math.ceil(100 * high), percent + 1)
    return f"{percent}% would succeed if released as is ({low}% to {high}%)"


def _when(group: Group, now: datetime) -> str:
    first = min(advice.hold.at for advice in group.advices)
    hold = group.first.hold
    parts = [_ago((now - first).total_seconds())]
    if hold.code is not None:
        subcode = "" if hold.subcode is None else f"/{hold.subcode}"
        parts.insert(0, f"{hold.code}{subcode}")
    if len(group) == 1 and hold.number > 1:
        parts.append(f"for the {_ordinal(hold.number)} time")
    points = {advice.hold.point for advice in group.advices}
    if len(points) == 1 and hold.point and not group.hidden:
        parts.append(f"on {hold.point}")
    return ", ".join(parts)


def why(advice: Advice) -> list[str]:
    """Return the reasons for the verdict: what the rule says, then what the job went through."""
    evidence = advice.evidence
    reasons = [advice.rule.why]
    if evidence.program_clusters:
        reasons.append(
            f"{_counted(evidence.program_clusters, 'other submission')} of this program had "
            "jobs held for it"
        )
    if evidence.came_back:
        reasons.append(f"this job was held for it {_times(evidence.came_back)} before")
    starts = evidence.starts
    if starts:
        reasons.append(f"it was started {_times(starts)}")
    if evidence.black_hole:
        reasons.append(
            f"{evidence.point_share:.0%} of the last hour's holds for this reason were on "
            f"{advice.hold.point}, where {evidence.point_start_share:.0%} of all jobs start"
        )
    elif advice.hold.family in POINTS_FAULT and (evidence.point_starts or 0) > 1:
        starts, holds = evidence.point_starts or 0, evidence.point_holds or 0
        reasons.append(
            f"its execution point in the hour before: {_counted(starts, 'start')}, "
            f"{_counted(holds, 'hold')} for this reason"
        )
    if advice.verdict in (Verdict.ASK, Verdict.REMOVE) or advice.verdict != advice.rule.verdict:
        reasons.append(advice.because)
    return reasons


def how_sure(advice: Advice) -> list[str]:
    """Return the counts of like cases that the chance rests on."""
    evidence = advice.evidence
    like = evidence.like
    counts = []
    if like is not None and (like.as_is.released or like.changed.released):
        counts.append(
            f"of the jobs held for this reason in the last {_span(like.seconds)}, "
            f"{_came_of(like.as_is, like.changed)}"
        )
    elif like is not None:
        counts.append("no outcome of a release after such a hold is known here yet")
    if evidence.mates.released or evidence.mates_changed.released:
        counts.append(f"in its own cluster, {_came_of(evidence.mates, evidence.mates_changed)}")
    return counts


def _came_of(as_is: Tally, changed: Tally) -> str:
    """Say how many jobs finished: those released as is, and those changed before the release."""
    parts = []
    if as_is.released or not changed.released:
        parts.append(f"{as_is.succeeded:,} of {as_is.released:,} finished after a release as is")
    if changed.released:
        parts.append(f"{changed.succeeded:,} of {changed.released:,} after a change")
    return ", ".join(parts)


def _do(group: Group) -> str:
    if group.hidden:
        return group.first.rule.remedy  # in words that name nobody's files
    remedy = group.first.remedy
    texts = dict.fromkeys(advice.remedy.text for advice in group.advices)
    if len(texts) > 1 and remedy.edits:
        return f"{remedy.text} (each job's own size is in its command)"
    if len(texts) > 1:
        return f"{remedy.text} (this is for the first one; {_likewise(group)})"
    unsure = group.first.grounds.reason is Because.TOO_LITTLE_KNOWN
    if unsure and group.first.rule.verdict is Verdict.RELEASE:
        return f"look at it; if it is worth a try: {remedy.text}"
    return remedy.text


def _likewise(group: Group) -> str:
    """Name the files that the other jobs of the group lack, where files are missing."""
    paths = dict.fromkeys(
        named_path(advice.hold.reason)
        for advice in group.advices
        if advice.hold.family in PATHS_FAULT
    )
    others = [path for path in paths if path][1:]
    if not others:
        return "the others likewise, see --json"
    more = len(others) - SHOWN_PATHS
    rest = f" and {more:,} more, see --json" if more > 0 else ""
    return f"likewise {', '.join(others[:SHOWN_PATHS])}{rest}"


def _cost(group: Group) -> str:
    failed = sum(advice.cost.failed_release_cpu_hours for advice in group.advices)
    wrong = sum(advice.cost.wrong_remove_cpu_hours for advice in group.advices)
    if not any(advice.cost.known for advice in group.advices):
        return ""
    if not any(advice.cost.has_run for advice in group.advices):
        return "it has not run yet: a failed release costs next to nothing"
    return f"a failed release costs about {hours(failed)}, a wrong remove about {hours(wrong)}"


def _explained(advice: Advice, style: Style) -> list[str]:
    lines = []
    for row, attribution in enumerate(advice.attributions[:SHOWN_ATTRIBUTIONS]):
        label = "model" if row == 0 else ""
        lines.append(labelled_line(label, f"{attribution.effect:+.2f} {attribution.words}", style))
    return lines


# ---- commands --------------------------------------------------------------------------------


def commands(group: Group) -> list[str]:
    """Return the commands for a group; one command names all jobs that it is the same for."""
    if len(group) == 1:
        return list(group.first.commands)
    by_hand: dict[str, None] = {}
    edits: dict[tuple[str, str], list[JobId]] = {}
    verbs: dict[str, list[JobId]] = {}
    for advice in group.advices:
        job = advice.hold.job
        for name, value in advice.remedy.edits:
            edits.setdefault((name, value), []).append(job)
        for command in advice.commands:
            words = command.split(" ")
            if command in (f"condor_release {job}", f"condor_rm {job}"):
                verbs.setdefault(words[0], []).append(job)
            elif words[0] != "condor_qedit":
                by_hand[command] = None
    shown = list(by_hand)
    shown += [
        f"condor_qedit {named} {name} {shell_word(value)}"
        for (name, value), jobs in edits.items()
        for named in _named(jobs)
    ]
    for verb, jobs in verbs.items():
        few = len(jobs) <= SHOWN_IDS
        names = [" ".join(map(str, jobs))] if few else _named(jobs)
        shown += [f"{verb} {named}" for named in names]
    # A part of the edits with a release of all jobs would hold the others again: all or nothing.
    if len(shown) > SHOWN_COMMANDS:
        return [f"# {len(shown):,} commands; `condor-advice --json JOBID` has those of each job"]
    return shown


def _named(jobs: Sequence[JobId]) -> list[str]:
    """Name these jobs and no others, for commands that take one id or a constraint.

    The constraint matches them only while they are on hold. One that is too long is split.
    """
    if len(jobs) == 1:
        return [str(jobs[0])]
    terms = [
        f"ClusterId == {cluster} && "
        + (f"ProcId == {first}" if first == last else f"ProcId >= {first} && ProcId <= {last}")
        for cluster, first, last in ranges(jobs)
    ]
    if len(terms) > SHOWN_IDS:  # many separate ranges: list the procs of each cluster
        terms = [
            f"ClusterId == {cluster} && "
            f"member(ProcId, {{{', '.join(map(str, procs[at : at + PROCS_IN_A_TERM]))}}})"
            for cluster, procs in _procs(jobs).items()
            for at in range(0, len(procs), PROCS_IN_A_TERM)
        ]
    lines: list[list[str]] = [[]]
    for term in terms:
        if lines[-1] and len(" || ".join((*lines[-1], term))) > LONGEST_CONSTRAINT:
            lines.append([])
        lines[-1].append(f"({term})" if len(terms) > 1 else term)
    return [
        f"-constraint {shlex.quote(f'JobStatus == {JobStatus.HELD:d} && ({any_of})')}"
        for any_of in map(" || ".join, lines)
    ]


def _procs(jobs: Iterable[JobId]) -> dict[int, list[int]]:
    procs: dict[int, list[int]] = {}
    for job in sorted(set(jobs)):
        procs.setdefault(job.cluster, []).append(job.proc)
    return procs


# ---- around the groups -----------------------------------------------------------------------


def _totals(
    advices: Sequence[Advice], notes: Sequence[str], style: Style, by: str, more: bool = False
) -> str:
    counts = [
        f"{sum(advice.verdict is verdict for advice in advices):,} {verdict.value}"
        for verdict in Verdict
        if any(advice.verdict is verdict for advice in advices)
    ]
    held = "1 held job" if len(advices) == 1 else f"{len(advices):,} held jobs"
    totals = f"{held}: {', '.join(counts)}; {by or said_by(advices)}."
    details = " Details: -v, or name a job." if more else ""
    lines = [_wrapped("", totals + details, style.prose, "  ")]
    if more and "\n" in lines[0]:
        lines = [_wrapped("", totals, style.prose, "  "), details.strip()]
    missing: dict[str, int] = {}
    for advice in advices:
        if advice.hold.missing:
            missing[advice.hold.missing] = missing.get(advice.hold.missing, 0) + 1
    # Of many jobs, the deadline of the oldest comes first.
    oldest = min(advices, key=lambda advice: advice.hold.at)
    lines += [_wrapped("policy: ", words, style.prose, "        ") for words in oldest.notes]
    all_notes = [
        *notes,
        *(f"{_jobs(count)}: {words}" for words, count in missing.items()),
    ]
    lines += [
        _wrapped("note: ", words, style.prose, "      ") for words in dict.fromkeys(all_notes)
    ]
    return "\n".join(lines)


def said_by(advices: Sequence[Advice]) -> str:
    """Say which models, or the rules, the probabilities come from."""
    models = sorted({advice.model for advice in advices if advice.model})
    ruled = sum(advice.source == "rules" for advice in advices)
    if not models:
        return "by the rules, no model was used"
    by = f"by model {', '.join(models)}"
    return by if not ruled else f"{by}, {ruled:,} by the rules"


# ---- words -----------------------------------------------------------------------------------


def labelled_line(label: str, words: str, style: Style, limit: int | None = None) -> str:
    """Return words beside a label, wrapped."""
    return _wrapped(f"  {label:<7}", words, style.prose, " " * LABEL, limit)


def _wrapped(first: str, words: str, width: int, rest: str, limit: int | None = None) -> str:
    wrapper = textwrap.TextWrapper(
        width=width,
        initial_indent=first,
        subsequent_indent=rest,
        max_lines=limit,
        placeholder=" ...",
        # A path that is broken can be neither pasted nor found by grep.
        break_long_words=False,
        break_on_hyphens=False,
    )
    # Colours are added afterwards: none of these words is a colour.
    return wrapper.fill(" ".join(one_line(words, LONGEST_WORDS).split()))


def hours(value: float) -> str:
    """Return an amount of CPU time, given in hours, in a unit that fits."""
    if value >= 1:
        return f"{value:,.1f} CPU hours"
    unit, count = ("minute", value * 60) if value * 60 >= 1 else ("second", value * 3600)
    return f"{count:.0f} CPU {unit}{'' if round(count) == 1 else 's'}"


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _jobs(count: int) -> str:
    return _counted(count, "job")


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _ordinal(number: int) -> str:
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


def _span(seconds: float) -> str:
    return f"{seconds / 3600:.0f} h" if seconds <= 86400 else f"{seconds / 86400:.0f} days"


def _ago(seconds: float) -> str:
    if seconds < 120:
        return "a moment ago" if seconds < 60 else "a minute ago"
    return f"{span_words(seconds)} ago"
