"""Advice as text: a block per group of jobs that share a reason and a verdict."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

import click

from condor_advice.advise.advice import Advice
from condor_advice.model.rules import Verdict

_COLOURS = {
    Verdict.RELEASE: "green",
    Verdict.FIX: "yellow",
    Verdict.REMOVE: "red",
    Verdict.ASK: "cyan",
}
_SHOWN_IDS = 8


def report(advices: Sequence[Advice]) -> str:
    """Return the whole answer: groups, largest first, then a line of totals."""
    groups: dict[tuple[object, ...], list[Advice]] = {}
    for advice in advices:
        hold = advice.episode
        key = (advice.verdict, advice.rule.name, hold.code, hold.subcode)
        groups.setdefault(key, []).append(advice)
    ordered = sorted(groups.values(), key=len, reverse=True)
    totals = [
        f"{sum(a.verdict is verdict for a in advices)} {verdict.value}"
        for verdict in Verdict
        if any(a.verdict is verdict for a in advices)
    ]
    jobs = "1 held job" if len(advices) == 1 else f"{len(advices)} held jobs"
    blocks = [_block(group) for group in ordered]
    return "\n\n".join([*blocks, f"{jobs}: {', '.join(totals)}; by the rules, no model yet."])


def _block(group: Sequence[Advice]) -> str:
    first = group[0]
    hold = first.episode
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)
    title = click.style(f"{first.verdict.value:<8}", fg=_COLOURS[first.verdict], bold=True)
    low, high = first.interval
    chance = f"{first.p_success:.0%} would succeed if released as is ({low:.0%} to {high:.0%})"
    lines = [f"{title} {_ids(group)}: {first.rule.name}", _line("chance", chance, width)]
    codes = "" if hold.code is None else f" [{hold.code}/{hold.subcode}]"
    lines.append(_line("held", (hold.reason or "no reason given") + codes, width, limit=3))
    lines.append(_line("why", _why(first), width))
    cost = (
        f"a failed release costs about {_hours(first.failed_release_cpu_hours)}, a wrong remove "
        f"throws {_hours(first.wrong_remove_cpu_hours)} away"
    )
    if first.failed_release_cpu_hours or first.wrong_remove_cpu_hours:
        lines.append(_line("cost", cost, width))
    lines.append(_line("do", first.remedy, width))
    for command in _commands(group):
        lines.append(f"           {command}")
    return "\n".join(lines)


def _why(advice: Advice) -> str:
    why = advice.rule.why
    if advice.outcomes:
        why += (
            f"; {sum(advice.outcomes)} of {len(advice.outcomes)} jobs held for this reason "
            "before finished after a release"
        )
    if advice.releases:
        why += f"; this job was released {advice.releases} times for it and held again"
    return why


def _commands(group: Sequence[Advice]) -> list[str]:
    """Return each command once, for all jobs of the group where it is the same for all."""
    found: list[str] = []
    for place in range(len(group[0].commands)):
        by_words: dict[tuple[str, str], list[str]] = {}
        for advice in group:
            if place < len(advice.commands):
                job = str(advice.episode.job)
                before, _, after = advice.commands[place].partition(job)
                by_words.setdefault((before, after), []).append(job)
        for (before, after), jobs in by_words.items():
            if after.strip():  # condor_qedit takes one job, or a constraint
                found += [f"{before}{job}{after}" for job in jobs[:_SHOWN_IDS]]
                if len(jobs) > _SHOWN_IDS:
                    found.append(f"# ... and so for {len(jobs) - _SHOWN_IDS} more; see --json")
            else:
                found.append(f"{before}{' '.join(jobs)}")
    return found


def _ids(group: Sequence[Advice]) -> str:
    jobs = [str(advice.episode.job) for advice in group]
    more = f" and {len(jobs) - _SHOWN_IDS} more" if len(jobs) > _SHOWN_IDS else ""
    count = f"{len(jobs)} jobs, " if len(jobs) > 1 else ""
    return f"{count}{' '.join(jobs[:_SHOWN_IDS])}{more}"


def _line(label: str, words: str, width: int, limit: int | None = None) -> str:
    indent = " " * 9
    wrapper = textwrap.TextWrapper(
        width=max(width, 40),
        initial_indent=f"  {label:<7}",
        subsequent_indent=indent,
        max_lines=limit,
        placeholder=" ...",
        break_on_hyphens=False,
    )
    return wrapper.fill(" ".join(words.split()))


def _hours(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.1f} CPU hours"
    return f"{hours * 60:.0f} CPU minutes" if hours * 60 >= 1 else f"{hours * 3600:.0f} CPU seconds"
