"""Feedback: what was advised is joined to what came of it, and only foresight counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from condor_advice.gather.events import JobStatus
from condor_advice.gather.ledger import GivenAdvice, Ledger
from condor_advice.gather.store import Store
from condor_advice.lab.pool import Pool
from condor_advice.model.held.feedback import Followed, Joined, in_words, join, summarise
from condor_advice.preprocess.holds.episode_store import KeptEpisodes
from condor_advice.preprocess.holds.outcomes import Outcome

LOGS = Path(__file__).resolve().parents[2] / "logs"
POINT = "ap"


def at(text: str) -> float:
    return datetime.fromisoformat(f"2026-11-16T{text}+00:00").timestamp()


def given(
    cluster: int, proc: int, held: str, verdict: str, p: float, seconds_later: float = 0.0
) -> GivenAdvice:
    return GivenAdvice(
        at(held) + seconds_later, POINT, cluster, proc, 1, at(held), verdict, p, "model", "m1",
        "template", "owner",
    )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of real logs: 16.0-2 succeed, 17.0 is held again, 18.0 removed, 14.0 still held."""
    path = tmp_path / "store.sqlite"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CONDOR_ADVICE_MODELS", str(tmp_path / "models"))
    names = ("released_and_succeeded", "released_and_held_again", "removed_while_held",
             "held_by_owner")  # fmt: skip
    logs = [str(LOGS / f"{name}.log") for name in names]
    run("gather", "--store", path, "--access-point", POINT, "--zone", "UTC", *logs)
    return path


