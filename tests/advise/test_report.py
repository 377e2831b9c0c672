"""What people read: on a terminal, in a pipe, on a narrow screen, and of thousands of jobs.

The expected texts are in snapshots/; `UPDATE_SNAPSHOTS=1 pytest ...` writes them anew, to be
looked at before they are committed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from condor_advice.advise import commands as commands_package
from condor_advice.advise.advice import Advice, Adviser
from condor_advice.advise.because import Because, Grounds
from condor_advice.advise.find_holds import read_logs
from condor_advice.advise.holds import Hold, hold_of_ad, hold_of_episode
from condor_advice.advise.report import (
    Style,
    commands,
    compact_ids,
    grouped,
    hours,
    ranges,
    report,
)
from condor_advice.advise.site import Site
from condor_advice.gather.events import JobId
from condor_advice.model.held.rules import Verdict

SNAPSHOTS = Path(__file__).parent / "snapshots"
DEMO = Path(commands_package.__file__).resolve().parents[1] / "demo.log"


@pytest.fixture(scope="module")
def advices() -> list[Advice]:
    """The rules' advice on the demo's held jobs; a model's figures change with each training."""
    kept = read_logs([str(DEMO)], "UTC")
    holds = [hold_of_episode(episode, kept) for episode in kept.open_holds()]
    now = max(hold.at for hold in holds) + timedelta(hours=3)
    site = Site(name="the lab", remove_held_after_days=14)
    return Adviser(None, site, now=now).advise(holds)


def style(advices: list[Advice], **settings: object) -> Style:
    now = max(advice.hold.at for advice in advices) + timedelta(hours=3)
    return replace(Style(now=now), **settings)  # type: ignore[arg-type]


def check(name: str, text: str) -> None:
    path = SNAPSHOTS / name
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    assert text + "\n" == path.read_text()


def test_a_pipe_gets_plain_text(advices: list[Advice]) -> None:
    text = report(advices, ["the store is old"], style(advices))
    assert "\x1b" not in text
    assert max(map(len, text.split("\n"))) <= 100
    check("pipe.txt", text)


def test_details_say_what_to_do_before_why(advices: list[Advice]) -> None:
    text = report(advices, ["the store is old"], style(advices), verbose=True)
    assert "\x1b" not in text
    assert max(map(len, prose(text))) <= 100
    for block in text.split("\n\n")[:-1]:
        labels = [line[2:9].strip() for line in block.split("\n")[1:] if line[2] != " "]
        assert labels[:3] == ["do", "why", "held"]
    check("details.txt", text)


def test_a_terminal_gets_colours_and_a_table(advices: list[Advice]) -> None:
    text = report(advices, [], style(advices, colour=True, terminal=True, width=90))
    assert "\x1b[1;33mFIX\x1b[0m" in text
    assert max(map(len, plain(text))) <= 90
    check("terminal.txt", text)


def test_a_narrow_terminal_keeps_its_width(advices: list[Advice]) -> None:
    text = report(advices, [], style(advices, terminal=True, width=44))
    assert max(map(len, plain(text))) <= 44
    check("narrow.txt", text)


def test_json_has_the_same_answers(advices: list[Advice]) -> None:
    text = "\n".join(json.dumps(advice.as_dict(), indent=1) for advice in advices[:3])
    check("advice.json", text)


@pytest.mark.parametrize("width", [40, 60, 71, 72, 80, 100, 132, 200])
def test_the_overview_fits_every_screen(advices: list[Advice], width: int) -> None:
    text = report(advices, [], style(advices, width=width, colour=True))
    assert max(map(len, plain(text))) <= width


def test_at_80_columns_no_cause_and_no_deed_of_the_demo_is_cut(advices: list[Advice]) -> None:
    text = report(advices, [], style(advices, width=80))
    assert "..." not in text
    assert text.split("\n")[-2].endswith("Details: -v, or name a job.")


def plain(text: str) -> list[str]:
    """Return the lines without colours."""
    return re.sub(r"\x1b\[[\d;]*m", "", text).split("\n")


def prose(text: str) -> list[str]:
    """Return the lines that are wrapped: commands, and paths that are one word, are not."""
    return [line for line in plain(text) if not line.startswith(" " * 11) and line.count("/") < 3]


def test_the_environment_decides_about_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Style.of_stdout().colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Style.of_stdout().colour
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not Style.of_stdout().colour
    assert Style.of_stdout().terminal


def test_the_width_follows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, width in ((20, 40), (72, 72), (300, 200)):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert Style.of_stdout().width == width


def held(
    cluster: int, proc: int, reason: str, code: int, subcode: int | None, owner: str = "ana"
) -> Hold:
    ad = {
        "HoldReason": reason,
        "HoldReasonCode": code,
        "HoldReasonSubCode": subcode,
        "EnteredCurrentStatus": int(datetime(2026, 11, 16, tzinfo=UTC).timestamp()),
        "Owner": owner,
        "NumHolds": 1,
        "RequestMemory": 1000,
        "MemoryUsage": 1100,
    }
    return hold_of_ad(JobId("ap", cluster, proc), ad)


