"""What to do about a hold: words, commands to paste, and where the advice comes from.

The table of hold reasons (preprocess/holds/hold_reasons.py) says in general what facilitators
advise. The builders here make that concrete for one job: the size to request, the missing file, the
execution point to avoid, the time to wait. Every command can be pasted into a shell as it is, and
names its job in full, so that it touches no other.
"""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np

from condor_advice.advise.checks import corrected_policy, inputs_of, misspelt, same_numbers
from condor_advice.advise.evidence import Evidence
from condor_advice.advise.holds import Hold
from condor_advice.advise.site import Site
from condor_advice.gather.events import HoldCode
from condor_advice.gather.foreign_text import shell_word
from condor_advice.gather.regular import read_start
from condor_advice.model.held.rules import Rule, Verdict
from condor_advice.preprocess.holds.hold_reasons import (
    Family,
    RemedyKey,
    Trait,
    all_signs,
    families_with,
)

# A suggested size is enough for this share of like jobs.
QUANTILE = 0.9
# A quantile of fewer like cases than this means nothing.
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
# A request this many times what the job had when it was stopped is a correction.
ENOUGH_MORE = 1.5
# A job waits longer after each hold, up to this many times as long as after its first.
MOST_TURNS = 1000
LONGEST_EXPRESSION = 300  # characters of a policy expression that are shown
# A release as is would only be stopped at the same limit.
LIMITED = families_with(Trait.LIMIT)


