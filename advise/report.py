"""Advice as text: a block per group of jobs that share a reason and a verdict.

A terminal gets colours, and a table above the blocks when there are several; a pipe gets the
same words without them. Thousands of jobs make as many blocks as they have reasons, and no more
than fit on a few screens.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from condor_advice.advise.advice import Advice
from condor_advice.advise.because import Because
from condor_advice.advise.remedies import PATHS_FAULT, POINTS_FAULT, named_path
from condor_advice.gather.events import JobId, JobStatus
from condor_advice.gather.foreign_text import one_line, shell_word
from condor_advice.model.held.rules import Verdict

_COLOURS = {Verdict.RELEASE: 32, Verdict.FIX: 33, Verdict.REMOVE: 31, Verdict.ASK: 36}
NARROWEST, WIDEST = 40, 110
PIPE_WIDTH = 100
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
WIDE_ENOUGH_FOR_IDS = 60
LABEL = 9  # columns before the words


@dataclass(frozen=True, slots=True)
class Style:
    """How wide the text is, and whether it has colours."""

    width: int = PIPE_WIDTH
    colour: bool = False
    terminal: bool = False
    now: datetime | None = None  # ages are relative to this moment; None: to the present

    @classmethod
    def of_stdout(cls) -> Style:
        """Fit the style to standard output; NO_COLOR and TERM=dumb are respected."""
        terminal = sys.stdout.isatty()
        columns = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        return cls(max(NARROWEST, min(columns, WIDEST)), terminal and not plain, terminal)

    def paint(self, text: str, colour: int) -> str:
        """Return text in bold colour, where there are colours."""
        return f"\x1b[1;{colour}m{text}\x1b[0m" if self.colour else text


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
) -> str:
    """Return the whole answer: groups, largest first, then totals and what is missing.

    With `mine`, jobs of other owners are counted and not named.
    """
    style = style or Style()
    groups = grouped(advices, mine)
    parts = []
    if style.terminal and len(groups) > 1:
        parts.append(_table(groups, style))
    parts += [_block(group, style) for group in groups[:SHOWN_BLOCKS]]
    if len(groups) > SHOWN_BLOCKS:
        rest = groups[SHOWN_BLOCKS:]
        parts.append("\n".join(_one_line(group, style) for group in rest[:SHOWN_BLOCKS]))
        more = "These are shown in short"
        if len(rest) > SHOWN_BLOCKS:
            jobs = sum(map(len, rest[SHOWN_BLOCKS:]))
            more = f"... and {jobs:,} jobs in {len(rest) - SHOWN_BLOCKS:,} more groups"
        parts.append(f"{more}: name their ids, or use --json")
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
    advice = group.first
    hold = advice.hold
    title = f"{advice.verdict.value:<8} "
    words = f"{_who(group)}: {advice.rule.name}; {_chance(group)}"
    lines = _wrapped(title, words, style.width, " " * LABEL).split("\n")
    lines[0] = style.paint(title.strip(), _COLOURS[advice.verdict]) + lines[0][len(title.strip()) :]
    when = _when(group, style.now or datetime.now(UTC))
    if group.hidden:
        # Reasons, templates and evidence may name users, files and hosts; the rule's text cannot.
        lines.append(_line("held", when, style))
    else:
        held = f"{when}: {shortened(hold.reason) or 'no reason given'}"
        lines.append(_line("held", held, style, limit=4))
        lines.append(_line("why", "; ".join(why(advice)), style))
        if advice.attributions:
            lines += _explained(advice, style)
    if cost := _cost(group):
        lines.append(_line("cost", cost, style))
    lines.append(_line("do", _do(group), style))
    if not group.hidden:
        lines += [f"{'':11}{one_line(command, LONGEST_COMMAND)}" for command in commands(group)]
    return "\n".join(lines)


_TRANSFER = re.compile(
    r"^(Transfer \w+ files failure) at .*? Details: (?:\d+ total failures: first failure: )?"
)
_ERROR_FROM = re.compile(r"^Error from \S+: ")


def shortened(reason: str) -> str:
    """Return a hold reason without the job's owner and host, which are shown beside it."""
    words = " ".join(one_line(reason).split())
    return _ERROR_FROM.sub("", _TRANSFER.sub(r"\1: ", words))


def _one_line(group: Group, style: Style) -> str:
    advice = group.first
    words = f"{_who(group)}: {advice.rule.name}; {_chance(group)}; {_do(group)}"
    short = textwrap.shorten(one_line(words), style.width - LABEL, placeholder=" ...")
    return f"{style.paint(advice.verdict.value, _COLOURS[advice.verdict]):<8} {short}"


