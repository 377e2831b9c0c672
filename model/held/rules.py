"""What facilitators advise per hold reason: a table, with the source of each row.

The rules are the first baseline of every model, and the answer where there is no model. A
prior is how often we expect a release as is to succeed, before any outcome was seen here; it
weighs as much as two seen cases, so that a pool's own outcomes soon speak for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

PRIOR_WEIGHT = 2.0
# Held this often for one reason although it was released each time: enough.
FUTILE_RELEASES = 3


class Verdict(Enum):
    """What to do with a held job."""

    RELEASE = "RELEASE"
    FIX = "FIX"  # then release
    REMOVE = "REMOVE"
    ASK = "ASK"  # the owner's intention, staff, or too little to go by


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: which holds it is about, and what follows."""

    name: str
    verdict: Verdict
    prior: float  # of success if released as is
    why: str
    remedy: str
    source: str
    codes: tuple[int, ...] = ()  # none: any
    subcodes: tuple[int, ...] = ()  # none: any
    pattern: str = ""  # in the reason, case ignored
    commands: tuple[str, ...] = ("condor_release {job}",)

    def matches(self, code: int | None, subcode: int | None, reason: str) -> bool:
        """Tell whether a hold is one of this row's."""
        if self.codes and code not in self.codes:
            return False
        if self.subcodes and subcode not in self.subcodes:
            return False
        return not self.pattern or re.search(self.pattern, reason, re.IGNORECASE) is not None


_HTC = "HTCondor manual, hold reason codes"
_TED = "HTCondor manual, transfer error data"
_OSP = "OSPool documentation"
_CHTC = "CHTC user guides"
_RELEASE = ("condor_release {job}",)
_MEMORY = ("condor_qedit {job} RequestMemory {memory_mb}", "condor_release {job}")
_DISK = ("condor_qedit {job} RequestDisk {disk_kb}", "condor_release {job}")
_REMOVE = ("condor_rm {job}",)

