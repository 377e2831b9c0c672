"""What is printed is what is done: the commands in an answer, read back as a shell would."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from condor_advice.advise import commands as commands_package
from condor_advice.advise.advice import Advice, Adviser
from condor_advice.advise.apply.plan import Case
from condor_advice.advise.find_holds import read_logs
from condor_advice.advise.holds import hold_of_ad, hold_of_episode
from condor_advice.gather.events import JobId
from condor_advice.model.held.rules import Verdict

DEMO = Path(commands_package.__file__).resolve().parents[1] / "demo.log"
NOW = 1_800_000_000.0
EDITS = (("RequestMemory", "512"),)
REASONS = [
    (34, 102, "memory usage exceeded request_memory"),
    (34, 104, "disk usage exceeded request_disk"),
    (46, 0, "The job exceeded allowed job duration of 60"),
    (47, 0, "The job exceeded allowed execute duration of 60"),
    (32, 0, "SizeMB (300) is greater than MaxTransferInputMB (100)"),
    (13, 2, "Transfer input files failure: reading from file /no/such.dat: (errno 2) No such file"),
    (13, 256, "The requested URL returned error: 503"),
    (13, 256, "The requested URL returned error: 401"),
    (12, 2, "Transfer output files failure: reading from file /x/out.dat: (errno 2) No such file"),
    (14, 2, "Cannot access initial working directory /no/such: No such file or directory"),
    (6, 2, "Failed to execute '/no/such': (errno=2: 'No such file or directory')"),
    (3, 0, "The job attribute PeriodicHold expression evaluated to TRUE"),
    (26, 0, "memory use is over the limit"),
    (26, 0, "The system macro SYSTEM_PERIODIC_HOLD expression evaluated to TRUE"),
    (1, 0, "via condor_hold (by user ana)"),
    (1, 0, "via condor_hold (by user root)"),
    (99, 0, "a reason that no rule knows"),
]


def read_commands(commands: Iterable[str], job: str) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return the edits among printed commands, and whether they include anything but HTCondor's."""
    edits: list[tuple[str, str]] = []
    by_hand = False
    for command in commands:
        for words in _simple_commands(command):
            if words[:2] == ["condor_qedit", job] and len(words) >= 3:
                edits += _edits(words[2:])
            elif words not in (["condor_release", job], ["condor_rm", job]):
                by_hand = True
    return tuple(edits), by_hand


def _simple_commands(command: str) -> list[list[str]]:
    """Split a line at `&&` as a shell would: not within quotes."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="&;|<>")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word == "&&":
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:
        return [[command]]  # an open quote: no command at all
    return commands


def _edits(words: Sequence[str]) -> list[tuple[str, str]]:
    """Read `Attribute expression ...`, or `Attribute=expression ...`, as condor_qedit does."""
    if "=" in words[0]:
        return [(name, value) for name, _, value in (word.partition("=") for word in words)]
    return list(zip(words[::2], words[1::2], strict=False))


def live_advices() -> list[Advice]:
    usage = {"RequestMemory": 1000, "MemoryUsage": 1100, "RequestDisk": 9000, "DiskUsage": 9999,
             "AllowedJobDuration": 60, "AllowedExecuteDuration": 60, "Owner": "ana",
             "NumHolds": 1, "EnteredCurrentStatus": int(NOW)}  # fmt: skip
    holds = [
        hold_of_ad(
            JobId("ap1", 7, proc),
            usage | {"HoldReason": reason, "HoldReasonCode": code, "HoldReasonSubCode": subcode},
        )
        for proc, (code, subcode, reason) in enumerate(REASONS)
    ]
    return Adviser(None, now=datetime.fromtimestamp(NOW, UTC)).advise(holds)


def logged_advices() -> list[Advice]:
    kept = read_logs([str(DEMO)], "UTC")
    return Adviser(None).advise([hold_of_episode(each, kept) for each in kept.open_holds()])


@pytest.mark.parametrize("advices", [live_advices, logged_advices])
def test_what_is_applied_is_what_is_printed(advices) -> None:
    fixable = 0
    for advice in advices():
        case = Case.of(advice, NOW)
        edits, has_other_commands = read_commands(advice.commands, str(advice.hold.job))
        assert case.edits == edits, advice.commands
        if has_other_commands and advice.verdict is Verdict.FIX:
            assert case.by_hand, advice.commands
        fixable += bool(edits) and not case.by_hand
    assert fixable >= 1, "nothing here is fixed by an edit: the test proves nothing"


def test_printed_commands_are_read_as_a_shell_reads_them() -> None:
    def read(*commands: str):
        return read_commands(commands, "7.1")

    assert read("condor_qedit 7.1 RequestMemory 512", "condor_release 7.1") == (EDITS, False)
    assert read("condor_qedit 7.1 RequestMemory 512 && condor_release 7.1") == (EDITS, False)
    assert read("""condor_qedit 7.1 TransferInput '"a, b"'""")[0] == (("TransferInput", '"a, b"'),)
    assert read("condor_qedit 7.1 RequestMemory=512") == (EDITS, False)
    assert read("condor_qedit 7.1 Requirements '(a) && b' && condor_release 7.1") == (
        (("Requirements", "(a) && b"),), False,
    )  # fmt: skip
    assert read("condor_rm 7.1") == ((), False)
    assert read("dos2unix run.sh", "condor_release 7.1") == ((), True)
    assert read("condor_qedit 7.2 RequestMemory 512") == ((), True), "not this job"
    assert read("condor_release 7.1 'unfinished") == ((), True)


def test_a_case_is_taken_from_an_advice() -> None:
    advice = live_advices()[0]
    case = Case.of(advice, NOW)
    assert case.job == JobId("ap1", 7, 0)
    assert (case.verdict, case.by_hand) == (Verdict.FIX, False)
    assert case.edits == advice.remedy.edits
    assert dict(case.edits).keys() == {"RequestMemory"}
    assert (case.given.held_at, case.given.owner) == (NOW, "ana")
    assert (case.given.hold_number, case.given.model) == (1, None)