@dataclass(frozen=True, slots=True)
class SlotCount:
    """How many slots of the pool could run a job after an edit."""

    matching: int
    slots: int


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do, and the risk that it is not enough where that is known."""

    text: str
    commands: tuple[str, ...] = ()
    source: str = ""
    edits: tuple[tuple[str, str], ...] = ()  # attribute and value, as condor_qedit takes them
    not_before: datetime | None = None
    risk: float | None = None  # of the suggested size being too small; None where unknown
    gone: bool = False  # the files on the access point show that the cause is gone
    by_hand: bool = False  # a person has to do or decide a part of it
    raised: bool = False  # the owner raised the request after the hold
    above: float | None = None  # the request has to be larger than this; in the attribute's unit
    slots: SlotCount | None = None  # None where the collector was not asked, or did not answer

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
            "slots": None if self.slots is None else asdict(self.slots),
        }


Builder = Callable[[Hold, Rule, Site], Remedy]
BUILDERS: dict[RemedyKey, Builder] = {}
# Builders that raise the limit that stopped the job: it would meet that on any execution point.
_RAISE_LIMITS: set[RemedyKey] = set()
_REMEDY_OF_FAMILY = {signs.family: signs.remedy for signs in all_signs()}


def builds(key: RemedyKey, *, raises_limit: bool = False) -> Callable[[Builder], Builder]:
    """Register the builder of a kind of remedy that the table of hold reasons names."""

    def register(builder: Builder) -> Builder:
        assert key not in BUILDERS, f"two builders for {key}"
        BUILDERS[key] = builder
        if raises_limit:
            _RAISE_LIMITS.add(key)
        return builder

    return register


def remedy_for(hold: Hold, rule: Rule, evidence: Evidence, site: Site, now: datetime) -> Remedy:
    """Return what to do about a hold if it is not simply released.

    A limit comes first, then a bad execution point, then what the family or the rule asks for.
    """
    fits = rule.builder_for is None or rule.builder_for == hold.family
    of_rule = rule.builder if fits else None
    if of_rule in _RAISE_LIMITS:
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
    """Return the command that sets an attribute, with its value quoted for a shell."""
    return f"condor_qedit {hold.job} {attribute} {shell_word(value)}"


def _plain(hold: Hold, rule: Rule) -> Remedy:
    # Where a person has to do or decide something first, a release is not there to be pasted.
    by_person = rule.verdict in (Verdict.FIX, Verdict.ASK)
    commands = (f"{rule.command} {hold.job}",) if rule.command and not by_person else ()
    return Remedy(rule.remedy, commands, rule.source, by_hand=rule.verdict is Verdict.FIX)


def later(hold: Hold, rule: Rule, site: Site, now: datetime) -> Remedy:
    """Advise a release once a passing cause has had time to pass, longer after each hold."""
    turns = min(max(1, hold.number), MOST_TURNS)
    when = hold.at + timedelta(minutes=site.retry_minutes * turns)
    if when <= now:
        return Remedy("release it", (release_command(hold),), rule.source)
    today = when.astimezone().date() == now.astimezone().date()
    local = when.astimezone().strftime("%H:%M" if today else "%H:%M on %d %b")
    waited = f"hold {hold.number} of this job" if hold.number > 1 else "that passes"
    return Remedy(
        f"release it after {local} ({waited}; an immediate retry meets the same trouble)",
        (release_command(hold),),
        rule.source,
        not_before=when,
    )


# ---- sizes -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Size:
    """A size to request, why, and the share of like cases that needed more."""

    value: float
    why: str
    risk: float | None


def size_above(measured: float, kin: Any, overruns: Any, unit: str) -> Size:
    """Return how much to request for a job that was stopped at `measured` and needs more.

    `kin` is what finished jobs of its kind used. `overruns` is, for jobs stopped in the same way
    that finished later, what they used in the end over what was measured when they were stopped.
    """
    above = kin[kin > measured]
    if len(above) >= FEWEST_LIKES:
        value = float(np.quantile(above, QUANTILE, method="higher"))
        risk = float(np.mean(above > value))
        why = (
            f"{len(above)} of {len(kin)} finished jobs of this kind used more than "
            f"{measured:,.0f} {unit}, {QUANTILE:.0%} of them at most {value:,.0f} {unit}"
        )
        return Size(value, why, max(risk, 1 - QUANTILE))
    ratios = overruns[overruns > 1.0]  # the others finished with what they had, by luck
    if len(ratios) >= FEWEST_LIKES:
        ratio = float(np.quantile(ratios, QUANTILE, method="higher"))
        why = (
            f"of {len(ratios)} jobs here that were stopped like this and finished later with more, "
            f"{QUANTILE:.0%} used at most {ratio:.1f} times what was measured"
        )
        return Size(measured * max(ratio, 1.1), why, 1 - QUANTILE)
    if not len(kin):
        finished = "no job of this kind has finished yet"
    elif len(above):
        finished = (
            f"only {len(above)} of {len(kin)} finished jobs of this kind used more than "
            f"{measured:,.0f} {unit}"
        )
    else:
        finished = f"no finished job of this kind used more than {measured:,.0f} {unit}"
    why = f"{finished}, so the need is unknown; twice as much is a first try"
    return Size(2 * measured, why, None)


def round_up(value: float, limit: float | None = None) -> int:
    """Round a size up to two or three significant figures, at most to `limit`."""
    step = 64
    while value > 32 * step:
        step *= 2
    rounded = int(-(-value // step) * step)
    return rounded if limit is None else min(rounded, int(limit))


@builds(RemedyKey.MEMORY, raises_limit=True)
def _memory(hold: Hold, rule: Rule, site: Site) -> Remedy:
    request = _number(hold.ad.get("RequestMemory")) or hold.feature("job_memory_request")
    given = _number(hold.ad.get("MemoryProvisioned"))
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
            f"{rule.remedy}; its usage was not measured",
            (),
            rule.source,
            by_hand=True,
        )
    peak = max(measured, default=0.0)
    if request and given and request >= ENOUGH_MORE * max(peak, given):
        return _raised(hold, rule, f"{given:,.0f}", f"{request:,.0f} MB of memory")
    floor = max(peak, request or 0.0)
    kin, overruns = _empty(), _empty()
    # Usage of finished jobs is kept without its time, so it may be newer than a past hold.
    if hold.kept is not None and hold.episode is not None and not hold.past:
        kin, overruns = hold.kept.memory_of_kin(hold.episode.kin), hold.kept.overruns()
    size = size_above(floor, kin, overruns, "MB")
    value = round_up(size.value, site.max_request_memory_mb)
    stopped = f"it was stopped at {peak:,.0f} MB" if peak else "its usage was not measured"
    asked = f", having requested {request:,.0f} MB," if request else ""
    text = f"request {value:,} MB of memory, then release; {stopped}{asked} and needs more; "
    return _resize(hold, rule, "RequestMemory", value, text + size.why, size, floor)


@builds(RemedyKey.DISK, raises_limit=True)
def _disk(hold: Hold, rule: Rule, site: Site) -> Remedy:
    request = _number(hold.ad.get("RequestDisk")) or hold.feature("job_disk_request")
    given = _number(hold.ad.get("DiskProvisioned"))
    used = [
        value
        for value in (hold.feature("job_disk_used"), _number(hold.ad.get("DiskUsage")))
        if value
    ]
    if not used and not request:
        return Remedy(f"{rule.remedy}; its usage was not measured", (), rule.source,
                      by_hand=True)  # fmt: skip
    peak = max(used, default=0.0)
    if request and given and request >= ENOUGH_MORE * max(peak, given):
        return _raised(hold, rule, f"{given / 1024:,.0f}", f"{request / 1024:,.0f} MB of disk")
    floor = max(peak, request or 0.0)
    mates = _empty()
    if hold.kept is not None and not hold.past:
        mates = hold.kept.disk_of_mates(hold.job.cluster)
    size = size_above(floor / 1024, mates, _empty(), "MB")
    value = round_up(size.value, site.max_request_disk_mb)
    stopped = f"it was stopped at {peak / 1024:,.0f} MB" if peak else "its usage was not measured"
    asked = f", having requested {request / 1024:,.0f} MB," if request else ""
    text = f"request {value:,} MB of disk, then release; {stopped}{asked} and needs more; "
    return _resize(hold, rule, "RequestDisk", value * 1024, text + size.why, size, floor)  # in KB


def _raised(hold: Hold, rule: Rule, before: str, now: str) -> Remedy:
    """Advise a release of a job whose request was raised after it had been stopped."""
    return Remedy(
        f"it ran with {before} MB and requests {now} now: release it",
        (release_command(hold),),
        rule.source,
        gone=True,
        raised=True,
    )


def _resize(
    hold: Hold, rule: Rule, attribute: str, value: int, text: str, size: Size, floor: float
) -> Remedy:
    if value <= floor:
        return Remedy(
            "it needs more than this site gives one job: split the work, or ask the staff",
            (),
            rule.source,
            by_hand=True,
        )
    own = hold.code == HoldCode.JOB_POLICY
    if own:
        text += "; its own policy held it: if that has a fixed limit, change it as well"
        if policies := _own_policies(hold):
            text += f" ({_in_words(policies)})"
    return Remedy(
        text,
        (qedit_command(hold, attribute, str(value)), release_command(hold)),
        rule.source,
        ((attribute, str(value)),),
        risk=size.risk,
        by_hand=own,
        above=floor,
    )


@builds(RemedyKey.DURATION, raises_limit=True)
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
            "limit, make it checkpoint itself",
            (f"condor_rm {hold.job}",),
            rule.source,
            by_hand=True,
        )
    if not limit:
        return Remedy(rule.remedy, (), rule.source, by_hand=True)
    value = int(-(-2 * limit // 1))
    return Remedy(
        f"allow it {_duration_words(value)}, then release; it was stopped after "
        f"{_duration_words(limit)}, so the need is unknown and twice as long is a first try; if it "
        "can, make it checkpoint itself",
        (qedit_command(hold, attribute, str(value)), release_command(hold)),
        rule.source,
        ((attribute, str(value)),),
    )


_TOTAL_MB = re.compile(r"SizeMB \((\d+)\) is greater than")
_ONE_FILE_MB = re.compile(r"\(max=(\d+) MB, this file=(\d+) MB\)")


@builds(RemedyKey.TRANSFER_SIZE, raises_limit=True)
def _transfer_size(hold: Hold, rule: Rule, site: Site) -> Remedy:
    """Raise the limit to what the reason states; whether to raise it is a person's decision."""
    total, file = _TOTAL_MB.search(hold.reason), _ONE_FILE_MB.search(hold.reason)
    if total:
        needed, why = int(total[1]), f"its files total {int(total[1]):,} MB"
    elif file:
        needed = int(file[1]) + int(file[2])  # files up to the limit may have come before it
        why = f"one file has {int(file[2]):,} MB, and more may follow"
    else:
        return _plain(hold, rule)
    attribute, value = TRANSFER_LIMITS[hold.code], str(needed + 1)  # sizes are rounded
    return Remedy(
        f"{why}: if that is intended, these commands raise the job's limit; otherwise list "
        "fewer files, or URLs of a file server for large ones",
        (qedit_command(hold, attribute, value), release_command(hold)),
        rule.source,
        ((attribute, value),),
        by_hand=True,
    )


