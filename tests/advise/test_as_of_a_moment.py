"""`--at` and `evaluate --replay`: the answer as of a moment, from what was known before it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from condor_advice.advise.answer import advise_on, judge
from condor_advice.advise.find_holds import Question, read_logs
from condor_advice.advise.jobids import parse_job_id
from condor_advice.gather.errors import NoSuchJob, UsageError
from condor_advice.lab.recording import unpack
from condor_advice.lab.simulate import Profile, simulate
from condor_advice.preprocess.holds.episode_store import KeptEpisode

HEADER = re.compile(rb"^\d{3} \(\d+\.\d+\.\d+\) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", re.MULTILINE)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture(scope="module")
def simulated_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    profile = Profile.read()
    profile = replace(profile, targets=replace(profile.targets, held_share=0.4))
    out = tmp_path_factory.mktemp("simulated")
    simulate(400, 11, out, profile)
    return out / "ap1" / "EventLog"


@pytest.fixture(scope="module")
def recorded_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The beginning of a recording of a real pool, as one log."""
    out = tmp_path_factory.mktemp("recorded")
    events = unpack("pool_c", out) / "events"
    oldest = sorted(events.iterdir(), key=lambda path: HEADER.search(path.read_bytes())[1])  # type: ignore[index]
    log = out / "EventLog"
    log.write_bytes(b"".join(path.read_bytes() for path in oldest[:3]))
    return log


def released(log: Path) -> list[KeptEpisode]:
    every = [hold for hold in read_logs([str(log)], "UTC").every_hold() if hold.released_us]
    return sorted(every, key=lambda hold: hold.released_us or 0)


def moment(microseconds: int | None) -> datetime:
    assert microseconds is not None
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


def cut(log: Path, at: datetime, to: Path) -> Path:
    """Copy what a log held right before a moment."""
    whole = log.read_bytes()
    bound = at.strftime("%Y-%m-%d %H:%M:%S").encode()
    ends = [header.start() for header in HEADER.finditer(whole) if header[1] >= bound]
    to.write_bytes(whole[: min(ends, default=len(whole))])
    return to


def answers(log: Path, at: datetime, *jobs: str) -> list[dict[str, Any]]:
    """Return the answers without rounding."""
    wanted = tuple(parse_job_id(job) for job in jobs)
    question = Question(wanted=wanted, logs=(str(log),), at=at, zone="UTC")
    advices, _ = judge(question, explain=True)
    exact = ("p_success", "interval", "sure")
    return [
        advice.as_dict() | {name: getattr(advice, name) for name in exact} for advice in advices
    ]