def run(*words: object, env: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-m", "condor_advice", *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def joined(store: Path, *advices: GivenAdvice) -> Joined:
    with Store(store, readonly=True) as opened:
        return join(advices, KeptEpisodes(opened))


def test_outcomes_of_real_holds_are_found_whatever_the_number_of_the_hold(store: Path) -> None:
    found = joined(
        store,
        replace(given(16, 0, "04:27:40", "RELEASE", 0.8), hold_number=7),
        given(17, 0, "04:27:37", "RELEASE", 0.6),
        given(18, 0, "04:27:41", "REMOVE", 0.1),
        given(14, 0, "04:27:41", "ASK", 0.5),
    )
    assert (found.looked_back, found.not_found) == (0, 0)
    assert [(one.outcome, one.released, one.decided) for one in found.followed] == [
        (Outcome.SUCCEEDED, True, True),
        (Outcome.HELD_SAME, True, True),
        (Outcome.NEVER_RELEASED, False, True),
        (Outcome.NEVER_RELEASED, False, False),
    ]
    assert [one.was_followed for one in found.followed] == [True, True, True, None]
    assert [one.label for one in found.followed] == [1, 0, None, None]


def test_the_time_of_the_schedd_may_differ_from_that_of_the_log(store: Path) -> None:
    off = replace(given(16, 2, "04:27:37", "RELEASE", 0.8), held_at=at("04:27:37") + 1.4)
    assert [one.outcome for one in joined(store, off).followed] == [Outcome.SUCCEEDED]


def test_a_hold_at_submission_is_known_although_its_event_comes_with_the_whole_cluster(
    store: Path,
) -> None:
    early = replace(given(16, 2, "04:27:37", "RELEASE", 0.8), held_at=at("04:27:37") - 25)
    assert [one.outcome for one in joined(store, early).followed] == [Outcome.SUCCEEDED]
    late = replace(early, held_at=at("04:27:37") + 25)
    assert joined(store, late).not_found == 1


def test_the_second_hold_of_a_job_is_not_taken_for_the_first(store: Path) -> None:
    first, second = (given(17, 0, when, "RELEASE", 0.6) for when in ("04:27:37", "04:27:42"))
    outcomes = [one.outcome for one in joined(store, first, second).followed]
    assert outcomes == [Outcome.HELD_SAME, Outcome.NEVER_RELEASED]


def test_answers_about_holds_that_were_over_are_no_foresight(store: Path) -> None:
    late = given(16, 0, "04:27:40", "RELEASE", 0.99, seconds_later=3600)
    found = joined(store, late)
    assert (found.looked_back, len(found.followed)) == (1, 0)


def test_the_last_answer_before_the_release_counts(store: Path) -> None:
    early = given(17, 0, "04:27:37", "RELEASE", 0.9, seconds_later=0.5)
    later = replace(early, at=early.at + 2, verdict="REMOVE", p_success=0.2)
    too_late = replace(early, at=early.at + 600, verdict="ASK", p_success=0.5)
    [one] = joined(store, early, later, too_late).followed
    assert (one.advice.verdict, one.was_followed) == ("REMOVE", False)


def test_holds_that_the_store_does_not_know_are_counted_apart(store: Path) -> None:
    found = joined(
        store,
        given(99, 0, "04:27:40", "RELEASE", 0.5),
        given(16, 0, "05:00:00", "RELEASE", 0.5),
        replace(given(16, 0, "04:27:40", "RELEASE", 0.5), access_point="elsewhere"),
    )
    assert (found.not_found, len(found.followed)) == (3, 0)


def test_status_shows_how_good_the_advice_was(store: Path) -> None:
    with Ledger(store) as ledger:
        ledger.advise(
            [
                *(given(16, proc, when, "RELEASE", 0.8)
                  for proc, when in ((0, "04:27:40"), (1, "04:27:40"), (2, "04:27:37"))),
                given(17, 0, "04:27:37", "RELEASE", 0.6),
                given(18, 0, "04:27:41", "REMOVE", 0.1),
                given(14, 0, "04:27:41", "ASK", 0.5),
            ]
        )  # fmt: skip
    advice = json.loads(run("status", "--store", store, "--json"))["advice"]
    found = advice["feedback"]
    assert (found["holds"], found["open"]) == (6, 1)
    assert found["verdicts"]["RELEASE"] == {
        "holds": 4,
        "followed": 4,
        "not_followed": 0,
        "open": 0,
        "outcomes": {"held_same": 1, "succeeded": 3},
        "released_with_known_outcome": 4,
        "succeeded": 3,
        "success_rate": 0.75,
        "chance_said": pytest.approx(0.75),
    }
    assert found["chances"]["brier"] == pytest.approx((3 * 0.2**2 + 0.6**2) / 4)
    assert found["by_source"]["m1"]["holds"] == 4
    page = store.with_name("status.html")
    text = run("status", "--store", store, "--report", page)
    assert "<td>RELEASE</td><td>4</td><td>4</td><td>0</td><td>0</td><td>4</td>" in page.read_text()
    assert "advice was given on 6 holds before they ended; 1 are still open" in text
    assert "RELEASE: 4, followed 4, not followed 0; of 4 released with a known outcome 3" in text


def test_a_store_without_advice_or_kept_holds_has_a_status(tmp_path: Path, store: Path) -> None:
    found = json.loads(run("status", "--store", store, "--json"))["advice"]
    assert found["feedback"]["holds"] == 0
    assert found["warnings"] == []
    with Store(tmp_path / "empty.sqlite"):
        pass
    text = run("status", "--store", tmp_path / "empty.sqlite")
    assert "has no hold episodes" in text


def test_what_came_of_repairs_is_not_set_against_the_chance_without_one(store: Path) -> None:
    fixed = [given(16, proc, "04:27:40", "FIX", 0.1) for proc in (0, 1)]
    [_, line, *_] = in_words(summarise(joined(store, *fixed)))
    assert line.endswith("known outcome 2 succeeded (100%; predicted without a repair: 10%)")


def test_chances_are_binned_only_where_there_are_enough() -> None:
    def one(p: float, outcome: Outcome, verdict: str = "RELEASE") -> Followed:
        return Followed(given(1, 0, "04:00:00", verdict, p), outcome, True, True)

    few = [one(0.9, Outcome.SUCCEEDED)] * 10
    assert summarise(Joined(few, 0, 0))["chances"]["calibration_error"] is None
    right = [one(0.8, Outcome.SUCCEEDED)] * 80 + [one(0.8, Outcome.HELD_SAME)] * 20
    chances = summarise(Joined(right, 0, 0))["chances"]
    assert chances["brier"] == pytest.approx(0.16)
    assert chances["base_rate"] == pytest.approx(0.8)
    repaired = [one(0.1, Outcome.SUCCEEDED, "FIX")] * 30
    summary = summarise(Joined([*right, *repaired], 0, 0))
    assert summary["chances"] == chances  # what was repaired is no release as is
    assert summary["verdicts"]["FIX"]["success_rate"] == 1.0
    assert in_words(summarise(Joined([], 0, 0))) == []


# ---- on a real pool ------------------------------------------------------------------------

NEEDS_A_FILE = """
executable = /bin/sh
transfer_executable = false
arguments = "-c 'test -e {file}'"
on_exit_hold = ExitCode =!= 0
log = {log}
request_memory = 32
queue 2
"""


def test_advice_on_a_real_pool_is_held_against_what_came_of_it(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CONDOR_ADVICE_MODELS", str(tmp_path / "models"))
    store, log = tmp_path / "store.sqlite", tmp_path / "jobs.log"
    env = {**os.environ, **pool.environ, "CONDOR_ADVICE_STORE": str(store)}
    file = tmp_path / "licence"
    cluster = pool.submit(NEEDS_A_FILE.format(file=file, log=log), cwd=tmp_path)
    pool.wait_for(cluster, JobStatus.HELD)
    gather = ["gather", log, "--store", store]
    run(*gather, env=env)
    answers = [
        json.loads(line)
        for line in run(str(cluster), "--store", store, "--json", env=env).splitlines()
    ]
    assert [one["job"] for one in answers] == [f"{cluster}.0", f"{cluster}.1"]
    time.sleep(1.1)  # events of a log are whole seconds
    file.touch()
    pool.run(["condor_release", f"{cluster}.0"])
    pool.run(["condor_rm", f"{cluster}.1"])
    deadline = time.monotonic() + 60
    while "005 (" not in log.read_text() or "009 (" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.3)
    run(*gather, env=env)
    found: dict[str, Any] = json.loads(run("status", "--store", store, "--json", env=env))
    feedback = found["advice"]["feedback"]
    assert (feedback["holds"], feedback["not_found"], feedback["open"]) == (2, 0, 0)
    outcomes: dict[str, int] = {}
    for verdict in feedback["verdicts"].values():
        for outcome, count in verdict["outcomes"].items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    assert outcomes == {"succeeded": 1, "never_released": 1}