# ---- places ----------------------------------------------------------------------------------

_FILE = re.compile(r"(?:file|directory|execute|open) '?(/[^:'\n]+?)'?(?::| with arguments|\||$)")


def named_path(reason: str) -> str | None:
    """Return the file or directory that a hold reason names."""
    path = _FILE.search(reason)
    return path[1].strip() if path else None


@builds(RemedyKey.PATH)
def _path(hold: Hold, rule: Rule, site: Site) -> Remedy:
    path = named_path(hold.reason)
    if path is None:
        return _plain(hold, rule)
    release = (release_command(hold),)
    quoted = shell_word(path)
    # Only a live job is on this access point, where its files can be looked at.
    if hold.family == Family.WORKING_DIRECTORY:
        if hold.ad and os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK):
            return Remedy(f"{path} exists now: release it", release, rule.source, gone=True)
        return Remedy(
            f"create {path}, then release", (f"mkdir -p {quoted}", *release), rule.source,
            by_hand=True,
        )  # fmt: skip
    if hold.ad:
        if os.access(path, os.R_OK):
            return Remedy(f"{path} exists now: release it", release, rule.source, gone=True)
        if os.path.exists(path):
            return Remedy(
                f"make {path} readable, then release",
                (f"chmod u+r {quoted}", *release),
                rule.source,
                by_hand=True,
            )
        moved = _same_name(hold, path)
        if moved:
            named, edit = moved
            return Remedy(
                f"{path} does not exist, but {named} has the same name: if that is the one, these "
                "commands use it; otherwise put the file there and release",
                (qedit_command(hold, "TransferInput", edit), *release), rule.source,
                (("TransferInput", edit),), by_hand=True,
            )  # fmt: skip
        near = misspelt(path, inputs_of(hold.ad))
        if near:
            return Remedy(
                f"{path} does not exist; did you mean {near}? Put the file there, or correct the "
                f"path with {_edit_of(hold, path)}, then release",
                (), rule.source, by_hand=True,
            )  # fmt: skip
    return Remedy(
        f"put {path} there, or correct its path with {_edit_of(hold, path)} "
        "(editing the submit file changes only jobs submitted later), then release",
        (),
        rule.source,
        by_hand=True,
    )


