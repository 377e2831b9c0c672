"""Answers from a store: the same whichever way they are asked for, and with others' jobs hidden."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from condor_advice.advise import find_holds as asking
from condor_advice.advise.answer import answer
from condor_advice.advise.find_holds import Question, _is_this_hold
from condor_advice.advise.front import plain_question
from condor_advice.advise.jobids import WantedJobs
from condor_advice.gather.clock import Clock
from condor_advice.gather.collect import Collector
from condor_advice.gather.events import JobId
from condor_advice.gather.live import LiveJob
from condor_advice.gather.store import Store
from condor_advice.lab.simulate import Profile, simulate
from condor_advice.preprocess.holds.episode_store import KeptEpisodes


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A day of an access point, with owners in its events."""
    from dataclasses import replace

    profile = Profile.read()
    profile = replace(
        profile,
        targets=replace(profile.targets, held_share=0.3),
        log=replace(profile.log, ad_information=True),
    )
    out = tmp_path_factory.mktemp("store")
    simulate(300, 3, out / "logs", profile)
    with Store(out / "store.sqlite") as made:
        Collector(
            made, [str(out / "logs" / "ap1" / "EventLog")], access_point="ap1", clock=Clock(UTC)
        ).read()
        KeptEpisodes(made).take_up()
    return out / "store.sqlite"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "condor_advice", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def open_jobs(store: Path) -> list[str]:
    with Store(store, readonly=True) as opened:
        return [str(one.job) for one in KeptEpisodes(opened).open_holds()]


def test_the_front_door_and_the_command_line_say_the_same(store: Path) -> None:
    job = open_jobs(store)[0]
    for arguments in (
        [job, "--store", store],
        [job, "--store", store, "--json", "--explain"],
        ["--store", store, "--all"],
        ["999999", "--store", store],
        [job, "--store", "/nowhere/at.all"],
    ):
        plain, full = run(*arguments), run("job", *arguments)
        assert (plain.returncode, plain.stdout, plain.stderr) == (
            full.returncode, full.stdout, full.stderr,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "question"),
    [
        ([], Question()),
        (["12.3", "14"], Question(wanted=(WantedJobs(12, 3, 3), WantedJobs(14)))),
        (["--store", "s", "12"], Question(wanted=(WantedJobs(12),), store="s")),
        (["--log", "a", "--log", "b"], Question(logs=("a", "b"))),
        (["--all", "--json"], Question(everybody=True)),
        (["gather"], None),
        (["--help"], None),
        (["12x"], None),
        (["--hold", "2"], None),
        (["12", "--apply"], None),
        (["--store"], None),
        (["--store", "--json"], None),
        (["--store", "a", "--store", "b"], None),
        (["--store", "a", "--log", "b"], None),
        (["--store=a"], None),
    ],
)
def test_only_plain_questions_are_taken_at_the_door(
    words: list[str], question: Question | None
) -> None:
    assert plain_question(words) == question


def test_a_plain_question_loads_neither_parser_nor_tables(store: Path) -> None:
    code = (
        "import sys; sys.argv = ['condor-advice', *sys.argv[1:]]\n"
        "from condor_advice.advise import front\n"
        "front.exit_now = lambda status: print(*sorted(sys.modules), file=sys.stderr)\n"
        "front.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, open_jobs(store)[0], "--store", str(store)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    loaded = {name.split(".")[0] for name in done.stderr.split()}
    assert "numpy" in loaded
    assert not loaded & {"click", "rich", "htcondor2", "zstandard", "pandas", "torch", "xgboost"}
    assert "logging" not in loaded
    assert "condor_advice.gather.reader" not in done.stderr.split()


def test_a_store_that_keeps_no_episodes_still_answers(
    event_log: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "old.sqlite"
    with Store(path) as made:
        log = str(event_log("missing_input.log"))
        Collector(made, [log], access_point="ap", clock=Clock(UTC)).read()
    for arguments in (["4.1"], []):
        done = run(*arguments, "--store", path)
        assert done.returncode == 0, done.stderr
        assert "input file missing" in done.stdout
        assert "has no hold episodes yet" in " ".join(done.stdout.split())


def test_others_jobs_in_a_shared_store_are_counted_and_not_listed(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    question = Question(store=str(store), everybody=True)
    answer(question, as_json=True)
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert listed
    monkeypatch.setattr(asking, "_own_file", lambda path: False)
    answer(question, as_json=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{len(listed)} other users' jobs are not listed" in shown.err
    answer(question, as_json=False)
    text = capsys.readouterr().out
    assert "of others" in text
    for one in listed:
        assert f" {one['job']} " not in text.replace(":", " ").replace(",", " ")
        assert one["owner"] not in text
    # Who names a job knows of it.
    cluster, proc = map(int, listed[0]["job"].split("."))
    answer(Question(wanted=(WantedJobs(cluster, proc, proc),), store=str(store)), as_json=True)
    assert json.loads(capsys.readouterr().out)["job"] == listed[0]["job"]


def test_without_a_name_only_ones_own_jobs_are_meant(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(Question(store=str(store), everybody=True), as_json=True)
    owners = [json.loads(line)["owner"] for line in capsys.readouterr().out.splitlines()]
    monkeypatch.setattr("condor_advice.advise.advice.caller", lambda: owners[0])
    answer(Question(store=str(store)), as_json=True)
    found = [json.loads(line)["owner"] for line in capsys.readouterr().out.splitlines()]
    assert found == [owner for owner in owners if owner == owners[0]]


def test_a_hold_is_known_from_its_repetition(event_log: Callable[[str], Path]) -> None:
    kept = asking.read_logs([str(event_log("held_by_owner.log"))], "UTC")
    [episode] = kept.open_holds()
    at = episode.time_us / 1e6

    def live(entered: float, reason: str = episode.reason) -> LiveJob:
        ad: dict[str, Any] = {"EnteredCurrentStatus": entered, "HoldReason": reason}
        return LiveJob(JobId("", 1, 0), ad)

    assert _is_this_hold(episode, live(at + 1))
    assert _is_this_hold(episode, live(at + 1, "in other words"))
    assert _is_this_hold(episode, live(at - 6 * 3600))  # a log in another zone's time
    assert _is_this_hold(episode, live(at - 25))  # held while a large cluster was submitted
    assert not _is_this_hold(episode, live(at - 25, "in other words"))
    assert not _is_this_hold(episode, live(at + 25))
    assert not _is_this_hold(episode, live(at + 777))  # held again, in the same words
    assert not _is_this_hold(episode, live(at - 6 * 3600, "in other words"))


def test_without_a_model_that_can_be_used_the_rules_answer_and_say_so(
    event_log: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "registry.json").write_text("{ not what it should be")
    monkeypatch.setenv("CONDOR_ADVICE_MODELS", str(models))
    done = run("--log", event_log("missing_input.log"))
    assert done.returncode == 0, done.stderr
    assert "by the rules, no model was used." in done.stdout
    assert "cannot load a model, so the advice comes from rules alone" in " ".join(
        done.stdout.split()
    )
    assert "registry.json" in done.stdout