# The first row that matches counts: special ones stand above general ones.
RULES: tuple[Rule, ...] = (
    Rule(
        "held by hand", Verdict.ASK, 0.5,
        "somebody held it on purpose with condor_hold",
        "release it when the reason for holding it is gone",
        "HTCondor manual: SYSTEM_PERIODIC_RELEASE never releases these", codes=(1,),
    ),
    Rule(
        "submitted on hold", Verdict.ASK, 0.8,
        "it was submitted with `hold = true`", "release it when it is to start",
        _HTC, codes=(15,),
    ),
    Rule(
        "spooling", Verdict.ASK, 0.9,
        "its input files are still being spooled",
        "wait: it is released by itself when they have arrived", _HTC, codes=(16,), commands=(),
    ),
    Rule(
        "over memory", Verdict.FIX, 0.05,
        "it used more memory than it asked for, and would again",
        "ask for more memory, then release", f"{_HTC} (34/102); {_CHTC}", codes=(21, 34),
        subcodes=(102,), commands=_MEMORY,
    ),
    Rule(
        "over memory", Verdict.FIX, 0.05,
        "it used more memory than it asked for, and would again",
        "ask for more memory, then release", f"{_HTC}; {_CHTC}", codes=(3, 21, 26, 34),
        pattern=r"memory.*(exceed|over|above|more than|limit)|(exceed|over|above|limit).*memory|"
        r"out of memory",
        commands=_MEMORY,
    ),
    Rule(
        "over disk", Verdict.FIX, 0.05,
        "it used more scratch disk than it asked for, and would again",
        "ask for more disk, then release", f"{_HTC} (34/104)", codes=(21, 34), subcodes=(104,),
        commands=_DISK,
    ),
    Rule(
        "over disk", Verdict.FIX, 0.05,
        "it used more scratch disk than it asked for, and would again",
        "ask for more disk, then release", _HTC, codes=(3, 21, 26, 34),
        pattern=r"disk.*(exceed|over|more than)|(exceed|over).*disk", commands=_DISK,
    ),
    Rule(
        "over its allowed run time", Verdict.FIX, 0.05,
        "it ran as long as it is allowed to, and would again",
        "allow it longer, or submit it in a longer duration category; if it is near a site's "
        "limit, let it checkpoint itself",
        f"{_OSP}, job duration categories", codes=(46, 47),
        commands=("condor_qedit {job} AllowedExecuteDuration {duration_s}", *_RELEASE),
    ),
    Rule(
        "credential refused", Verdict.FIX, 0.1,
        "a file server refused its credential",
        "renew the credential, then release", f"{_TED} (Authorization)", codes=(4, 12, 13),
        pattern=r"\b(401|403)\b|unauthori[sz]ed|forbidden|expired|credential|permission denied "
        r"by server",
    ),
    Rule(
        "wrong address", Verdict.FIX, 0.1,
        "a file server has no such file",
        "put the file there, or correct the URL with `condor_qedit JOB TransferInput '\"FILES\"'` "
        "(a submit file that is edited now changes only jobs submitted later), then release",
        f"{_TED} (Specification)",
        codes=(12, 13), pattern=r"\b404\b|not found on (the )?server",
    ),
    Rule(
        "file server trouble", Verdict.RELEASE, 0.6,
        "a file server or the way to it failed; that passes",
        "release it after a while", f"{_TED} (Contact, Transfer)", codes=(12, 13),
        pattern=r"\b(429|500|502|503|504)\b|timed? ?out|time-out|connection (refused|reset)|"
        r"(failed to|could(n't| not)) connect|unreachable|temporar",
    ),
    Rule(
        "transfer took too long", Verdict.RELEASE, 0.6,
        "the transfer plug-in ran out of time", "release it after a while",
        "HTCondor manual, vacate reason codes (62)", codes=(12, 13), subcodes=(62,),
    ),
    Rule(
        "transfer plug-in missing", Verdict.RELEASE, 0.7,
        "the execution point has no working plug-in for the transfer",
        "release it; another execution point will do",
        "HTCondor manual, vacate reason codes (-1001 to -1004)", codes=(12, 13),
        subcodes=(-1001, -1002, -1003, -1004),
    ),
    Rule(
        "over quota", Verdict.FIX, 0.1,
        "there is no room left where its output goes",
        "free some space or ask for quota, then release", f"{_OSP}, managing data",
        codes=(12, 13), pattern=r"quota|no space left|disk full|errno 28|errno 122",
    ),
    Rule(
        "input file missing", Verdict.FIX, 0.15,
        "a file in transfer_input_files, or the executable, is not there",
        "put the file there or correct its path, then release",
        f"{_OSP}, monitoring and reviewing jobs", codes=(13,), subcodes=(2,),
    ),
    Rule(
        "output file missing", Verdict.FIX, 0.25,
        "the job ended without writing a file named in transfer_output_files",
        "read its error file: did it fail? Correct the program, or the list with `condor_qedit JOB "
        "TransferOutput '\"FILES\"'`, then release",
        "OSG tutorial on errors (error101)", codes=(12, 13), subcodes=(2,),
        pattern=r"output|sending file|reading from file",
    ),
    Rule(
        "no permission", Verdict.FIX, 0.1,
        "a file or directory may not be read or written",
        "correct its permissions, then release", _HTC, codes=(6, 7, 8, 9, 10, 12, 13),
        subcodes=(1, 13),
    ),
    Rule(
        "transfer failed at the access point", Verdict.FIX, 0.15,
        "a path for its output does not work", "correct the path, then release", _HTC,
        codes=(7, 8, 9, 10, 12), subcodes=(20, 21, 30),
    ),
    Rule(
        "transfer failed", Verdict.RELEASE, 0.45,
        "a file transfer failed for another reason", "release it once; look if it comes back",
        "OSG tutorial on errors (error101)", codes=(2, 11, 12, 13, 18),
    ),
    Rule(
        "bad first line", Verdict.FIX, 0.05,
        "the script's first line names a program that is not there",
        "correct the `#!` line; if the script was written on Windows, run dos2unix on it",
        f"{_CHTC}, DOS line ends", codes=(6,), subcodes=(2,), pattern=r"interpreter|\^M|\\r",
    ),
    Rule(
        "executable missing", Verdict.FIX, 0.2,
        "the execution point has no such program, or the script has DOS line ends",
        "install the program there or transfer it with the job; a script with DOS line ends needs "
        "dos2unix; then release", f"{_CHTC}, DOS line ends",
        codes=(6,), subcodes=(2,),
    ),
    Rule(
        "not a program", Verdict.FIX, 0.05,
        "the executable is not a program for this kind of machine",
        "build it for the execution points, or begin the script with a `#!` line; then release",
        _HTC,
        codes=(6,), subcodes=(8,),
    ),
    Rule(
        "execution point timed out", Verdict.RELEASE, 0.6,
        "the execution point did not answer in time", "release it after a while",
        "HTCondor manual, example of SYSTEM_PERIODIC_RELEASE (6/110)", codes=(6,),
        subcodes=(110,),
    ),
    Rule(
        "could not start", Verdict.RELEASE, 0.4,
        "the execution point could not start it", "release it; try another execution point",
        _HTC, codes=(6, 19, 21, 45, 48), commands=_RELEASE,
    ),
    Rule(
        "working directory gone", Verdict.FIX, 0.1,
        "its initial working directory cannot be used",
        "make sure initialdir exists and is writable, then release", _HTC, codes=(14,),
    ),
    Rule(
        "standard files", Verdict.FIX, 0.15,
        "its standard input, output or error file cannot be opened",
        "correct the path, then release", _HTC, codes=(7, 8, 9, 10),
    ),
    Rule(
        "event log", Verdict.FIX, 0.1, "its event log cannot be written",
        "put `log` into a writable directory, then release", _HTC, codes=(22,),
    ),
    Rule(
        "container image", Verdict.FIX, 0.15, "its container image cannot be used",
        "check the name of the image, and that it is built for amd64", f"{_HTC}; {_CHTC}",
        codes=(35,),
    ),
    Rule(
        "transfer too large", Verdict.FIX, 0.05,
        "its input files are larger than it, or this access point, lets be transferred",
        "raise the job's own limit with `condor_qedit JOB MaxTransferInputMB`, then release; "
        "where the access point sets the limit, move large files to a file server and name their "
        "URLs", _HTC, codes=(32,),
    ),
    Rule(
        "transfer too large", Verdict.FIX, 0.05,
        "its output files are larger than it, or this access point, lets be transferred",
        "raise the job's own limit with `condor_qedit JOB MaxTransferOutputMB`, then release; "
        "where the access point sets the limit, send large files to a file server with "
        "transfer_output_remaps", _HTC, codes=(33,),
    ),
    Rule(
        "its own policy", Verdict.ASK, 0.4,
        "its owner's periodic_hold or on_exit_hold was true",
        "look at what the expression guards against: a licence server that was down passes, "
        "a bug does not; a limit that was meant for other jobs is lifted with `condor_qedit JOB "
        "PeriodicHold false` (or OnExitHold)", _HTC, codes=(3,),
    ),
    Rule(
        "policy undefined", Verdict.FIX, 0.05,
        "a policy expression of the job has no value",
        "correct the expression with condor_qedit, then release", _HTC, codes=(5, 20, 25),
        commands=(),
    ),
    Rule(
        "site policy", Verdict.ASK, 0.3,
        "a policy of this access point held it",
        "read the reason; ask the facilitators if it does not say what to change",
        f"{_OSP}, policies", codes=(26, 27),
    ),
    Rule(
        "cloud or grid connection", Verdict.RELEASE, 0.6,
        "a connection to the cloud failed", "release it after a while", _HTC, codes=(40,),
    ),
    Rule(
        "account or version trouble", Verdict.ASK, 0.3,
        "the access point or the execution point is not set up for it",
        "tell the staff; releasing it does not help", _HTC, codes=(17, 23, 24, 28, 29, 30, 31, 49),
        commands=(),
    ),
    Rule(
        "checkpoint failed", Verdict.FIX, 0.3, "it failed when it was asked to checkpoint",
        "look at its error file, then release", _HTC, codes=(36,),
    ),
    Rule(
        "its scripts", Verdict.FIX, 0.3, "its pre or post script failed",
        "correct the script, then release", _HTC, codes=(43, 44),
    ),
)  # fmt: skip