def _edit_of(hold: Hold, path: str) -> str:
    """Return the edit that corrects a path.

    Without the inner quotes HTCondor would take the path for an expression. The executable and
    standard input have attributes of their own.
    """
    directory = str(hold.ad.get("Iwd", ""))
    for attribute in ("Cmd", "In"):
        if os.path.join(directory, str(hold.ad.get(attribute, ""))) == path:
            return f"""`condor_qedit JOB {attribute} '"FILE"'`"""
    return """`condor_qedit JOB TransferInput '"FILES"'`"""


# Looking for files must stay quick, even for thousands of jobs in large directories.
MOST_FILES_LOOKED_AT = 5000
LOOK_AGAIN_SECONDS = 30.0
LOOK_SECONDS = 2.0


@lru_cache(maxsize=64)
def _files_below(directory: str, when: int) -> dict[str, list[str]]:
    """Return the paths of files in a directory and two levels below it, by file name."""
    paths: dict[str, list[str]] = {}
    count = 0
    deadline = time.monotonic() + LOOK_SECONDS
    for place, folders, files in os.walk(directory):
        if os.path.relpath(place, directory).count(os.sep) >= 1:
            folders.clear()
        for name in files:
            paths.setdefault(name, []).append(os.path.join(place, name))
        count += len(files)
        if count > MOST_FILES_LOOKED_AT or time.monotonic() > deadline:
            break
    return paths