def _who(group: Group) -> str:
    if group.hidden:
        return _jobs(len(group)) + " of others"
    jobs = [advice.hold.job for advice in group.advices]
    count = f"{len(jobs):,} jobs, " if len(jobs) > 1 else ""
    return count + compact_ids(jobs) + _whose(group.owners)


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
    if group.first.grounds.reason in BY_HAND:
        return group.first.because  # nobody's releases tell what a person wants
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
    """Return the reasons for the verdict: what the rule says, then the evidence in counts."""
    evidence = advice.evidence
    reasons = [advice.rule.why]
    like = evidence.like
    if like is not None and like.released:
        more = "the latest " if like.capped else ""
        reasons.append(
            f"{like.succeeded:,} of {more}{like.released:,} jobs held for this reason in the last "
            f"{_span(like.seconds)} finished after a release"
        )
    elif like is not None:
        reasons.append("no outcome of a release after such a hold is known here yet")
    if evidence.mates_released:
        reasons.append(
            f"{evidence.mates_succeeded:,} of {evidence.mates_released:,} releases in its own "
            "cluster worked"
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
        lines.append(_line(label, f"{attribution.effect:+.2f} {attribution.words}", style))
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


def ranges(jobs: Iterable[JobId]) -> list[tuple[int, int, int]]:
    """Return (cluster, first proc, last proc) of consecutive jobs, in order."""
    runs: list[tuple[int, int, int]] = []
    for job in sorted(set(jobs)):
        if runs and runs[-1][0] == job.cluster and runs[-1][2] == job.proc - 1:
            runs[-1] = (job.cluster, runs[-1][1], job.proc)
        else:
            runs.append((job.cluster, job.proc, job.proc))
    return runs


def compact_ids(jobs: Iterable[JobId], most: int = SHOWN_IDS) -> str:
    """Return ids as `1234.0-9 1240.3`, and how many more there are."""
    runs = ranges(jobs)
    shown = [
        f"{cluster}.{first}" if first == last else f"{cluster}.{first}-{last}"
        for cluster, first, last in runs[:most]
    ]
    rest = sum(last - first + 1 for _, first, last in runs[most:])
    return " ".join(shown) + (f" and {rest:,} more" if rest else "")


# ---- around the groups -----------------------------------------------------------------------


def _table(groups: Sequence[Group], style: Style) -> str:
    """Return an overview of the groups for people at a terminal."""
    from io import StringIO

    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold" if style.colour else "")
    table.add_column("verdict", no_wrap=True, min_width=7)
    table.add_column("jobs", justify="right", no_wrap=True, min_width=4)
    table.add_column("chance", justify="right", no_wrap=True, min_width=6)
    table.add_column("reason", overflow="ellipsis", no_wrap=True)
    wide = style.width >= WIDE_ENOUGH_FOR_IDS
    if wide:
        table.add_column("ids", overflow="ellipsis", no_wrap=True, ratio=1)
    names = {32: "green", 33: "yellow", 31: "red", 36: "cyan"}
    for group in groups[: 2 * SHOWN_BLOCKS]:
        advice = group.first
        middle = sorted(each.p_success for each in group.advices)[len(group) // 2]
        ids = "of others" if group.hidden else compact_ids(a.hold.job for a in group.advices)
        colour = names[_COLOURS[advice.verdict]] if style.colour else ""
        table.add_row(
            f"[{colour}]{advice.verdict.value}[/]" if colour else advice.verdict.value,
            f"{len(group):,}",
            f"{middle:.0%}",
            advice.rule.name,
            *([ids] if wide else []),
        )
    out = StringIO()
    console = Console(
        file=out,
        width=style.width,
        force_terminal=style.colour,
        color_system="standard" if style.colour else None,
        highlight=False,
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))


def _totals(advices: Sequence[Advice], notes: Sequence[str], style: Style, by: str) -> str:
    counts = [
        f"{sum(advice.verdict is verdict for advice in advices):,} {verdict.value}"
        for verdict in Verdict
        if any(advice.verdict is verdict for advice in advices)
    ]
    held = "1 held job" if len(advices) == 1 else f"{len(advices):,} held jobs"
    totals = f"{held}: {', '.join(counts)}; {by or said_by(advices)}."
    lines = [_wrapped("", totals, style.width, "  ")]
    missing: dict[str, int] = {}
    for advice in advices:
        if advice.hold.missing:
            missing[advice.hold.missing] = missing.get(advice.hold.missing, 0) + 1
    # Of many jobs, the deadline of the oldest comes first.
    oldest = min(advices, key=lambda advice: advice.hold.at)
    lines += [_wrapped("policy: ", words, style.width, "        ") for words in oldest.notes]
    all_notes = [
        *notes,
        *(f"{_jobs(count)}: {words}" for words, count in missing.items()),
    ]
    lines += [
        _wrapped("note: ", words, style.width, "      ") for words in dict.fromkeys(all_notes)
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


def _line(label: str, words: str, style: Style, limit: int | None = None) -> str:
    return _wrapped(f"  {label:<7}", words, style.width, " " * LABEL, limit)


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
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name} ago"
    return "a moment ago" if seconds < 60 else "a minute ago"
