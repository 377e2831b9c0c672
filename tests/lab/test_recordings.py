"""The shipped recordings are complete, scrubbed, small, and as their manifest says."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC
from pathlib import Path

import pytest
from click.testing import CliRunner

from condor_advice.advise.commands.lab import lab
from condor_advice.gather.clock import Clock
from condor_advice.gather.events import JobEventType
from condor_advice.gather.sequences import read_log, sequences
from condor_advice.lab import recording as recordings
from condor_advice.lab.recording import (
    SHIPPED_RECORDINGS,
    RecordingError,
    ship,
    shipped,
    traces_of_this_machine,
    unpack,
)
from condor_advice.lab.scenarios import load_scenarios
from condor_advice.lab.truth import LoggedHold, in_order, read_holds, read_truth
from condor_advice.preprocess.holds.episodes import hold_episodes, outcome_of

NAMES = sorted(shipped())


@pytest.fixture(scope="module", params=NAMES)
def unpacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(request.param, tmp_path_factory.mktemp("recording"))


@pytest.fixture(scope="module")
def holds(unpacked: Path) -> list[LoggedHold]:
    return read_holds(in_order(unpacked / "events" / "EventLog"))


def test_several_different_pools_are_shipped_and_one_is_large() -> None:
    entries = shipped()
    assert len(entries) >= 3
    assert any(
        entry["episodes"] >= 1500 and entry["settings"]["minutes"] <= 40
        for entry in entries.values()
    )
    assert {entry["settings"]["memory_policy"] for entry in entries.values()} == {
        "stock",
        "per-run",
    }
    assert {entry["settings"]["iso_dates"] for entry in entries.values()} == {True, False}


def test_a_test_pool_is_randomised_and_not_for_training() -> None:
    train = [entry for entry in shipped().values() if entry["use"] == "train"]
    test = [entry for entry in shipped().values() if entry["use"] == "test"]
    assert train
    assert test
    for entry in test:  # in a kind of pool, half of the owners are randomised
        settings = entry["settings"]
        assert settings["randomised_release"] or settings["randomised_owners"] >= 0.5
    for entry in test:
        for other in train:
            assert entry["settings"]["seed"] != other["settings"]["seed"]
            assert not set(entry["execution_points"]) & set(other["execution_points"])


def test_the_command_lists_them_and_prints_their_tables() -> None:
    listed = CliRunner().invoke(lab, ["recordings"]).output.splitlines()
    assert [line.split()[0] for line in listed] == NAMES
    for line, name in zip(listed, NAMES, strict=True):
        settings = shipped()[name]["settings"]
        kind, share = settings.get("kind"), settings.get("randomised_owners")
        assert line.endswith(f"memory policy, {kind}" if kind else "memory policy")
        assert re.findall(r"\d+% of them at random", line) == (
            [f"{share:.0%} of them at random"] if share else []
        )
    entry = shipped()[NAMES[0]]
    table = CliRunner().invoke(lab, ["recordings", "--table", NAMES[0]]).output.splitlines()
    assert table[-1].split()[-1] == str(entry["episodes"])
    refused = CliRunner().invoke(lab, ["recordings", "--table", "elsewhere"])
    assert "no recording named 'elsewhere'" in str(refused.exception)


def test_together_they_are_at_most_12_megabytes() -> None:
    assert sum(path.stat().st_size for path in SHIPPED_RECORDINGS.iterdir()) <= 12_000_000
    assert {path.name for path in SHIPPED_RECORDINGS.glob("*.tar.xz")} == {
        f"{n}.tar.xz" for n in NAMES
    }


def test_they_hold_what_their_manifest_says(unpacked: Path, holds: list[LoggedHold]) -> None:
    entry = shipped()[unpacked.name]
    scenarios = load_scenarios(entry["settings"].get("kind", ""))
    assert len(holds) == entry["episodes"]
    counts = Counter(hold.outcome for hold in holds)
    by_scenario = entry["episodes_by_scenario"]
    assert counts == Counter(
        {outcome: sum(row.get(outcome, 0) for row in by_scenario.values()) for outcome in counts}
    )
    truth = read_truth(unpacked / "truth.jsonl")
    assert {hold.job for hold in holds} <= set(truth)
    assert {row.scenario for row in truth.values()} <= set(scenarios)
    assert len({row.scenario for row in truth.values()}) >= min(30, 0.8 * len(scenarios))
    log = "".join(path.read_text() for path in in_order(unpacked / "events" / "EventLog"))
    assert {
        (int(cluster), int(proc))
        for cluster, proc in re.findall(r"^000 \((\d+)\.(\d+)\.", log, re.MULTILINE)
    } == set(truth)
    jobs = [json.loads(line) for line in (unpacked / "jobs.jsonl").read_text().splitlines()]
    assert {(job["ClusterId"], job["ProcId"]) for job in jobs} <= set(truth)
    assert len(jobs) >= 0.99 * len(truth)


def test_nothing_in_them_names_a_machine_or_the_scenario(unpacked: Path) -> None:
    kind = shipped()[unpacked.name]["settings"].get("kind", "")
    scenarios = re.compile("|".join(name for name in load_scenarios(kind) if "_" in name))
    for path in (p for p in unpacked.rglob("*") if p.is_file()):
        text = path.read_text()
        assert traces_of_this_machine(text) == [], path
        assert not re.search(r"/(tmp|work|root)/", text), path
        if path.name not in ("truth.jsonl", "manifest.json"):
            assert not scenarios.search(text), path


def test_a_release_goes_either_way_after_the_same_reason(holds: list[LoggedHold]) -> None:
    outcomes = Counter((hold.code, hold.subcode, hold.outcome) for hold in holds)
    both = [
        (code, subcode)
        for code, subcode, outcome in outcomes
        if outcome == "SUCCEEDED"
        and outcomes[code, subcode, "HELD_SAME"] >= 3
        and outcomes[code, subcode, "SUCCEEDED"] >= 3
    ]
    assert len(both) >= 5


def test_preprocessing_finds_the_outcomes_that_the_lab_counts(
    unpacked: Path, holds: list[LoggedHold]
) -> None:
    logs = in_order(unpacked / "events" / "EventLog")
    counted = {(hold.job, hold.number): hold.outcome for hold in holds}
    events = [
        event
        for log in logs
        for event in read_log(log, Clock(UTC)).events()
        if event.type
        in (
            JobEventType.SUBMIT,
            JobEventType.JOB_HELD,
            JobEventType.JOB_RELEASED,
            JobEventType.JOB_ABORTED,
            JobEventType.JOB_TERMINATED,
        )
    ]
    found = {
        ((episode.job.cluster, episode.job.proc), episode.number): outcome_of(episode).name
        for sequence in sequences(events)
        for episode in hold_episodes(sequence)
    }
    assert found == counted


@pytest.fixture
def small_recording(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    (directory / "events").mkdir(parents=True)
    (directory / "events" / "EventLog").write_text("000 (001.000.000) …\n...\n")
    (directory / "manifest.json").write_text(json.dumps({"episodes": 0, "troubles": [1, 2]}))
    (directory / "jobs.jsonl").write_text(
        json.dumps({"EnteredCurrentStatus": 1_700_000_000}) + "\n"
    )
    return directory


def test_packing_and_unpacking_gives_the_same_files(
    small_recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "SHIPPED_RECORDINGS", tmp_path / "shelf")
    entry = ship(small_recording, "mine", "train", tmp_path / "shelf")
    first = (tmp_path / "shelf" / "mine.tar.xz").read_bytes()
    back = unpack("mine", tmp_path / "back")
    assert (back / "events" / "EventLog").read_text() == "000 (001.000.000) …\n...\n"
    assert (back / "events" / "EventLog").stat().st_mtime == 1_700_000_000
    assert shipped()["mine"] == entry
    ship(small_recording, "mine", "train", tmp_path / "shelf")
    assert (tmp_path / "shelf" / "mine.tar.xz").read_bytes() == first


def test_a_damaged_or_unknown_recording_is_refused(
    small_recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "SHIPPED_RECORDINGS", tmp_path / "shelf")
    ship(small_recording, "mine", "train", tmp_path / "shelf")
    packed = tmp_path / "shelf" / "mine.tar.xz"
    packed.write_bytes(packed.read_bytes()[:-4] + b"oops")
    with pytest.raises(RecordingError, match="damaged"):
        unpack("mine", tmp_path)
    with pytest.raises(RecordingError, match="no recording named 'other'; choose from mine"):
        unpack("other", tmp_path)


def test_logs_without_years_are_dated_by_the_recording(unpacked: Path) -> None:
    log = read_log(str(unpacked / "events" / "EventLog"), Clock(UTC))
    with (unpacked / "jobs.jsonl").open() as ads:
        ended = max(json.loads(ad)["EnteredCurrentStatus"] for ad in ads)
    times = [event.time.timestamp() for event in log.events()]
    assert times
    assert ended - 3 * 3600 < min(times) <= max(times) <= ended + 60