@pytest.mark.parametrize("kind", ["simulated_log", "recorded_log"])
def test_a_log_cut_right_before_a_release_gives_the_same_answers(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    log = request.getfixturevalue(kind)
    holds = released(log)
    assert len(holds) > 40
    compared = 0
    for hold in holds[5 :: len(holds) // 12]:
        at = moment(hold.released_us)
        whole = answers(log, at)
        assert (
            str(hold.job) in [answer["job"] for answer in whole] or hold.time_us == hold.released_us
        )
        assert answers(cut(log, at, tmp_path / "cut.log"), at) == whole
        compared += len(whole)
    assert compared > 12


def test_a_planted_leak_is_caught(simulated_log: Path, tmp_path: Path) -> None:
    """An answer that knew the time after the moment would differ, so the comparison can fail."""
    holds = released(simulated_log)
    at = moment(holds[len(holds) // 2].released_us)
    later = at + timedelta(hours=6)
    known = answers(cut(simulated_log, at, tmp_path / "cut.log"), at)
    assert known
    assert known != answers(cut(simulated_log, later, tmp_path / "later.log"), later)


def test_a_job_is_on_hold_from_its_hold_to_its_release(event_log: Any) -> None:
    log = event_log("released_and_succeeded.log")
    [hold] = released(log)[:1]
    first, end = moment(hold.time_us), moment(hold.released_us)
    before = advise_on(str(hold.job), logs=log, at=end, zone="UTC")
    assert before.hold.number == 1
    with pytest.raises(NoSuchJob, match="was not on hold at"):
        advise_on(str(hold.job), logs=log, at=first, zone="UTC")
    with pytest.raises(NoSuchJob, match="was not on hold at"):
        advise_on(str(hold.job), logs=log, at=end + timedelta(seconds=1), zone="UTC")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"hold": 1}, "exclude each other"),
        ({"at": datetime(2026, 1, 1)}, "has no time zone"),
        ({"at": datetime(2999, 1, 1, tzinfo=UTC)}, "in the future"),
    ],
)
def test_a_moment_that_cannot_be_asked_about_is_refused(
    event_log: Any, more: dict[str, Any], words: str
) -> None:
    arguments = {"at": datetime(2026, 1, 1, tzinfo=UTC)} | more
    with pytest.raises(UsageError, match=words):
        advise_on("4.0", logs=event_log("missing_input.log"), **arguments)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "condor_advice", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--at", "2d"], "name job ids, a --log or a --store"),
        (["1.0", "--at", "soon"], "is not a time"),
        (["1.0", "--at", "2d", "--hold", "1"], "exclude each other"),
        (["1.0", "--at", "2d", "--watch"], "--watch"),
        (["1.0", "--at", "2d", "--apply", "--yes"], "excludes --at"),
        (["evaluate", "--learn"], "belong to --replay"),
        (["evaluate", "--replay"], "name them with --log"),
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


def alone_in_their_second(log: Path, lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the answers for which `--at`, which knows the seconds before, knows as much."""
    times = [header[1].decode() for header in HEADER.finditer(log.read_bytes())]
    for line in lines:
        if times.count(line["asked_at"][:19].replace("T", " ")) == 1:
            yield line


def test_a_replay_answers_as_the_command_does_at_that_moment(
    simulated_log: Path, tmp_path: Path
) -> None:
    file = tmp_path / "answers.jsonl"
    done = run("evaluate", "--replay", "--log", simulated_log, "--zone", "UTC", "--json",
               "--answers", file)  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert file.stat().st_mode & 0o077 == 0
    assert figures["releases"] == len(lines) == len(released(simulated_log))
    assert figures["n_test"] == sum(line["succeeded"] is not None for line in lines)
    assert [line["asked_at"] for line in lines] == sorted(line["asked_at"] for line in lines)
    alone = list(alone_in_their_second(simulated_log, lines))
    chosen = alone[:: max(1, len(alone) // 15)]
    assert len(chosen) > 10
    for line in chosen:
        at = datetime.fromisoformat(line["asked_at"])
        [answer] = answers(simulated_log, at, line["job"])
        shown = (line["hold_number"], line["verdict"], line["sure"])
        assert (answer["hold"]["number"], answer["verdict"], answer["sure"]) == shown
        assert answer["p_success"] == pytest.approx(line["p_success"], abs=1e-6)


def test_a_replay_that_learns_uses_no_outcome_before_it_is_known(
    recorded_log: Path, tmp_path: Path
) -> None:
    """The whole log and its first part give the same answers to the releases of that part."""
    holds = released(recorded_log)
    end = moment(holds[len(holds) * 2 // 3].released_us)
    part = cut(recorded_log, end, tmp_path / "part.log")
    played = []
    for log in (part, recorded_log):
        file = tmp_path / f"{log.name}.jsonl"
        done = run("evaluate", "--replay", "--learn", "--log", log, "--zone", "UTC",
                   "--answers", file)  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "learned from" in done.stdout
        keys = ("job", "hold_number", "p_success", "low", "high", "sure", "outcomes_learned")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        played.append([{key: line[key] for key in keys} for line in lines])
    first, whole = played
    assert len(first) > 100
    assert first[-1]["outcomes_learned"] > 0
    assert whole[: len(first)] == first