def test_thousands_of_jobs_make_no_flood() -> None:
    holds = [held(c, p, f"odd trouble {chr(97 + c)} at work", 99, c) for c in range(40)
             for p in range(c, 2 * c + 60)]  # fmt: skip
    text = report(Adviser(None).advise(holds), [], Style())
    assert len(holds) > 3000
    assert len(text.split("\n")) < 50
    assert f"{len(holds):,} held jobs" in text
    details = report(Adviser(None).advise(holds), [], Style(), verbose=True)
    assert len(details.split("\n")) < 150
    assert "These are shown in short: name their ids, or use --json" in details


def test_groups_that_are_not_shown_are_counted() -> None:
    holds = [held(c, p, f"odd {chr(97 + c // 26)} {chr(97 + c % 26)}", 99, c) for c in range(50)
             for p in range(2)]  # fmt: skip
    text = report(Adviser(None).advise(holds), [], Style())
    assert "... and 20 jobs in 10 more groups" in text


def test_groups_that_are_shown_in_short_are_said_to_be_so() -> None:
    holds = [held(c, 0, f"odd trouble {chr(97 + c)} at work", 99, c) for c in range(14)]
    text = report(Adviser(None).advise(holds), [], Style(), verbose=True)
    *_, short, said, _ = text.split("\n\n")
    assert "condor_release" not in short
    assert said == "These are shown in short: name their ids, or use --json"
    assert "shown in short" not in report(
        Adviser(None).advise(holds[:12]), [], Style(), verbose=True
    )


@pytest.mark.parametrize("jobs", [40, 2000])
def test_commands_name_the_jobs_of_their_group_and_no_others(jobs: int) -> None:
    """One code and subcode may stand for two troubles within one cluster."""
    import classad2

    holds = [
        held(3, p, f"The requested URL returned error: {504 if p % 2 else 503}", 13, 256 + p % 2)
        for p in range(jobs)
    ]
    text = report(Adviser(None).advise(holds), [], Style(), verbose=True)
    first, second, _ = text.split("\n\n")
    for part in (first, second):
        odd = int("13/257" in part)
        constraints = re.findall(r"condor_release -constraint '(.+)'", part)
        assert constraints
        assert all(len(constraint) < 2100 for constraint in constraints)
        ads = [classad2.ClassAd({"ClusterId": 3, "ProcId": p, "JobStatus": 5}) for p in range(jobs)]
        named = [
            p for c in constraints for p, ad in enumerate(ads) if classad2.ExprTree(c).eval(ad)
        ]
        assert sorted(named) == list(range(odd, jobs, 2))


def test_a_cause_that_is_gone_is_said_instead_of_a_chance_that_does_not_know_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.dat"
    path.touch()
    words = f"Transfer input files failure: reading from file {path}: (errno 2) No such file"
    text = report(Adviser(None).advise([held(3, 0, words, 13, 2)]), [], Style())
    assert "already corrected" in text
    assert "would succeed if released as is" not in text


def test_a_hold_without_a_subcode_is_shown_without_one() -> None:
    holds = [held(c, 2 * p, "submitted on hold", 15, None) for c in range(9) for p in range(90)]
    assert "None" not in report(Adviser(None).advise(holds), [], Style())


def test_the_largest_group_comes_first() -> None:
    holds = [held(1, 0, "a b", 1, 0), *(held(2, p, "c d", 14, 2) for p in range(3))]
    groups = grouped(Adviser(None).advise(holds))
    assert [len(group) for group in groups] == [3, 1]


