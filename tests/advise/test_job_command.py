from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from condor_advice.advise.jobids import WantedJobs, parse_job_id
from condor_advice.gather.errors import UsageError
from condor_advice.model.held.rules import RULES, Verdict, posterior, rule_for


def advice(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "condor_advice", *map(str, arguments)]
    env = {"PATH": "/usr/bin:/bin", "COLUMNS": "100", **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


def answers(*arguments: str | Path) -> list[dict]:
    done = advice(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("name", "code", "verdict", "rule"),
    [
        ("missing_input.log", [13, 2], "FIX", "input file missing"),
        ("missing_output.log", [12, 2], "FIX", "output file missing"),
        ("bad_interpreter.log", [6, 2], "FIX", "bad first line"),
        ("exec_format.log", [6, 8], "FIX", "not a program"),
        ("no_initialdir.log", [14, 2], "FIX", "working directory gone"),
        ("memory_exceeded.log", [21, 102], "FIX", "over memory"),
        ("disk_exceeded.log", [21, 104], "FIX", "over disk"),
        ("duration_exceeded.log", [47, 0], "FIX", "over its allowed run time"),
        ("periodic_hold.log", [3, 0], "ASK", "its own policy"),
        ("held_by_owner.log", [1, 0], "ASK", "held by hand"),
    ],
)
def test_real_holds_get_the_verdict_that_facilitators_give(event_log, name, code, verdict, rule):
    answer = answers("--log", event_log(name))[0]
    assert [answer["hold"]["code"], answer["hold"]["subcode"]] == code
    assert (answer["verdict"], answer["hold"]["rule"]) == (verdict, rule)
    assert answer["source"] == "model"
    assert 0 <= answer["confidence_interval"][0] <= answer["p_success"] <= 1


def test_a_working_directory_is_made_and_not_transferred(event_log):
    [answer] = answers("--log", event_log("no_initialdir.log"))
    assert answer["remedy"]["text"] == "create /home/alice/survey/gone, then release"
    assert answer["remedy"]["commands"][0] == "mkdir -p /home/alice/survey/gone"


@pytest.mark.parametrize("name", ["json", "json_utc", "xml", "no_year", "utc_subsecond"])
def test_a_log_is_answered_in_every_format_that_htcondor_writes(event_log, name):
    held = answers("--log", event_log(f"global_{name}.log"), "--hold", "1")
    rules = {answer["hold"]["rule"] for answer in held}
    assert rules == {"input file missing", "its own policy"}


def test_one_json_object_per_job_has_what_scripts_rely_on(event_log):
    found = answers("--log", event_log("missing_input.log"))
    assert len(found) == 4
    for answer in found:
        assert {
            "job", "verdict", "p_success", "confidence_interval", "source", "model", "hold",
            "evidence", "remedy", "cost",
        } <= set(answer)  # fmt: skip
        assert {"code", "subcode", "reason", "template", "at", "number"} <= set(answer["hold"])
        assert answer["remedy"]["commands"] == []  # the file has to be put there first


def test_memory_is_sized_from_what_was_measured(event_log):
    [first, *_] = answers("--log", event_log("memory_exceeded.log"))
    qedit, release = first["remedy"]["commands"]
    measured = float(first["remedy"]["text"].split("stopped at ")[1].split()[0])
    assert qedit.startswith(f"condor_qedit {first['job']} RequestMemory ")
    assert int(qedit.split()[-1]) > measured
    assert release == f"condor_release {first['job']}"


def test_a_chosen_hold_is_judged_by_what_was_known_then(event_log):
    log = event_log("released_and_held_again.log")
    [first], [last] = (answers("--log", log, "--hold", str(n)) for n in (1, 2))
    assert (first["hold"]["number"], first["evidence"]["like_cases"]) == (1, 0)
    assert (last["hold"]["number"], last["evidence"]["like_cases"]) == (2, 1)
    assert last["evidence"]["releases_that_came_back"] == 1
    assert last["p_success"] < first["p_success"]


@pytest.mark.parametrize("name", ["released_and_held_again.log", "released_and_succeeded.log"])
def test_nothing_behind_a_chosen_hold_is_looked_at(event_log, tmp_path, name):
    whole = event_log(name).read_bytes()
    held = whole.index(b"...\n", whole.index(b"\n012 (")) + 4
    cut = tmp_path / name
    cut.write_bytes(whole[:held])
    [then] = answers("--log", cut, "--hold", "1")
    later = [one for one in answers("--log", event_log(name), "--hold", "1")
             if one["job"] == then["job"]]  # fmt: skip
    assert later == [then]


def test_several_ids_and_a_hold_number_work_together(event_log):
    log = event_log("missing_input.log")
    found = answers("--log", log, "4.1", "4.3", "--hold", "1")
    assert [one["job"] for one in found] == ["4.1", "4.3"]
    assert [one["job"] for one in answers("--log", log, "4.0-1", "4.3")] == ["4.0", "4.1", "4.3"]


def test_the_text_groups_jobs_and_ends_with_totals(event_log):
    done = advice("--log", event_log("missing_input.log"), "--log", event_log("held_by_owner.log"))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout  # a pipe gets no colours
    assert done.stdout.startswith("FIX  4 jobs  input file missing  4.0-3 ")
    totals = "5 held jobs: 4 FIX, 1 ASK; by model starter. Details: -v, or name a job."
    assert done.stdout.rstrip().endswith(totals)
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--log", "nowhere.log"], 1, "nowhere.log: cannot read the log"),
        (["--log", "{missing_input}", "999"], 3, "job 999: not found"),
        (["--log", "{completed}", "{cluster}.0"], 3, "is not on hold"),
        (["--log", "{missing_input}", "12x"], 2, "'12x' is not a job id"),
        (["--log", "{missing_input}", "--zone", "Nowhere/Land"], 2, "Nowhere/Land"),
        (["--store", "nowhere.sqlite"], 4, "there is no store yet"),
        (["--log", "{missing_input}", "--user", "ana"], 2, "and the store, not to --log"),
        (
            ["--log", "{missing_input}", "--constraint", "true"],
            2,
            "applies to the schedd and the store",
        ),
        (["--all", "--user", "ana"], 2, "exclude each other"),
        (["4.1", "--user", "ana"], 2, "--user and job ids exclude each other"),
        (["4.1", "--constraint", "false", "--apply", "--yes"], 2, "can be part of a constraint"),
        (["trian", "--export", "x"], 2, "there is no verb 'trian'; did you mean `train`?"),
        (["nonsense"], 3, "no such verb or job id: 'nonsense'"),
        (["nonsense", "4.1"], 2, "'nonsense' is no job id; name one user, or job ids"),
        (["--nonsense"], 2, "Try 'condor-advice --help' for help."),
        (["--nonsense"], 2, "No such option"),
    ],
)
def test_errors_say_what_to_do_and_have_their_status(event_log, arguments, status, message):
    logs = {n: str(event_log(f"{n}.log")) for n in ("missing_input", "completed")}
    cluster = int(event_log("completed.log").read_text()[5:8])
    done = advice(*(a.format(cluster=cluster, **logs) for a in arguments))
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("more", [[], ["--zone", "UTC"]], ids=["at once", "by the command line"])
def test_of_several_jobs_those_that_can_be_answered_are(event_log, more):
    log = event_log("missing_input.log")
    done = advice("--log", log, "4.1", "999", "4.3", "--json", *more)
    assert [json.loads(line)["job"] for line in done.stdout.splitlines()] == ["4.1", "4.3"]
    assert done.returncode == 1
    assert "job 999: not found" in done.stderr
    none = advice("--log", log, "998", "999", *more)
    assert (none.returncode, none.stdout) == (3, "")
    assert "job 998" in none.stderr
    assert "job 999" in none.stderr