def _same_name(hold: Hold, path: str) -> tuple[str, str] | None:
    """Return the only other file of that name, and TransferInput with it."""
    directory = str(hold.ad.get("Iwd", ""))
    if not directory or hold.code != HoldCode.TRANSFER_INPUT_ERROR:
        return None
    # With `--watch` files come and go, so what was found soon expires.
    files = _files_below(directory, int(time.monotonic() // LOOK_AGAIN_SECONDS))
    used = inputs_of(hold.ad)
    places = [
        place
        for place in files.get(os.path.basename(path), [])
        if place != path and place not in used and same_numbers(path, place)
    ]
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


@builds(RemedyKey.PROGRAM)
def _program(hold: Hold, rule: Rule, site: Site) -> Remedy:
    """Look at the executable itself where it can be read."""
    command = str(hold.ad.get("Cmd", ""))
    path = os.path.join(str(hold.ad.get("Iwd", "")), command) if command else ""
    release = (release_command(hold),)
    try:
        first = read_start(path, 512).split(b"\n", 1)[0]
    except OSError:
        return _plain(hold, rule)
    quoted = shell_word(path)
    if first.startswith(b"#!") and first.endswith(b"\r"):
        return Remedy(
            f"{path} was written on Windows: remove the carriage returns (as dos2unix does), then "
            "release",
            (f"sed -i 's/\\r$//' {quoted}", *release),
            "CHTC user guides, DOS line ends",
            by_hand=True,
        )
    if first.startswith(b"#!"):
        interpreter = first[2:].split()[0].decode("utf-8", "replace") if first[2:].split() else ""
        if interpreter and not os.path.exists(interpreter):
            return Remedy(
                f"the first line of {path} names {interpreter}, which does not exist on this "
                "machine either: correct it, then release",
                (), rule.source, by_hand=True,
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
    """Say how the program ended, and which of its files may say why."""
    path = named_path(hold.reason)
    ended = _ended(hold)
    if path is None or not ended:
        return _plain(hold, rule)
    messages = _message_file(hold)
    look = f"look at its messages in {messages}" if messages else "find out why"
    return Remedy(
        f"{ended} without writing {os.path.basename(path)}: {look}; correct the program, or "
        "the list with `condor_qedit JOB TransferOutput '\"FILES\"'`, then release",
        (f"tail {shell_word(messages)}",) if messages else (),
        rule.source,
        by_hand=True,
    )


def _ended(hold: Hold) -> str:
    """Say how the job's last run ended, if its ad has that."""
    if hold.ad.get("ExitBySignal") is True and "ExitSignal" in hold.ad:
        return f"it was killed by signal {hold.ad['ExitSignal']}"
    return f"it ended with exit code {hold.ad['ExitCode']}" if "ExitCode" in hold.ad else ""


def _message_file(hold: Hold) -> str:
    """Return the job's error file, or else its output file, if it is not empty."""
    for name in ("Err", "Out"):
        path = os.path.join(str(hold.ad.get("Iwd", "")), str(hold.ad.get(name) or os.devnull))
        if os.path.isfile(path) and os.path.getsize(path):
            return path
    return ""


@builds(RemedyKey.POLICY)
def _policy(hold: Hold, rule: Rule, site: Site) -> Remedy:
    """Show the owner's own expression, and how the program ended if OnExitHold held it."""
    if changed := corrected_policy(hold.reason, hold.ad):
        return Remedy(f"{changed}: release it", (release_command(hold),), rule.source, gone=True)
    policies = _own_policies(hold)
    text = rule.remedy
    if [*policies] == ["OnExitHold"] and _ended(hold):
        messages = _message_file(hold)
        text = f"{_ended(hold)}{f', see {messages}' if messages else ''}; {text}"
    if policies:
        text = f"{_in_words(policies)}; {text}"
    return Remedy(text, (), rule.source, by_hand=True)


def _own_policies(hold: Hold) -> dict[str, str]:
    """Return the owner's own hold expressions, if one of them held the job."""
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
        "renew the credential that its transfers use (the token or proxy has expired, or does "
        "not cover this path), then release",
        (),
        rule.source,
        by_hand=True,
    )


_POINT_NAME = re.compile(r"[\w.@:-]+", re.ASCII)


def _elsewhere(hold: Hold, evidence: Evidence) -> Remedy:
    """Keep the job away from an execution point where jobs are held."""
    source = "TreeMaker wiki; pycbc 763; glideinWMS 331 (black holes)"
    words = (
        f"keep it away from {hold.point}, where {evidence.point_holds} jobs were held for this "
        "reason in the hour before, then release"
    )
    requirements = hold.ad.get("Requirements")
    # The name comes from the job's ad or its log, and becomes part of an expression.
    if requirements is None or not _POINT_NAME.fullmatch(hold.point):
        return Remedy(words, (), source, by_hand=True)
    away = f'(TARGET.Machine =!= "{hold.point}")'
    if "@" in hold.point:  # several on one machine: only slot names tell them apart
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
