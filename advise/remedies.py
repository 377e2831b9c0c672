"""What to do about a hold: words, commands to paste, and where the advice comes from.

The rule for the hold (model/held/rules.py) says in words what facilitators advise. Here that is
made concrete with what is known of this very job: the size to ask for, the file that is missing,
the execution point to avoid, the time to wait. Every command is one that HTCondor or a shell takes
as it stands; each names its job in full, so that it does what it says and no more.
"""

from __future__ import annotations

import os
import re
import shlex
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np

from condor_advice.advise.evidence import Evidence
from condor_advice.advise.holds import Hold
from condor_advice.advise.site import Site
from condor_advice.gather.events import HoldCode
from condor_advice.model.held.rules import Rule, Verdict
from condor_advice.preprocess.holds.hold_reasons import (
    Family,
    RemedyKey,
    Trait,
    all_signs,
    families_with,
)

# The share of like jobs that a suggested size is enough for.
QUANTILE = 0.9
# Fewer like cases than this say nothing about a quantile.
FEWEST_LIKES = 5
# Causes that pass by themselves; a retry at once meets them again.
PASSING = families_with(Trait.PASSES)
# Where the execution point may be at fault.
POINTS_FAULT = families_with(Trait.POINT)
# Where the reason names a path on the access point that is at fault.
PATHS_FAULT = frozenset(s.family for s in all_signs() if s.remedy is RemedyKey.PATH)
# What a job's own limit on its transfers is called; it outranks the site's.
TRANSFER_LIMITS: Mapping[int | None, str] = {
    HoldCode.MAX_TRANSFER_INPUT_SIZE_EXCEEDED: "MaxTransferInputMB",
    HoldCode.MAX_TRANSFER_OUTPUT_SIZE_EXCEEDED: "MaxTransferOutputMB",
}
LONGEST_EXPRESSION = 300  # characters of it that are shown
# A release as is would only be stopped at the same limit.
LIMITED = families_with(Trait.LIMIT)


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do, and how sure it is to help where that can be told."""

    text: str
    commands: tuple[str, ...] = ()
    source: str = ""
    edits: tuple[tuple[str, str], ...] = ()  # attribute and value, as condor_qedit takes them
    not_before: datetime | None = None
    risk: float | None = None  # of the suggested size being too small; None where unknown
    gone: bool = False  # a look at the access point shows that the cause is gone
    by_hand: bool = False  # a part that no command of HTCondor's does

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        when = self.not_before
        return {
            "commands": list(self.commands),
            "text": self.text,
            "source": self.source,
            "edits": dict(self.edits),
            "not_before": when.isoformat().replace("+00:00", "Z") if when else None,
            "risk": self.risk,
            "by_hand": self.by_hand,
            "gone": self.gone,
        }


Builder = Callable[[Hold, Rule, Site], Remedy]
BUILDERS: dict[RemedyKey, Builder] = {}
# These raise a limit that stopped the job, which it would meet on any execution point.
_RAISES_LIMIT = frozenset(
    {RemedyKey.MEMORY, RemedyKey.DISK, RemedyKey.DURATION, RemedyKey.TRANSFER_SIZE}
)
_REMEDY_OF_FAMILY = {signs.family: signs.remedy for signs in all_signs()}


def builds(key: RemedyKey) -> Callable[[Builder], Builder]:
    """Register the builder of a kind of remedy that the table of hold reasons names."""

    def register(builder: Builder) -> Builder:
        assert key not in BUILDERS, f"two builders for {key}"
        BUILDERS[key] = builder
        return builder

    return register


def remedy_for(hold: Hold, rule: Rule, evidence: Evidence, site: Site, now: datetime) -> Remedy:
    """Return what to do about a hold if it is not simply released."""
    fits = rule.builder_for is None or rule.builder_for == hold.family
    of_rule = rule.builder if fits else None
    if of_rule in _RAISES_LIMIT:
        return BUILDERS[of_rule](hold, rule, site)
    if evidence.black_hole and hold.point and hold.family in POINTS_FAULT:
        return _elsewhere(hold, evidence)
    key = _REMEDY_OF_FAMILY[hold.family] or of_rule
    if key is not None:
        return BUILDERS[key](hold, rule, site)
    if rule.verdict is Verdict.RELEASE and hold.family in PASSING:
        return later(hold, rule, site, now)
    return _plain(hold, rule)


def release_command(hold: Hold) -> str:
    """Return the command that releases a job."""
    return f"condor_release {hold.job}"


def qedit_command(hold: Hold, attribute: str, value: str) -> str:
    """Return the command that sets an attribute; a string or expression is quoted for a shell."""
    return f"condor_qedit {hold.job} {attribute} {shlex.quote(value)}"


def _plain(hold: Hold, rule: Rule) -> Remedy:
    commands = (f"{rule.command} {hold.job}",) if rule.command else ()
    return Remedy(rule.remedy, commands, rule.source, by_hand=rule.verdict is Verdict.FIX)


def later(hold: Hold, rule: Rule, site: Site, now: datetime) -> Remedy:
    """Advise a release when what passes by itself has had time to pass, longer each time."""
    when = hold.at + timedelta(minutes=site.retry_minutes * max(1, hold.number))
    if when <= now:
        return Remedy("release it", (release_command(hold),), rule.source)
    today = when.astimezone().date() == now.astimezone().date()
    local = when.astimezone().strftime("%H:%M" if today else "%H:%M on %d %b")
    waited = f"hold {hold.number} of this job" if hold.number > 1 else "that passes"
    return Remedy(
        f"release it after {local} ({waited}; trying again at once meets the same trouble)",
        (release_command(hold),),
        rule.source,
        not_before=when,
    )


# ---- sizes -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Size:
    """A size to ask for, why, and the share of like cases that needed more."""

    value: float
    why: str
    risk: float | None


def size_above(measured: float, kin: Any, overruns: Any, unit: str) -> Size:
    """Return how much to ask for when a job was stopped at `measured`, so that it needs more.

    `kin` is what its like that finished has used; `overruns` is what jobs that had been
    stopped in the same way needed in the end, over what was measured when they were.
    """
    above = kin[kin > measured]
    if len(above) >= FEWEST_LIKES:
        value = float(np.quantile(above, QUANTILE, method="higher"))
        risk = float(np.mean(above > value))
        why = (
            f"{len(above)} of {len(kin)} like jobs that finished used more than "
            f"{measured:,.0f} {unit}, {QUANTILE:.0%} of them at most {value:,.0f} {unit}"
        )
        return Size(value, why, max(risk, 1 - QUANTILE))
    ratios = overruns[overruns > 1.0]  # the others got through with what they had: luck
    if len(ratios) >= FEWEST_LIKES:
        ratio = float(np.quantile(ratios, QUANTILE, method="higher"))
        why = (
            f"of {len(ratios)} jobs here that were stopped so and finished later with more, "
            f"{QUANTILE:.0%} used at most {ratio:.1f} times what was measured"
        )
        return Size(measured * max(ratio, 1.1), why, 1 - QUANTILE)
    finished = f"none of {len(kin)} like jobs that finished used more" if len(kin) else (
        "no like job has finished yet"
    )  # fmt: skip
    why = f"{finished}, so nothing tells how much more: twice as much is a first try"
    return Size(2 * measured, why, None)


def round_up(value: float, limit: float | None = None) -> int:
    """Round a size up to two or three figures that people would write, below a cap."""
    step = 64
    while value > 32 * step:
        step *= 2
    rounded = int(-(-value // step) * step)
    return rounded if limit is None else min(rounded, int(limit))


@builds(RemedyKey.MEMORY)
def _memory(hold: Hold, rule: Rule, site: Site) -> Remedy:
    request = _number(hold.ad.get("RequestMemory")) or hold.feature("job_memory_request")
    measured = [
        value
        for value in (
            hold.feature("job_memory_peak"),
            hold.feature("hold_used_mb"),
            _number(hold.ad.get("MemoryUsage")),
        )
        if value
    ]
    if not measured and not request:
        return Remedy(
            f"{rule.remedy}; what it used was not measured",
            (),
            rule.source,
            by_hand=True,
        )
    peak = max(measured, default=0.0)
    floor = max(peak, request or 0.0)
    kin, overruns = _empty(), _empty()
    # What jobs used that finished is kept without its time: it may be younger than a past hold.
    if hold.kept is not None and hold.episode is not None and not hold.past:
        kin, overruns = hold.kept.memory_of_kin(hold.episode.kin), hold.kept.overruns()
    size = size_above(floor, kin, overruns, "MB")
    value = round_up(size.value, site.max_request_memory_mb)
    stopped = f"it was stopped at {peak:,.0f} MB" if peak else "what it used was not measured"
    asked = f", with {request:,.0f} MB asked for," if request else ""
    text = f"ask for {value:,} MB of memory, then release; {stopped}{asked} and needs more; "
    return _resize(hold, rule, "RequestMemory", value, text + size.why, size, floor)


@builds(RemedyKey.DISK)
def _disk(hold: Hold, rule: Rule, site: Site) -> Remedy:
    request = _number(hold.ad.get("RequestDisk")) or hold.feature("job_disk_request")
    used = [
        value
        for value in (hold.feature("job_disk_used"), _number(hold.ad.get("DiskUsage")))
        if value
    ]
    if not used and not request:
        return Remedy(f"{rule.remedy}; what it used was not measured", (), rule.source,
                      by_hand=True)  # fmt: skip
    peak = max(used, default=0.0)
    floor = max(peak, request or 0.0)
    mates = _empty()
    if hold.kept is not None and not hold.past:
        mates = hold.kept.disk_of_mates(hold.job.cluster)
    size = size_above(floor / 1024, mates, _empty(), "MB")
    value = round_up(size.value, site.max_request_disk_mb)
    stopped = f"it was stopped at {peak / 1024:,.0f} MB" if peak else "usage was not measured"
    asked = f", with {request / 1024:,.0f} MB asked for," if request else ""
    text = f"ask for {value:,} MB of disk, then release; {stopped}{asked} and needs more; "
    return _resize(hold, rule, "RequestDisk", value * 1024, text + size.why, size, floor)  # in KB


def _resize(
    hold: Hold, rule: Rule, attribute: str, value: int, text: str, size: Size, floor: float
) -> Remedy:
    if value <= floor:
        return Remedy(
            "it needs more than this site gives to one job: split the work, or ask the staff",
            (),
            rule.source,
            by_hand=True,
        )
    own = hold.code == HoldCode.JOB_POLICY
    if own:
        text += "; its own policy stopped it: one with a fixed limit has to be changed as well"
        if policies := _own_policies(hold):
            text += f" ({_in_words(policies)})"
    return Remedy(
        text,
        (qedit_command(hold, attribute, str(value)), release_command(hold)),
        rule.source,
        ((attribute, str(value)),),
        risk=size.risk,
        by_hand=own,
    )


@builds(RemedyKey.DURATION)
def _duration(hold: Hold, rule: Rule, site: Site) -> Remedy:
    allowed = _number(hold.ad.get("AllowedExecuteDuration"))
    attribute = "AllowedExecuteDuration"
    if hold.code == HoldCode.JOB_DURATION_EXCEEDED:
        allowed, attribute = _number(hold.ad.get("AllowedJobDuration")), "AllowedJobDuration"
    ran = hold.feature("job_run_longest")
    limit = allowed or ran
    category = hold.ad.get("JobDurationCategory")
    if category:
        return Remedy(
            f"remove it and submit it again in a longer category than {category}; near a site's "
            "limit let it checkpoint itself",
            (f"condor_rm {hold.job}",),
            rule.source,
            by_hand=True,
        )
    if not limit:
        return Remedy(rule.remedy, (), rule.source, by_hand=True)
    value = int(-(-2 * limit // 60) * 60)
    return Remedy(
        f"allow it {_duration_words(value)}, then release; it was stopped when its "
        f"{_duration_words(limit)} were over, so what it needs was not measured and twice as "
        "much is a first try; if it can, let it checkpoint itself",
        (qedit_command(hold, attribute, str(value)), release_command(hold)),
        rule.source,
        ((attribute, str(value)),),
    )


_TOTAL_MB = re.compile(r"SizeMB \((\d+)\) is greater than")
_ONE_FILE_MB = re.compile(r"\(max=(\d+) MB, this file=(\d+) MB\)")


@builds(RemedyKey.TRANSFER_SIZE)
def _transfer_size(hold: Hold, rule: Rule, site: Site) -> Remedy:
    """Raise the limit to what the reason names; that it is to be raised is for a person to say."""
    total, one = _TOTAL_MB.search(hold.reason), _ONE_FILE_MB.search(hold.reason)
    if total:
        needed, why = int(total[1]), f"its files have {int(total[1]):,} MB"
    elif one:
        needed = int(one[1]) + int(one[2])  # before it there may have been files up to the limit
        why = f"one file has {int(one[2]):,} MB, and there may be more behind it"
    else:
        return _plain(hold, rule)
    attribute, value = TRANSFER_LIMITS[hold.code], str(needed + 1)  # sizes are rounded
    return Remedy(
        f"{why}: if that is meant to be, these commands raise the job's limit; otherwise name "
        "fewer files, or large ones by the URLs of a file server",
        (qedit_command(hold, attribute, value), release_command(hold)),
        rule.source,
        ((attribute, value),),
        by_hand=True,
    )


# ---- places ----------------------------------------------------------------------------------

_FILE = re.compile(r"(?:file|directory|execute|open) '?(/[^:'\n]+?)'?(?::| with arguments|\||$)")


def named_path(reason: str) -> str | None:
    """Return the file or directory that a hold reason names."""
    found = _FILE.search(reason)
    return found[1].strip() if found else None


@builds(RemedyKey.PATH)
def _path(hold: Hold, rule: Rule, site: Site) -> Remedy:
    path = named_path(hold.reason)
    if path is None:
        return _plain(hold, rule)
    release = (release_command(hold),)
    quoted = shlex.quote(path)
    # Only where the job is live are we on its access point, and looking makes sense.
    if hold.family == Family.WORKING_DIRECTORY:
        if hold.ad and os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK):
            return Remedy(f"{path} is there now: release it", release, rule.source, gone=True)
        return Remedy(
            f"make {path}, then release", (f"mkdir -p {quoted}", *release), rule.source,
            by_hand=True,
        )  # fmt: skip
    if hold.ad:
        if os.access(path, os.R_OK):
            return Remedy(f"{path} is there now: release it", release, rule.source, gone=True)
        if os.path.exists(path):
            return Remedy(
                f"let {path} be read, then release",
                (f"chmod u+r {quoted}", *release),
                rule.source,
                by_hand=True,
            )
        moved = _same_name(hold, path)
        if moved:
            named, edit = moved
            return Remedy(
                f"{path} is not there, and {named} has its name: if that is the one, these "
                "commands take it; otherwise put the file there and release",
                (qedit_command(hold, "TransferInput", edit), *release), rule.source,
                (("TransferInput", edit),), by_hand=True,
            )  # fmt: skip
        near = _nearest(path)
        if near:
            return Remedy(
                f"{path} is not there; did you mean {near}? Put the file there, or correct the "
                f"path with {_edit_of(hold, path)}, then release",
                release, rule.source, by_hand=True,
            )  # fmt: skip
    return Remedy(
        f"put {path} there, or correct its path with {_edit_of(hold, path)} "
        "(a submit file that is edited now changes only jobs submitted later), then release",
        release,
        rule.source,
        by_hand=True,
    )


def _edit_of(hold: Hold, path: str) -> str:
    """Return the edit that corrects a path, with the quotes without which it is an expression.

    The executable and the input stand in attributes of their own.
    """
    directory = str(hold.ad.get("Iwd", ""))
    for attribute in ("Cmd", "In"):
        if os.path.join(directory, str(hold.ad.get(attribute, ""))) == path:
            return f"""`condor_qedit JOB {attribute} '"FILE"'`"""
    return """`condor_qedit JOB TransferInput '"FILES"'`"""


# Looking for files must stay quick, also for thousands of jobs in large directories.
MOST_FILES_LOOKED_AT = 5000
MOST_NAMES_COMPARED = 300
LOOK_AGAIN_SECONDS = 30.0


@lru_cache(maxsize=64)
def _files_below(directory: str, when: int) -> dict[str, list[str]]:
    """Return where files lie in a directory and two levels below it, by their names."""
    found: dict[str, list[str]] = {}
    count = 0
    for place, folders, files in os.walk(directory):
        if os.path.relpath(place, directory).count(os.sep) >= 1:
            folders.clear()
        for name in files:
            found.setdefault(name, []).append(os.path.join(place, name))
        count += len(files)
        if count > MOST_FILES_LOOKED_AT:
            break
    return found


def _same_name(hold: Hold, path: str) -> tuple[str, str] | None:
    """Return the one file of that name elsewhere, and what TransferInput is to be with it."""
    directory = str(hold.ad.get("Iwd", ""))
    if not directory or hold.code != HoldCode.TRANSFER_INPUT_ERROR:
        return None
    # With `--watch` files come and go.
    files = _files_below(directory, int(time.monotonic() // LOOK_AGAIN_SECONDS))
    places = [place for place in files.get(os.path.basename(path), []) if place != path]
    listed = [word.strip() for word in str(hold.ad.get("TransferInput", "")).split(",")]
    if len(places) != 1:
        return None
    full = [os.path.normpath(os.path.join(directory, word)) for word in listed]
    if os.path.normpath(path) not in full:
        return None
    at = full.index(os.path.normpath(path))
    listed[at] = os.path.relpath(places[0], directory)
    if any(ch in word for word in listed for ch in '"\\'):
        return None
    return places[0], f'"{", ".join(listed)}"'


def _nearest(path: str) -> str | None:
    """Return the file whose name is nearly the one that is missing."""
    import difflib

    directory, name = os.path.split(path)
    try:
        with os.scandir(directory) as entries:
            most = range(MOST_NAMES_COMPARED)
            names = [entry.name for _, entry in zip(most, entries, strict=False)]
    except OSError:
        return None
    found = difflib.get_close_matches(name, names, 1, 0.75)
    return os.path.join(directory, found[0]) if found else None


@builds(RemedyKey.PROGRAM)
def _program(hold: Hold, rule: Rule, site: Site) -> Remedy:
    """Look at the executable itself where it can be seen."""
    command = str(hold.ad.get("Cmd", ""))
    path = os.path.join(str(hold.ad.get("Iwd", "")), command) if command else ""
    release = (release_command(hold),)
    try:
        with open(path, "rb") as file:
            first = file.readline(512)
    except OSError:
        return _plain(hold, rule)
    quoted = shlex.quote(path)
    if first.startswith(b"#!") and first.rstrip(b"\n").endswith(b"\r"):
        return Remedy(
            f"{path} was written on Windows: take the carriage returns out (as dos2unix does), "
            "then release",
            (f"sed -i 's/\\r$//' {quoted}", *release),
            "CHTC user guides, DOS line ends",
            by_hand=True,
        )
    if first.startswith(b"#!"):
        interpreter = first[2:].split()[0].decode("utf-8", "replace") if first[2:].split() else ""
        if interpreter and not os.path.exists(interpreter):
            return Remedy(
                f"the first line of {path} names {interpreter}, which is not on this machine "
                "either: correct it, then release",
                release, rule.source, by_hand=True,
            )  # fmt: skip
    if not os.access(path, os.X_OK) and hold.family == Family.EXEC_PERMISSION:
        return Remedy(
            f"make {path} executable, then release",
            (f"chmod +x {quoted}", *release),
            rule.source,
            by_hand=True,
        )
    return _plain(hold, rule)


@builds(RemedyKey.OUTPUT)
def _output(hold: Hold, rule: Rule, site: Site) -> Remedy:
    """Say how the program ended, and where it says why, as far as that came home."""
    path = named_path(hold.reason)
    ended = _ended(hold)
    if path is None or not ended:
        return _plain(hold, rule)
    said = _said(hold)
    look = f"look at what it said in {said}" if said else "find out why"
    return Remedy(
        f"{ended} and left no {os.path.basename(path)}: {look}; correct the program, or the list "
        "with `condor_qedit JOB TransferOutput '\"FILES\"'`, then release",
        (*((f"tail {shlex.quote(said)}",) if said else ()), release_command(hold)),
        rule.source,
        by_hand=True,
    )


def _ended(hold: Hold) -> str:
    """Say how the job's last run ended, where its ad tells."""
    if hold.ad.get("ExitBySignal") is True and "ExitSignal" in hold.ad:
        return f"it was ended by signal {hold.ad['ExitSignal']}"
    return f"it ended with exit code {hold.ad['ExitCode']}" if "ExitCode" in hold.ad else ""