def test_all_logs_that_a_shell_makes_of_a_pattern_are_read(event_log):
    logs = [event_log(name) for name in ("held_by_owner.log", "missing_input.log")]
    held = answers("--log", *logs)
    assert held == answers("--log", logs[0], "--log", logs[1])
    assert len(held) == 5
    assert [answer["job"] for answer in answers("--log", *logs, "4.1")] == ["4.1"]
    assert "'gone.log' is not a job id" in advice("--log", *logs, "gone.log").stderr


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; name the file after `log =`"),
        (b"hello\n" * 9, "contains no HTCondor job events"),
        (bytes(range(256)) * 40, "contains no HTCondor job events"),
    ],
)
def test_a_file_that_is_no_log_is_said_to_be_none(tmp_path, data, message):
    (tmp_path / "x.log").write_bytes(data)
    for more in ([], ["4.0"], ["--json"], ["--hold", "1"]):
        done = advice("--log", tmp_path / "x.log", *more)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_a_log_that_is_cut_anywhere_is_answered_as_far_as_it_goes(event_log, tmp_path):
    whole = event_log("released_and_held_again.log").read_bytes()
    for end in range(200, len(whole), len(whole) // 9):
        (tmp_path / "cut.log").write_bytes(whole[:end])
        done = advice("--log", tmp_path / "cut.log", "--json")
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr


def test_no_held_job_is_good_news(event_log):
    done = advice("--log", event_log("completed.log"))
    assert (done.returncode, done.stdout) == (0, "No job is on hold.\n")


def test_the_demo_goes_from_a_log_through_a_store_to_advice():
    done = advice("demo")
    assert done.returncode == 0, done.stderr
    assert "recorded on a real HTCondor pool" in done.stdout
    assert "over memory (225/64 MB)" in done.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1234", WantedJobs(1234)),
        ("1234.", WantedJobs(1234)),
        ("1234.7", WantedJobs(1234, 7, 7)),
        ("1234.0-9", WantedJobs(1234, 0, 9)),
        ("ap1#1234.7", WantedJobs(1234, 7, 7, "ap1")),
        ("ap1.example.org#1234.7#1794794494", WantedJobs(1234, 7, 7, "ap1.example.org")),
        ("1234.7,", WantedJobs(1234, 7, 7)),
    ],
)
def test_job_ids_are_taken_as_people_paste_them(text, expected):
    assert parse_job_id(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "1.2.3", "1.9-2", "-3", "2147483648", "9" * 5000, "1." + "9" * 20]
)
def test_what_is_no_job_id_is_refused(text):
    with pytest.raises(UsageError):
        parse_job_id(text)


