"""The overview: one line per group of jobs that share a verdict and a cause.

A line says what happened, to which jobs, and what to do in one short phrase. A phrase that ends in
a command is shown whole or not at all: what is printed may be pasted. Where a person has to do
something first, the line says that and shows no release.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from condor_advice.advise.advice import Advice, caller
from condor_advice.advise.because import ASK_STAFF_FIRST, Because
from condor_advice.advise.remedies import PATHS_FAULT, named_path
from condor_advice.advise.terminal_style import Style
from condor_advice.gather.events import JobId
from condor_advice.gather.foreign_text import one_line
from condor_advice.model.held.rules import RuleId, Verdict
from condor_advice.preprocess.holds.hold_reasons import Family, acting_user

COLOURS = {Verdict.RELEASE: 32, Verdict.FIX: 33, Verdict.REMOVE: 31, Verdict.ASK: 36}
MOST_LINES = 40  # groups in one overview
SHORT_IDS = 3  # ids or ranges in a command of the overview
SHOWN_NAMES = 2  # of missing files
GAP = "  "
# Columns: below this width what to do gets a line of its own.
ONE_LINE_WIDTH = 72
NARROW, ROOMY = 100, 150
LEAST_CAUSE, USUAL_CAUSE = 18, 28  # the names of the rules fit into the second
LONGEST_NAME = 30
LOST_BY_WORDS = 8  # columns: where a cut between words would lose more, a word is cut

# What a person does about a hold, in a few words; other rules show the start of their remedy.
SHORT_REMEDIES: Mapping[RuleId, str] = {
    RuleId.SUBMITTED_ON_HOLD: "release it when it should start",
    RuleId.SPOOLING: "wait until its input has arrived",
    RuleId.OVER_MEMORY: "request more memory",
    RuleId.OVER_DISK: "request more disk",
    RuleId.OVER_RUN_TIME: "allow it more time",
    RuleId.CREDENTIAL_REFUSED: "renew its credential",
    RuleId.WRONG_ADDRESS: "correct the URL",
    RuleId.OVER_QUOTA: "free some space",
    RuleId.INPUT_FILE_MISSING: "put the file there",
    RuleId.OUTPUT_FILE_MISSING: "see why it is missing",
    RuleId.NO_PERMISSION: "correct the permissions",
    RuleId.OUTPUT_PATH_UNUSABLE: "correct the path of its output",
    RuleId.BAD_FIRST_LINE: "correct the `#!` line",
    RuleId.EXECUTABLE_MISSING: "transfer the program with the job",
    RuleId.NOT_A_PROGRAM: "build it for the execution points",
    RuleId.WORKING_DIRECTORY_GONE: "create its initialdir",
    RuleId.STANDARD_FILES: "correct the path",
    RuleId.CONTAINER_IMAGE: "check the image's name",
    RuleId.INPUT_TOO_LARGE: "list fewer files, or raise its limit",
    RuleId.OUTPUT_TOO_LARGE: "write less, or raise its limit",
    RuleId.OWN_POLICY: "see what its policy is for",
    RuleId.SITE_POLICY: "ask the staff",
    RuleId.ACCOUNT_OR_VERSION: "ask the staff",
}
# What is asked where the rule alone would release.
UNSURE_WORDS: Mapping[Because, str] = {
    Because.TOO_LITTLE_KNOWN: "unsure, yours to decide",
    Because.NO_REMEDY: "a release will probably fail",
}
# Rules that cover many causes: only the reason tells the holds apart.
_BROAD = frozenset({RuleId.UNKNOWN, RuleId.OWN_POLICY, RuleId.SITE_POLICY})


class Mark(Enum):
    """What became of a group since an earlier look; the value is what its line starts with."""

    NEW = "+"
    CHANGED = "~"
    GONE = "-"


@dataclass(frozen=True, slots=True)
class Deed:
    """What to do, in words, and the command that does it."""

    words: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.words}: {self.command}" if self.words and self.command else (
            self.words or self.command
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """Jobs that share a verdict and a cause: one line of the overview."""

    advices: tuple[Advice, ...]
    hidden: bool = False  # other people's: counted, not named
    owners: tuple[str, ...] = ()  # named where the answer is about several people's jobs

    @property
    def first(self) -> Advice:
        """The advice that speaks for all."""
        return self.advices[0]

    @property
    def jobs(self) -> list[JobId]:
        """The ids of its jobs."""
        return [advice.hold.job for advice in self.advices]


def overview(
    advices: Sequence[Advice],
    style: Style,
    mine: str | None = None,
    *,
    complete: bool = False,
    marks: Mapping[JobId, Mark] | None = None,
    most: int = MOST_LINES,
) -> list[str]:
    """Return the lines of the overview, the largest group first.

    With `mine`, other owners' jobs are counted only. `complete` tells that the answer has all held
    jobs of each cluster, so that a command may name the cluster. With `marks`, each line starts
    with what became of its jobs.
    """
    rows = rows_of(advices, mine)
    whole = _whole_clusters(rows) if complete else frozenset()
    shown, rest = rows[:most], rows[most:]
    lines = _laid_out(
        [_cells(row, style, whole) for row in shown],
        [row.first.verdict for row in shown],
        style,
        None if marks is None else [_mark(row, marks) for row in shown],
    )
    if rest:
        jobs = sum(len(row.advices) for row in rest)
        lines.append(f"... and {_counted(jobs, 'job')} in {_counted(len(rest), 'more group')}")
    return lines


def rows_of(advices: Iterable[Advice], mine: str | None = None) -> list[Row]:
    """Group jobs by verdict, cause and kind of remedy; the largest group comes first."""
    rows: dict[tuple[object, ...], list[Advice]] = {}
    owners: set[str] = set()
    for advice in advices:
        hold, remedy = advice.hold, advice.remedy
        owners.add(hold.owner)
        hidden = mine is not None and hold.owner != mine
        kind: tuple[object, ...] = ()
        if not hidden:
            no_slot = advice.grounds.reason is Because.NO_SLOT
            names = tuple(name for name, _ in remedy.edits)
            kind = (remedy.by_hand, remedy.gone, no_slot, names)
            if advice.rule.id in _BROAD:
                kind = (*kind, hold.template)
            elif advice.rule.id is RuleId.HELD_BY_HAND:
                kind = (*kind, acting_user(hold.reason))
        rows.setdefault((hidden, advice.verdict, advice.rule.id, *kind), []).append(advice)
    return sorted(
        (
            Row(
                tuple(members),
                bool(key[0]),
                _owners(members) if mine is None and len(owners) > 1 else (),
            )
            for key, members in rows.items()
        ),
        key=lambda row: (-len(row.advices), row.first.hold.job),
    )


def _owners(advices: Iterable[Advice]) -> tuple[str, ...]:
    counts = Counter(advice.hold.owner for advice in advices if advice.hold.owner)
    return tuple(owner for owner, _ in counts.most_common())


def _whole_clusters(rows: Sequence[Row]) -> frozenset[tuple[str, int]]:
    """Return the clusters whose held jobs are all in one row."""
    rows_with: dict[tuple[str, int], set[int]] = {}
    for place, row in enumerate(rows):
        for job in row.jobs:
            rows_with.setdefault((job.access_point, job.cluster), set()).add(place)
    return frozenset(cluster for cluster, places in rows_with.items() if len(places) == 1)


# ---- what happened ---------------------------------------------------------------------------

_EXPRESSION = re.compile(r"expression '(.+)' evaluated to TRUE", re.DOTALL)


def happened(row: Row) -> str:
    """Say in a few words what happened to the jobs."""
    advice = row.first
    hold, rule = advice.hold, advice.rule
    if row.hidden:
        return rule.name
    if rule.id is RuleId.HELD_BY_HAND:
        who = acting_user(hold.reason).split("@")[0]
        if not who:
            return rule.name
        return f"held by {'you' if who == caller() else who}"
    if rule.id is RuleId.OVER_MEMORY and hold.family == Family.MEMORY:
        return rule.name + _of_request(row, ("job_memory_peak", "MemoryUsage"),
                                       ("job_memory_request", "RequestMemory"), 1)  # fmt: skip
    if rule.id is RuleId.OVER_DISK and hold.family == Family.DISK:
        return rule.name + _of_request(row, ("job_disk_used", "DiskUsage"),
                                       ("job_disk_request", "RequestDisk"), 1024)  # fmt: skip
    if rule.id in _BROAD:
        expression = _EXPRESSION.search(hold.reason)
        cause = expression[1] if expression else hold.reason
        name = "" if rule.id is RuleId.UNKNOWN else f"{rule.name}: "
        return f"{name}{cause}" if cause.strip() else rule.name
    return rule.name


def _of_request(row: Row, used: tuple[str, str], asked: tuple[str, str], unit: int) -> str:
    """Return the largest use and request of the jobs in MB, as ` (416/160 MB)`."""
    sizes = []
    for names in (used, asked):
        amounts = [
            value
            for advice in row.advices
            for value in (advice.hold.feature(names[0]), advice.hold.ad.get(names[1]))
            if isinstance(value, int | float) and value > 0
        ]
        if not amounts:
            return ""
        sizes.append(max(amounts) / unit)
    return f" ({sizes[0]:,.0f}/{sizes[1]:,.0f} MB)"


# ---- what to do ------------------------------------------------------------------------------


def deeds(
    row: Row, whole: frozenset[tuple[str, int]] = frozenset(), now: datetime | None = None
) -> list[Deed]:
    """Return what to do, the fullest form first; the last one has words only."""
    advice = row.first
    if row.hidden:
        return [Deed(_short_remedy(advice))]
    ids = _ids_for_us(row)
    if advice.verdict is Verdict.RELEASE:
        return _release(row, whole, ids, now or datetime.now(UTC))
    if advice.verdict is Verdict.REMOVE:
        few = len(row.advices) <= SHORT_IDS
        command = f"condor_rm {' '.join(map(str, row.jobs))}" if few else ""
        if not few and ids:
            command = f"condor-advice {ids} --apply --remove"
        return [*([Deed("", command)] if command else []), Deed("remove it")]
    if advice.verdict is Verdict.FIX and all(
        one.remedy.edits and not one.remedy.by_hand for one in row.advices
    ):
        words = _edit_words(row)
        commands = [f"condor-advice {ids} --apply --fix"] if ids else []
        return [
            *(Deed(words, command) for command in commands),
            Deed(f"{words}, then release"),
            Deed(words),
        ]
    return [Deed(_by_hand(row))]


def _release(row: Row, whole: frozenset[tuple[str, int]], ids: str, now: datetime) -> list[Deed]:
    times = [one.remedy.not_before for one in row.advices if one.remedy.not_before]
    words = ""
    if times and max(times) > now:
        when = max(times).astimezone()
        today = when.date() == now.astimezone().date()
        words = f"after {when.strftime('%H:%M' if today else '%H:%M on %d %b')}"
    elif all(one.remedy.gone for one in row.advices):
        words = "the cause is gone"
    commands: list[str] = []
    clusters = {(job.access_point, job.cluster) for job in row.jobs}
    if not all(one.commands for one in row.advices):
        pass  # a step by hand comes first
    elif len(row.advices) == 1:
        commands.append(f"condor_release {row.first.hold.job}")
    elif clusters <= whole and len(clusters) <= SHORT_IDS:
        commands.append(f"condor_release {' '.join(str(one[1]) for one in sorted(clusters))}")
    else:
        if len(row.advices) <= SHORT_IDS:
            commands.append(f"condor_release {' '.join(map(str, row.jobs))}")
        if ids:
            commands.append(f"condor-advice {ids} --apply")
    return [
        *(Deed(words, command) for command in commands),
        *(Deed("", command) for command in commands if words == "the cause is gone"),
        Deed(f"release {words}" if times and words else "release"),
    ]


def _ids_for_us(row: Row) -> str:
    """Return the ids of all jobs as condor-advice reads them; empty where they are many."""
    runs = ranges(row.jobs)
    return compact_ids(row.jobs) if len(runs) <= SHORT_IDS else ""


def _edit_words(row: Row) -> str:
    """Say what the edits of a row change, as in `request 832 MB`."""
    values: dict[str, list[str]] = {}
    for advice in row.advices:
        for name, value in advice.remedy.edits:
            values.setdefault(name, []).append(value)
    return " and ".join(_one_edit(name, texts, row) for name, texts in values.items())


def _one_edit(name: str, values: Sequence[str], row: Row) -> str:
    if name == "Requirements":
        points = {advice.hold.point for advice in row.advices}
        return f"avoid {_named(points.pop())}" if len(points) == 1 else "avoid those machines"
    amounts = sorted({int(value) for value in values if value.isdigit()})
    if amounts and name in ("RequestMemory", "RequestDisk"):
        unit = 1024 if name == "RequestDisk" else 1
        span = " to ".join(
            f"{size / unit:,.0f}" for size in dict.fromkeys((amounts[0], amounts[-1]))
        )
        return f"request {span} MB" + (" of disk" if name == "RequestDisk" else "")
    if amounts and name in ("AllowedExecuteDuration", "AllowedJobDuration"):
        return f"allow it {span_words(amounts[-1])}"
    return f"change {name}"


def _by_hand(row: Row) -> str:
    """Say what a person has to do or decide."""
    advice = row.first
    reason = advice.grounds.reason
    if reason in ASK_STAFF_FIRST or reason is Because.STAFF_HOLD:
        return "ask the staff"
    if reason is Because.NO_SLOT:
        return "no slot here could run it"
    if advice.rule.id is RuleId.HELD_BY_HAND:
        if reason is Because.OWNER_HELD:
            return "yours to decide"
        holder = acting_user(advice.hold.reason).split("@")[0]
        return f"ask {_named(holder) or 'who held it'}"
    if advice.hold.family in PATHS_FAULT and advice.verdict is Verdict.FIX:
        return _paths_words(row)
    return _short_remedy(advice)


def _paths_words(row: Row) -> str:
    """Name what is missing: a directory that all files lack, or the first few files."""
    family = row.first.hold.family
    paths = [
        path
        for path in dict.fromkeys(named_path(advice.hold.reason) for advice in row.advices)
        if path
    ]
    if not paths:
        return _short_remedy(row.first)
    names = [_named(os.path.basename(path.rstrip("/"))) for path in paths[:SHOWN_NAMES]]
    names += ["..."] if len(paths) > SHOWN_NAMES else []
    if family == Family.INPUT_PERMISSION:
        return f"make {', '.join(names)} readable"
    if family == Family.WORKING_DIRECTORY:
        return f"create {', '.join(names)}"
    if family == Family.INPUT_MISSING:
        return f"put {', '.join(names)} there"
    return _short_remedy(row.first)


def _short_remedy(advice: Advice) -> str:
    if advice.verdict is Verdict.ASK and advice.rule.verdict is Verdict.RELEASE:
        # The rule's remedy is a release, and that is what nobody is sure of.
        reason = advice.grounds.reason
        return UNSURE_WORDS.get(reason, "look at it first") if isinstance(reason, Because) else ""
    words = SHORT_REMEDIES.get(advice.rule.id)
    return words or re.split(r"[;,(]", advice.rule.remedy)[0].strip()


def _named(text: str) -> str:
    shown = one_line(text)
    return shown if len(shown) <= LONGEST_NAME else f"{shown[: LONGEST_NAME - 3]}..."


# ---- layout ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cells:
    count: str
    cause: str
    owner: str
    jobs: Sequence[JobId]  # none: other people's
    deeds: Sequence[Deed]


def _cells(row: Row, style: Style, whole: frozenset[tuple[str, int]]) -> _Cells:
    owner = row.owners[0] if len(row.owners) == 1 else f"{len(row.owners)} users"
    return _Cells(
        _counted(len(row.advices), "job"),
        " ".join(one_line(happened(row)).split()),
        _named(owner) if row.owners and not row.hidden else "",
        () if row.hidden else row.jobs,
        deeds(row, whole, style.now),
    )


def _laid_out(
    rows: Sequence[_Cells],
    verdicts: Sequence[Verdict],
    style: Style,
    marks: Sequence[Mark | None] | None,
) -> list[str]:
    """Return the rows as lines no wider than the screen."""
    if not rows:
        return []
    margin = 0 if marks is None else 2
    two_lines = style.width < ONE_LINE_WIDTH
    verdict_width = max(len(verdict.value) for verdict in verdicts)
    count_width = max(len(row.count) for row in rows)
    owner_width = min(12, max(len(row.owner) for row in rows))
    ids_most = 12 if style.width < NARROW else 20 if style.width < ROOMY else 32
    ids = [_fitting_ids(row.jobs, ids_most) if row.jobs else "of others" for row in rows]
    ids_width = max(map(len, ids))
    fixed = margin + verdict_width + len(GAP) + count_width + len(GAP) + ids_width + len(GAP)
    fixed += owner_width + len(GAP) if owner_width else 0
    room = max(8, style.width - fixed - (0 if two_lines else len(GAP)))
    cause_need = max(len(row.cause) for row in rows)
    if two_lines:
        cause_width = min(room, cause_need)
    else:
        # A rule's name is shown whole where the words beside it leave the room for it.
        words_need = max(len(row.deeds[-1].words) for row in rows)
        beside_words = min(room - words_need, USUAL_CAUSE)
        cause_width = min(cause_need, max(LEAST_CAUSE, room * 2 // 5, beside_words))
    lines = []
    for place, (row, verdict) in enumerate(zip(rows, verdicts, strict=True)):
        mark = "" if marks is None else _marked(marks[place], style)
        cells = [
            style.paint(verdict.value.ljust(verdict_width), COLOURS[verdict]),
            row.count.rjust(count_width),
            _cut(row.cause, cause_width).ljust(cause_width),
            *([_cut(row.owner, owner_width).ljust(owner_width)] if owner_width else []),
            ids[place].ljust(ids_width),
        ]
        if two_lines:
            lines.append((mark + GAP.join(cells)).rstrip())
            indent = margin + verdict_width + len(GAP)
            deed = _fitting_deed(row.deeds, style.width - indent, style)
            lines.append(" " * indent + deed)
        else:
            deed = _fitting_deed(row.deeds, room - cause_width, style)
            lines.append((mark + GAP.join([*cells, deed])).rstrip())
    return lines


def _marked(mark: Mark | None, style: Style) -> str:
    return "  " if mark is None else f"{style.paint(mark.value, 35)} "


def _mark(row: Row, marks: Mapping[JobId, Mark]) -> Mark | None:
    kinds = {marks.get(job) for job in row.jobs}
    return next((mark for mark in (Mark.NEW, Mark.CHANGED) if mark in kinds), None)


def _fitting_deed(forms: Sequence[Deed], width: int, style: Style) -> str:
    """Return the fullest form that fits; words may be cut, a command may not."""
    for deed in forms:
        text = one_line(str(deed))
        if len(text) <= width:
            if deed.command and text.endswith(deed.command):
                return text[: len(text) - len(deed.command)] + style.strong(deed.command)
            return text
    return _cut(one_line(forms[-1].words), width)


def _cut(text: str, width: int) -> str:
    """Cut a text, between words where that loses little."""
    if len(text) <= width:
        return text
    words = textwrap.shorten(text, width, placeholder="...")
    if len(words) > width - LOST_BY_WORDS:
        return words
    return f"{text[: max(0, width - 3)].rstrip(' ,;:')}..."


def _fitting_ids(jobs: Sequence[JobId], width: int) -> str:
    """Return as many ids as fit, and `...` for the others."""
    runs = _as_words(ranges(jobs))
    text = " ".join(runs)
    if len(text) <= width:
        return text
    while len(runs) > 1 and len(" ".join(runs)) + 4 > width:
        runs.pop()
    return f"{' '.join(runs)} ..."


# ---- ids and words ---------------------------------------------------------------------------


def ranges(jobs: Iterable[JobId]) -> list[tuple[int, int, int]]:
    """Return (cluster, first proc, last proc) of consecutive jobs, in order."""
    runs: list[tuple[int, int, int]] = []
    for job in sorted(set(jobs)):
        if runs and runs[-1][0] == job.cluster and runs[-1][2] == job.proc - 1:
            runs[-1] = (job.cluster, runs[-1][1], job.proc)
        else:
            runs.append((job.cluster, job.proc, job.proc))
    return runs


def _as_words(runs: Iterable[tuple[int, int, int]]) -> list[str]:
    return [
        f"{cluster}.{first}" if first == last else f"{cluster}.{first}-{last}"
        for cluster, first, last in runs
    ]


def compact_ids(jobs: Iterable[JobId], most: int | None = None) -> str:
    """Return ids as `1234.0-9 1240.3`, and how many more there are than `most` ranges."""
    runs = ranges(jobs)
    shown = runs if most is None else runs[:most]
    rest = sum(last - first + 1 for _, first, last in runs[len(shown) :])
    return " ".join(_as_words(shown)) + (f" and {rest:,} more" if rest else "")


def span_words(seconds: float) -> str:
    """Return a length of time in a unit that fits, as `3 hours`."""
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:,.0f} second{'' if round(seconds) == 1 else 's'}"


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
