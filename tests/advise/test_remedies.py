"""What is advised fits the job: sizes from what was measured, paths, places and times by name."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from condor_advice.advise.advice import Advice, Adviser, decide, policy_notes
from condor_advice.advise.evidence import Evidence
from condor_advice.advise.holds import Hold, hold_of_ad
from condor_advice.advise.remedies import (
    BUILDERS,
    Remedy,
    named_path,
    remedy_for,
    round_up,
    size_above,
)
from condor_advice.advise.site import Site
from condor_advice.gather.events import JobId
from condor_advice.model.held.rules import Verdict, rule_for
from condor_advice.preprocess.holds.hold_reasons import HOLD_REASONS, HoldReason, RemedyKey
from condor_advice.preprocess.holds.known import Tally

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
NOTHING = np.empty(0, np.float32)


def held(code: int, subcode: int, reason: str, **ad: Any) -> Hold:
    given = {
        "HoldReason": reason,
        "HoldReasonCode": code,
        "HoldReasonSubCode": subcode,
        "EnteredCurrentStatus": int((NOW - timedelta(minutes=3)).timestamp()),
        "Owner": "ana",
        "NumHolds": 1,
    }
    return hold_of_ad(JobId("ap", 12, 3), given | ad)


def evidence(**values: Any) -> Evidence:
    nothing: dict[str, Any] = {
        "like": None, "came_back": 0, "starts": None, "releases": None, "mates": Tally(),
        "mates_changed": Tally(), "program_clusters": 0, "program": Tally(),
        "point_holds": None, "point_starts": None, "point_share": None,
        "point_start_share": None,
    }  # fmt: skip
    return Evidence(**nothing | values)


def advice(hold: Hold, site: Site | None = None) -> Advice:
    return Adviser(None, site, now=NOW).advise([hold])[0]


def remedy(hold: Hold, site: Site | None = None, **values: Any) -> Remedy:
    rule = rule_for(hold.code, hold.subcode, hold.reason)
    return remedy_for(hold, rule, evidence(**values), site or Site(), NOW)


def test_a_size_is_a_quantile_of_like_jobs_that_finished_above_the_limit() -> None:
    kin = np.array([500.0] * 20 + [1100, 1200, 1300, 1400, 1500, 1600, 1700, 1800, 1900, 9000])
    size = size_above(1000, kin, NOTHING, "MB")
    assert size.value == 9000  # nine of ten of those above, rounded up to one that was seen
    assert size.risk == pytest.approx(0.1)
    assert "10 of 30 finished jobs of this kind used more than 1,000 MB" in size.why


def test_without_such_likes_earlier_overruns_say_how_much_more() -> None:
    kin, overruns = np.array([500.0] * 20), np.array([1.2, 1.3, 1.4, 1.5, 1.6, 1.0])
    size = size_above(1000, kin, overruns, "MB")
    assert size.value == pytest.approx(1600)
    assert size.risk == pytest.approx(0.1)
    assert "of 5 jobs here that were stopped like this and finished later with more" in size.why


def test_where_nothing_was_measured_a_first_try_is_called_one() -> None:
    size = size_above(1000, np.array([500.0, 700.0]), NOTHING, "MB")
    assert (size.value, size.risk) == (2000, None)
    assert "no finished job of this kind used more than 1,000 MB" in size.why
    assert "first try" in size.why
    few = size_above(1000, np.array([500.0, 700.0, 1200.0]), NOTHING, "MB")
    assert few.value == 2000
    assert "only 1 of 3 finished jobs of this kind used more than 1,000 MB" in few.why


def test_sizes_are_round_and_never_smaller() -> None:
    for value in (1, 63, 64, 65, 1000, 2049, 9999, 123456.7):
        rounded = round_up(value)
        assert value <= rounded <= value * 1.1 + 64
    assert round_up(5000, 4000) == 4000


def test_memory_is_asked_for_above_what_was_used_and_requested() -> None:
    reason = "memory usage exceeded request_memory"
    found = remedy(held(34, 102, reason, RequestMemory=2000, MemoryUsage=2100))
    [(attribute, value)] = found.edits
    assert attribute == "RequestMemory"
    assert int(value) > 2100
    assert found.commands == (f"condor_qedit 12.3 RequestMemory {value}", "condor_release 12.3")
    assert "stopped at 2,100 MB, having requested 2,000 MB" in found.text


def test_disk_is_asked_for_in_the_units_that_condor_has() -> None:
    found = remedy(held(34, 104, "disk usage exceeded request_disk", RequestDisk=1 << 20,
                        DiskUsage=(1 << 20) + 9))  # fmt: skip
    [(attribute, value)] = found.edits
    assert attribute == "RequestDisk"
    assert int(value) == 2176 * 1024  # KB


@pytest.mark.parametrize(
    ("code", "reason", "edit"),
    [
        (32, "TransferInputSizeMB (4) is greater than MAX_TRANSFER_INPUT_MB (1) at submit time",
         ("MaxTransferInputMB", "5")),
        (33, "sending file /x/big: max total download bytes exceeded (max=1 MB, this file=40 MB)",
         ("MaxTransferOutputMB", "42")),
    ],
)  # fmt: skip
def test_a_limit_on_transfers_is_raised_above_what_was_to_be_sent(
    code: int, reason: str, edit: tuple[str, str]
) -> None:
    hold = held(code, 0, reason)
    found = remedy(hold)
    assert found.edits == (edit,)
    assert found.commands == (f"condor_qedit 12.3 {' '.join(edit)}", "condor_release 12.3")
    assert found.by_hand  # a limit has its reasons
    assert advice(hold).verdict is Verdict.FIX
    assert remedy(held(code, 0, "too large")).edits == ()


def test_more_than_the_site_gives_is_not_asked_for() -> None:
    reason = "memory usage exceeded request_memory"
    site = Site(max_request_memory_mb=4000)
    hold = held(34, 102, reason, RequestMemory=4000, MemoryUsage=4100)
    found = remedy(hold, site)
    assert found.commands == ()
    assert "more than this site gives" in found.text
    assert advice(hold, site).verdict is Verdict.FIX


def test_a_black_hole_is_avoided_by_name() -> None:
    ad = {"Requirements": '(TARGET.Arch == "X86_64") && (TARGET.Memory >= RequestMemory)'}
    bad: dict[str, Any] = {"point_holds": 9, "point_starts": 10, "point_share": 0.9,
                           "point_start_share": 0.05}  # fmt: skip
    reason = "Error from slot1_3@bad.example.org: Failed to execute '/x/job': (errno=5: 'I/O')"
    hold = held(6, 5, reason, **ad)
    assert hold.point == "bad.example.org"
    found = remedy(hold, **bad)
    [(name, value)] = found.edits
    assert value == f'({ad["Requirements"]}) && (TARGET.Machine =!= "bad.example.org")'
    assert shlex.split(found.commands[0]) == ["condor_qedit", "12.3", name, value]
    # Where all jobs run there, it is not the execution point that stands out.
    assert remedy(hold, **bad | {"point_start_share": 1.0}).edits == ()
    # Several execution points on one machine are told apart by their slots' names.
    several = held(6, 5, reason.replace("@bad", "@ep2@bad"), **ad)
    [(_, value)] = remedy(several, **bad).edits
    assert value.endswith('(substr(TARGET.Name, -20) =!= "@ep2@bad.example.org")')


@pytest.mark.parametrize(
    ("reason", "path"),
    [
        ("reading from file /home/a/in.dat: (errno 2) No such file", "/home/a/in.dat"),
        ("reading from file /home/a b/in 1.dat: (errno 2) No", "/home/a b/in 1.dat"),
        ("Cannot access initial working directory /home/x/run: No such", "/home/x/run"),
        ("memory usage exceeded request_memory", None),
    ],
)
def test_the_file_that_a_reason_names_is_found(reason: str, path: str | None) -> None:
    assert named_path(reason) == path


def test_a_missing_file_is_looked_for_where_the_job_is_live(tmp_path: Path) -> None:
    def reason(name: str) -> str:
        return f"Transfer input files failure: reading from file {tmp_path}/{name}: (errno 2) No"

    (tmp_path / "survey_2026.csv").write_text("x")
    assert "did you mean" not in remedy(held(13, 2, reason("survey_2025.csv"))).text
    assert (
        "did you mean"
        not in remedy(
            held(
                13, 2, reason("suvrey_2026.csv"), Iwd=str(tmp_path), TransferInput="survey_2026.csv"
            )
        ).text
    )  # the job has it already
    found = remedy(held(13, 2, reason("suvrey_2026.csv")))
    assert found.commands == ()
    assert f"did you mean {tmp_path}/survey_2026.csv?" in found.text
    assert not found.gone
    assert remedy(held(13, 2, reason("survey_2026.csv"))).gone
    assert advice(held(13, 2, reason("survey_2026.csv"))).verdict is Verdict.RELEASE
    assert "put " in remedy(held(13, 2, reason("nothing-like-it"))).text


@pytest.mark.parametrize(
    ("name", "attribute"), [("run.sh", "Cmd"), ("in.txt", "In"), ("a.dat", "TransferInput")]
)
def test_the_path_of_a_missing_file_is_corrected_where_it_stands(
    tmp_path: Path, name: str, attribute: str
) -> None:
    reason = f"Transfer input files failure: reading from file {tmp_path}/{name}: (errno 2) No"
    ad = {
        "Iwd": str(tmp_path),
        "Cmd": f"{tmp_path}/run.sh",
        "In": "in.txt",
        "TransferInput": "a.dat",
    }
    # Without the inner quotes HTCondor takes a path for a division, and says nothing.
    files = "FILES" if attribute == "TransferInput" else "FILE"
    edit = f"""`condor_qedit JOB {attribute} '"{files}"'`"""
    assert edit in remedy(held(13, 2, reason, **ad)).text


def test_a_missing_output_is_shown_with_how_the_program_ended_and_what_it_said(
    tmp_path: Path,
) -> None:
    reason = (
        "Transfer output files failure at execution point slot1@ep while sending files to access "
        "point ap. Details: 1 total failures: first failure: reading from file "
        "/ep/dir_1/scratch/result.txt: (errno 2) No such file or directory"
    )
    ad: dict[str, Any] = {"Iwd": str(tmp_path), "Err": "a b.err", "Out": "a.out"}
    assert "read its error file" in remedy(held(12, 2, reason, **ad)).text
    found = remedy(held(12, 2, reason, ExitCode=3, **ad))
    assert found.text.startswith(
        "it ended with exit code 3 without writing result.txt: find out why"
    )
    (tmp_path / "a b.err").touch()
    (tmp_path / "a.out").write_text("no licence\n")
    found = remedy(held(12, 2, reason, ExitCode=3, **ad))
    assert found.commands == (f"tail {tmp_path}/a.out",)
    (tmp_path / "a b.err").write_text("killed\n")
    found = remedy(held(12, 2, reason, ExitBySignal=True, ExitSignal=9, **ad))
    assert found.text.startswith(
        "it was killed by signal 9 without writing result.txt: look at its"
    )
    assert shlex.split(found.commands[0]) == ["tail", f"{tmp_path}/a b.err"]
    assert found.by_hand


def test_the_owners_own_policy_is_shown_as_it_was_written(tmp_path: Path) -> None:
    periodic, on_exit = "time() - JobStartDate > 3600", "ExitCode =!= 0"
    found = remedy(held(3, 0, "too long", PeriodicHold=periodic, OnExitHold=on_exit, ExitCode=1))
    assert found.text.startswith(f"PeriodicHold is `{periodic}` and OnExitHold is `{on_exit}`; ")
    assert "exit code" not in found.text  # of an earlier run, perhaps
    ad: dict[str, Any] = {"PeriodicHold": False, "OnExitHold": on_exit, "Iwd": str(tmp_path)}
    found = remedy(held(3, 0, "failed", ExitCode=4, Err="e", **ad))
    assert found.text.startswith(f"OnExitHold is `{on_exit}`; it ended with exit code 4; look at")
    assert remedy(held(3, 0, "too long")).text.startswith("look at what the expression guards")


def test_an_owners_limit_on_memory_may_have_to_be_changed_as_well() -> None:
    words, limit = "memory usage exceeded 2000 MB", "MemoryUsage > 2000"
    found = remedy(held(3, 0, words, RequestMemory=2000, MemoryUsage=2100, PeriodicHold=limit))
    edit, _ = found.commands
    assert edit.startswith("condor_qedit 12.3 RequestMemory ")
    assert f"has a fixed limit, change it as well (PeriodicHold is `{limit}`)" in found.text
    assert found.by_hand  # an edit alone may lead to the same hold again and again


def test_dos_line_ends_are_seen_in_the_script_itself(tmp_path: Path) -> None:
    script = tmp_path / "it's a job.sh"
    script.write_bytes(b"#!/bin/sh\r\necho\r\n")
    reason = "Error from slot1@ep: Failed to execute '/x/job.sh': invalid interpreter (/bin/sh)"
    found = remedy(held(6, 2, reason, Cmd=script.name, Iwd=str(tmp_path)))
    assert "written on Windows" in found.text
    words = shlex.split(found.commands[0])
    assert words == ["sed", "-i", "s/\\r$//", str(script)]
    script.write_bytes(b"#!/no/such/interpreter -x\necho\n")
    found = remedy(held(6, 2, reason, Cmd=script.name, Iwd=str(tmp_path)))
    assert "/no/such/interpreter" in found.text


def test_what_passes_by_itself_is_given_time_and_more_of_it_each_time() -> None:
    reason = "Transfer input files failure: curl: connection refused by https://x.org/y"
    early = advice(held(13, 256, reason))
    assert early.verdict is Verdict.RELEASE
    assert early.remedy.not_before == NOW - timedelta(minutes=3) + timedelta(minutes=10)
    assert "release it after" in early.remedy.text
    often = advice(held(13, 256, reason, NumHolds=4))
    assert often.remedy.not_before == NOW - timedelta(minutes=3) + timedelta(minutes=40)
    late = held(13, 256, reason, EnteredCurrentStatus=int(NOW.timestamp()) - 4000)
    assert advice(late).remedy.not_before is None


@pytest.mark.parametrize(
    ("code", "subcode", "reason", "because"),
    [
        (1, 0, "via condor_hold (by user ana)", "its owner held it"),
        (1, 0, "via condor_hold (by user root)", "somebody other than its owner held it"),
        (15, 0, "submitted on hold at user's request", "it is on hold on purpose"),
        (26, 0, "The system periodic hold was true: ask us", "the staff set this hold"),
    ],
)
def test_what_somebody_decided_is_theirs(
    code: int, subcode: int, reason: str, because: str
) -> None:
    found = advice(held(code, subcode, reason))
    assert (found.verdict, found.because) == (Verdict.ASK, because)


def test_who_decides_is_to_be_asked_first() -> None:
    by_root = held(1, 0, "too much load (by user root)")
    assert advice(by_root).remedy.text.startswith("ask the staff first; then release it when")
    assert advice(by_root).rule.name == "held by hand"
    assert advice(replace(by_root, owner="")).because == "somebody held it"  # no owner known
    site = Site(staff_codes=("13",), contact="help@example.org")
    found = advice(held(13, 256, "curl: connection refused"), site)
    assert found.remedy.text.startswith("ask help@example.org first; then release it")
    assert advice(held(1, 0, "let me think (by user ana)")).remedy.text.startswith("release it")


def test_the_sites_codes_and_limits_decide() -> None:
    hold = held(13, 256, "curl: connection refused", NumHolds=6)
    assert advice(hold, Site(fatal_codes=("13/256",))).verdict is Verdict.REMOVE
    assert advice(hold, Site(fatal_codes=("13",))).commands == ("condor_rm 12.3",)
    assert advice(hold, Site(fatal_codes=("13/1",))).verdict is Verdict.RELEASE
    assert advice(hold, Site(staff_codes=("13",))).verdict is Verdict.ASK
    assert advice(hold, Site(max_holds=5)).verdict is Verdict.REMOVE
    assert advice(hold, Site(max_holds=6)).verdict is Verdict.RELEASE


def test_deadlines_are_shown_with_what_is_left() -> None:
    hold = held(13, 2, "x", EnteredCurrentStatus=int((NOW - timedelta(days=11)).timestamp()))
    site = Site(name="the OSPool", remove_held_after_days=14)
    assert policy_notes(hold, site, NOW) == ("the OSPool removes held jobs after 14 days: 3 left",)
    assert policy_notes(hold, Site(), NOW) == ()
    [note] = policy_notes(hold, Site(remove_held_after_days=11.5), NOW)
    assert note.endswith("12 hours left")


def test_a_sure_model_releases_what_a_rule_would_fix_and_an_unsure_one_does_not() -> None:
    hold = held(12, 2, "Transfer output files failure: reading from file /x: (errno 2) No")
    rule = rule_for(12, 2, hold.reason)
    fix = Remedy("read its error file", ("condor_release 12.3",))
    none, site = evidence(), Site()
    assert decide(hold, rule, 0.9, True, 0.5, none, fix, site)[0] is Verdict.RELEASE
    assert decide(hold, rule, 0.9, False, 0.5, none, fix, site)[0] is Verdict.FIX
    assert decide(hold, rule, 0.2, True, 0.5, none, fix, site)[0] is Verdict.FIX
    transient = rule_for(13, 256, "curl: connection refused")
    assert decide(hold, transient, 0.6, False, 0.5, none, fix, site)[0] is Verdict.RELEASE
    assert decide(hold, transient, 0.3, False, 0.5, none, fix, site)[0] is Verdict.ASK
    assert decide(hold, transient, 0.05, True, 0.5, none, fix, site)[0] is Verdict.ASK
    policy = rule_for(3, 0, "the licence server is down")
    assert decide(hold, policy, 0.8, False, 0.5, none, fix, site)[0] is Verdict.ASK
    assert decide(hold, policy, 0.8, False, 0.5, none, fix, site, 0.7)[0] is Verdict.RELEASE
    again = evidence(came_back=2)
    assert decide(hold, transient, 0.05, True, 0.5, again, fix, site)[0] is Verdict.REMOVE


def test_a_limit_is_lifted_before_a_release_however_likely_luck_is() -> None:
    hold = held(34, 102, "memory usage exceeded request_memory", RequestMemory=10, MemoryUsage=20)
    rule = rule_for(34, 102, hold.reason)
    found = remedy(hold)
    assert decide(hold, rule, 0.99, True, 0.3, evidence(), found, Site())[0] is Verdict.FIX


def test_every_remedy_that_the_table_names_has_a_builder() -> None:
    assert set(BUILDERS) == set(RemedyKey)
    named = {reason.rule.builder for reason in HOLD_REASONS if reason.rule}
    named |= {reason.signs.remedy for reason in HOLD_REASONS if reason.signs}
    assert named - {None} == set(RemedyKey)


@pytest.mark.parametrize("entry", HOLD_REASONS, ids=lambda entry: entry.example[2][:40])
def test_what_is_done_does_not_depend_on_the_words_of_a_rule(entry: HoldReason) -> None:
    code, subcode, text = entry.example
    ad: dict[str, Any] = {"HoldReason": text, "RequestMemory": 2000, "RequestDisk": 1 << 20,
                          "AllowedExecuteDuration": 60}  # fmt: skip
    ad |= {"HoldReasonCode": code, "HoldReasonSubCode": subcode} if code is not None else {}
    hold = hold_of_ad(JobId("ap", 12, 3), ad)
    rule = rule_for(hold.code, hold.subcode, hold.reason)
    reworded = replace(rule, name="x", why="y", remedy="z")
    before, after = (remedy_for(hold, each, evidence(), Site(), NOW) for each in (rule, reworded))
    assert replace(after, text=before.text) == before
    for chance, sure in ((0.2, True), (0.9, True), (0.4, False)):
        verdicts = {
            decide(hold, each, chance, sure, 0.5, evidence(), before, Site())
            for each in (rule, reworded)
        }
        assert len(verdicts) == 1


def test_a_request_that_was_raised_after_the_hold_is_a_release() -> None:
    reason = "memory usage exceeded request_memory"
    ad = {"RequestMemory": 1984, "MemoryUsage": 977, "MemoryProvisioned": 992}
    found = advice(held(34, 102, reason, **ad))
    assert (found.verdict, found.because) == (Verdict.RELEASE, "already corrected")
    assert found.commands == ("condor_release 12.3",)
    assert advice(held(34, 102, reason, **ad | {"RequestMemory": 990})).verdict is Verdict.FIX


def test_a_policy_that_was_lifted_after_the_hold_is_a_release() -> None:
    reason = "The job attribute PeriodicHold expression 'NumJobStarts > 3' evaluated to TRUE"
    assert advice(held(3, 0, reason, PeriodicHold=False)).verdict is Verdict.RELEASE
    unchanged = advice(held(3, 0, reason, PeriodicHold="NumJobStarts > 3"))
    assert (unchanged.verdict, unchanged.commands) == (Verdict.ASK, ())


def test_twice_as_long_is_twice_as_long() -> None:
    reason = "The job exceeded allowed execute duration of 00:15"
    assert remedy(held(47, 0, reason, AllowedExecuteDuration=15)).edits == (
        ("AllowedExecuteDuration", "30"),
    )