def test_every_rule_has_a_source_and_a_possible_prior():
    for rule in RULES:
        assert rule.source
        assert 0 < rule.prior < 1
        assert rule.verdict is not Verdict.RELEASE or rule.command


def test_a_server_that_cannot_be_connected_to_is_in_trouble():
    reason = "Details: Failed to connect to data.example.org:443 after 0 ms: Could not connect"
    assert rule_for(13, 256, reason).name == "file server trouble"
    assert rule_for(13, 256, "Details: Couldn't connect to server").name == "file server trouble"


def test_a_release_that_keeps_coming_back_is_given_up():
    reason = "curl: connection refused"
    assert rule_for(13, 256, reason).verdict is Verdict.RELEASE
    assert rule_for(13, 256, reason, released=3).verdict is Verdict.REMOVE


def test_outcomes_seen_here_outweigh_the_prior():
    chance, (low, high) = posterior(0.1, [True] * 38 + [False] * 2)
    assert chance > 0.85
    assert low < chance < high
    assert posterior(0.1, [])[1][1] - posterior(0.1, [])[1][0] > high - low


def test_a_code_that_no_number_holds_is_as_if_absent(
    event_log: Callable[[str], Path], tmp_path: Path
) -> None:
    text = event_log("held_by_owner.log").read_text()
    changed = text.replace("Code 1 Subcode 0", f"Code {10**20} Subcode -{10**20}")
    assert changed != text
    (tmp_path / "log").write_text(changed)
    done = advice("--log", tmp_path / "log", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["hold"]["code"] is None