def _said(hold: Hold) -> str:
    """Return the job's error file, or else its output file, if there is anything in it."""
    for name in ("Err", "Out"):
        path = os.path.join(str(hold.ad.get("Iwd", "")), str(hold.ad.get(name) or os.devnull))
        if os.path.isfile(path) and os.path.getsize(path):
            return path
    return ""


@builds(RemedyKey.POLICY)
def _policy(hold: Hold, rule: Rule, site: Site) -> Remedy:
    """Show the owner's own expression, and how the program ended if that is what it looks at."""
    policies = _own_policies(hold)
    text = rule.remedy
    if [*policies] == ["OnExitHold"] and _ended(hold):
        said = _said(hold)
        text = f"{_ended(hold)}{f', see {said}' if said else ''}; {text}"
    if policies:
        text = f"{_in_words(policies)}; {text}"
    return Remedy(text, (release_command(hold),), rule.source)


def _own_policies(hold: Hold) -> dict[str, str]:
    """Return the expressions by which the job's owner holds it, where such a one held it."""
    if hold.code != HoldCode.JOB_POLICY:
        return {}
    written = {name: hold.ad.get(name) for name in ("PeriodicHold", "OnExitHold")}
    return {name: text for name, text in written.items() if isinstance(text, str)}


def _in_words(policies: Mapping[str, str]) -> str:
    return " and ".join(
        f"{name} is `{textwrap.shorten(text, LONGEST_EXPRESSION, placeholder=' ...')}`"
        for name, text in policies.items()
    )