UNKNOWN = Rule(
    "reason not known", Verdict.ASK, 0.35, "no rule knows this reason",
    "read the reason; release once if it looks transient", "ours",
)  # fmt: skip
FUTILE = Rule(
    "comes back", Verdict.REMOVE, 0.05,
    "it was released for this reason {released} times and held again each time",
    "remove it, find out why, and submit it again", "glideinWMS, unrecoverable holds",
    commands=_REMOVE,
)  # fmt: skip


def rule_for(code: int | None, subcode: int | None, reason: str, released: int = 0) -> Rule:
    """Return the rule for a hold; `released` counts releases that led back to it."""
    found = next((rule for rule in RULES if rule.matches(code, subcode, reason)), UNKNOWN)
    if found.verdict is Verdict.RELEASE and released >= FUTILE_RELEASES:
        return replace(FUTILE, why=FUTILE.why.format(released=released))
    return found


def posterior(prior: float, outcomes: Sequence[bool]) -> tuple[float, tuple[float, float]]:
    """Return the chance of success and its 90 % interval from a prior and seen outcomes.

    The interval is Wilson's, with the prior counted as cases: wide while there are few.
    """
    cases = PRIOR_WEIGHT + len(outcomes)
    chance = (prior * PRIOR_WEIGHT + sum(outcomes)) / cases
    z = 1.645
    middle = (chance + z * z / (2 * cases)) / (1 + z * z / cases)
    spread = chance * (1 - chance) / cases + z * z / (4 * cases * cases)
    half = z / (1 + z * z / cases) * float(spread) ** 0.5
    return chance, (max(0.0, middle - half), min(1.0, middle + half))