def test_jobs_that_are_mended_by_other_commands_stand_apart(tmp_path: Path) -> None:
    """A command that changes one of many jobs needs the words that say why."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "run_1.dat").touch()
    words = "Transfer input files failure: reading from file {}: (errno 2) No such file"
    holds = [held(3, p, words.format(tmp_path / f"run_{p}.dat"), 13, 2) for p in range(4)]
    holds = [
        replace(one, ad=one.ad | {"Iwd": str(tmp_path), "TransferInput": f"run_{p}.dat"})
        for p, one in enumerate(holds)
    ]
    text = report(Adviser(None).advise(holds), [], Style(), verbose=True)
    many, moved, _ = text.split("\n\n")
    assert many.startswith("FIX      3 jobs, 3.0 3.2-3:")
    assert "condor_qedit 3" not in many
    assert "has the same name: if that is the one" in " ".join(moved.split())
    assert "condor_qedit 3.1 TransferInput '\"data/run_1.dat\"'" in moved


def test_all_files_that_are_missing_are_named_as_far_as_there_is_room() -> None:
    words = "Transfer input files failure: reading from file /in/{}.dat: (errno 2) No such file"
    holds = [held(3, p, words.format(p // 2), 13, 2) for p in range(6)]
    text = " ".join(report(Adviser(None).advise(holds), [], Style(), verbose=True).split())
    assert "put /in/0.dat there" in text
    assert "(this is for the first one; likewise /in/1.dat, /in/2.dat)" in text
    holds = [held(3, p, words.format(p), 13, 2) for p in range(40)]
    text = " ".join(report(Adviser(None).advise(holds), [], Style(), verbose=True).split())
    assert "/in/3.dat, /in/4.dat and 35 more, see --json)" in text


def test_of_several_peoples_jobs_it_is_said_whose_they_are() -> None:
    names = ["ana", *["eve"] * 3, *"bcdfg"]
    holds = [held(1, p, "no such thing", 14, 2, name) for p, name in enumerate(names)]
    advices = Adviser(None).advise([*holds, held(2, 0, "a b", 1, 0, "bo")])
    row, bo, *_ = report(advices, [], Style()).split("\n")
    assert row.split("  ")[:5] == ["FIX", "9 jobs", "working directory gone", "7 users", "1.0-8"]
    assert bo.split()[:2] + bo.split()[-5:-3] == ["ASK", "1", "bo", "2.0"]
    text = report(advices, [], Style(), verbose=True)
    many, one, _ = text.split("\n\n")
    assert many.startswith("FIX      9 jobs, 1.0-8 of eve, ana, b, c and 3 more: working directory")
    assert one.startswith("ASK      2.0 of bo: held by hand")
    assert "1.1 of eve:" not in report(Adviser(None).advise([holds[1]]), [], Style())


def test_other_peoples_jobs_are_counted_and_not_named() -> None:
    secret = "Transfer input files failure: reading from file /home/eve/secret.dat: (errno 2) no"
    holds = [held(1, 0, "a b", 14, 2, "ana"), *(held(7, p, secret, 13, 2, "eve") for p in range(5))]
    for verbose in (False, True):
        text = report(Adviser(None).advise(holds), [], Style(), mine="ana", verbose=verbose)
        count = "5 jobs of others" if verbose else "5 jobs input file missing of others"
        assert count in " ".join(text.split())
        assert "1.0" in text
        for hidden in ("7.0", "7.", "eve", "secret"):
            assert hidden not in text


def test_of_other_peoples_holds_only_the_rule_is_named() -> None:
    words = ("Project Nightfall of eve is on pause", "Project Daybreak of eve is on pause")
    holds = [held(7, p, text, 26, 0, "eve") for p, text in enumerate(words)]
    advices = Adviser(None).advise(holds)
    texts = [
        " ".join(report(advices, [], Style(), mine="ana", verbose=verbose).split())
        for verbose in (False, True)
    ]
    assert f"2 jobs {advices[0].rule.name} of others" in texts[0]
    assert f"2 jobs of others: {advices[0].rule.name}" in texts[1]
    for hidden in ("Nightfall", "Daybreak", "Project", "pause", "eve "):
        assert not any(hidden in text for text in texts)


def test_a_row_that_asks_advises_no_release() -> None:
    """A rule that releases, and a model that is not sure: the words follow the verdict."""
    words = "The requested URL returned error: 503"
    advices = Adviser(None).advise([held(3, p, words, 13, 256) for p in range(2)])
    assert advices[0].rule.verdict is Verdict.RELEASE
    unsure = [
        replace(one, verdict=Verdict.ASK, grounds=Grounds(Because.TOO_LITTLE_KNOWN))
        for one in advices
    ]
    row = report(unsure, [], Style()).split("\n")[0]
    assert row.startswith("ASK")
    assert row.endswith("unsure, yours to decide")
    hidden = report(unsure, [], Style(), mine="bo").split("\n")[0]
    assert "release" not in row + hidden


def test_cpu_time_is_said_in_a_unit_that_fits() -> None:
    found = [hours(seconds / 3600) for seconds in (0.4, 1, 2, 62, 150, 5400)]
    assert found == ["0 CPU seconds", "1 CPU second", "2 CPU seconds", "1 CPU minute",
                     "2 CPU minutes", "1.5 CPU hours"]  # fmt: skip


def test_ids_are_written_as_ranges() -> None:
    jobs = [JobId("ap", 12, proc) for proc in (0, 1, 2, 9, 4, 3)] + [JobId("ap", 13, 7)]
    assert ranges(jobs) == [(12, 0, 4), (12, 9, 9), (13, 7, 7)]
    assert compact_ids(jobs) == "12.0-4 12.9 13.7"
    assert compact_ids([JobId("ap", 1, p) for p in range(0, 40, 2)], 3) == "1.0 1.2 1.4 and 17 more"


def test_commands_of_a_group_name_all_its_jobs_once() -> None:
    reason = "memory usage exceeded request_memory"
    holds = [held(5, proc, reason, 34, 102) for proc in range(30)]
    [group] = grouped(Adviser(None).advise(holds))
    qedit, release = commands(group)
    words = shlex.split(qedit)
    assert words[:2] == ["condor_qedit", "-constraint"]
    assert words[2] == "JobStatus == 5 && (ClusterId == 5 && ProcId >= 0 && ProcId <= 29)"
    assert words[3:] == ["RequestMemory", "2304"]
    assert shlex.split(release)[:3] == ["condor_release", "-constraint", words[2]]