@builds(RemedyKey.CREDENTIAL)
def _credential(hold: Hold, rule: Rule, site: Site) -> Remedy:
    return Remedy(
        "renew the credential that its transfers use (a token or proxy that expired, or one that "
        "does not cover this path), then release",
        (release_command(hold),),
        rule.source,
        by_hand=True,
    )


def _elsewhere(hold: Hold, evidence: Evidence) -> Remedy:
    """Keep the job away from an execution point that holds what comes to it."""
    source = "TreeMaker wiki; pycbc 763; glideinWMS 331 (black holes)"
    words = (
        f"keep it away from {hold.point}, where {evidence.point_holds} jobs were held for this "
        "reason in the hour before, then release"
    )
    requirements = hold.ad.get("Requirements")
    if requirements is None:
        return Remedy(words, (release_command(hold),), source, by_hand=True)
    away = f'(TARGET.Machine =!= "{hold.point}")'
    if "@" in hold.point:  # one of several on its machine: only the slots' names tell them apart
        ending = f"@{hold.point}"
        away = f'(substr(TARGET.Name, -{len(ending)}) =!= "{ending}")'
    old = str(requirements)
    old = {"True": "true", "False": "false"}.get(old, old)
    new = old if away in old else f"({old}) && {away}"
    return Remedy(
        words,
        (qedit_command(hold, "Requirements", new), release_command(hold)),
        source,
        (("Requirements", new),),
    )


def _duration_words(seconds: float) -> str:
    if seconds >= 7200:
        return f"{seconds / 3600:,.1f} hours".replace(".0 ", " ")
    return f"{seconds / 60:,.0f} minutes" if seconds >= 120 else f"{seconds:,.0f} seconds"


def _empty() -> Any:
    return np.empty(0, np.float32)


def _number(value: object) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if usable else None  # type: ignore[arg-type]
