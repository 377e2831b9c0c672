"""A short real run makes several kinds of holds, records every truth, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from condor_advice.advise.commands.lab import lab
from condor_advice.gather.errors import UsageError
from condor_advice.lab.install_pool import installed
from condor_advice.lab.recording import RecordingError, pack, traces_of_this_machine
from condor_advice.lab.run import LabSettings, run_lab
from condor_advice.lab.truth import in_order, read_holds, read_truth

QUICK = (
    "input_missing",
    "input_late",
    "url_server_down",
    "output_never_written",
    "executable_nowhere",
    "exit_bug",
    "exit_by_chance",
    "user_holds",
    "dag_node_fails",
    "healthy",
    "initialdir_gone",
)


def processes_of(directory: Path) -> list[str]:
    """Return the command lines of processes of a pool in `directory`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(directory).encode() in environ or str(directory) in command:
                found.append(command)
    return found


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if installed() is None:
        missing = "HTCondor is not installed; `make pool` installs it in .pool/"
        if os.environ.get("CONDOR_ADVICE_REQUIRE_POOL") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    out = tmp_path_factory.mktemp("lab") / "run"
    settings = LabSettings(
        minutes=0.7,
        seed=3,
        scenarios=QUICK,
        pace=0.3,
        batches_per_minute=70,
        owners=6,
        randomised_release=True,
        personalities=("steady", "flaky", "small"),
    )
    run_lab(settings, out, say=lambda line: None)
    return out


pytestmark = pytest.mark.timeout(400)
pool_test = pytest.mark.pool


@pool_test
def test_it_makes_real_holds_of_several_codes(recording: Path) -> None:
    holds = read_holds(in_order(recording / "events" / "EventLog"))
    assert len(holds) >= 15
    assert len({(hold.code, hold.subcode) for hold in holds}) >= 4
    assert len({hold.outcome for hold in holds}) >= 3
    manifest = json.loads((recording / "manifest.json").read_text())
    assert manifest["episodes"] == len(holds) == manifest["events"]["012"]
    assert sum(sum(row.values()) for row in manifest["episodes_by_scenario"].values()) == len(holds)


@pool_test
def test_every_job_has_its_truth(recording: Path) -> None:
    truth = read_truth(recording / "truth.jsonl")
    log = "".join(path.read_text() for path in in_order(recording / "events" / "EventLog"))
    submitted = {
        (int(c), int(p)) for c, p in re.findall(r"^000 \((\d+)\.(\d+)\.", log, re.MULTILINE)
    }
    assert set(truth) == submitted
    assert {row.scenario for row in truth.values()} <= set(QUICK)
    owners = Counter(row.owner for row in truth.values())
    assert len(owners) >= 3
    assert {
        json.loads(line)["Owner"] for line in (recording / "jobs.jsonl").read_text().splitlines()
    } == set(owners)


@pool_test
def test_no_process_is_left_behind(recording: Path) -> None:
    deadline = time.monotonic() + 10
    while (left := processes_of(recording)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
    assert not (recording / "work").exists()


@pool_test
def test_the_recording_is_scrubbed_and_packs(recording: Path, tmp_path: Path) -> None:
    for path in (p for p in recording.rglob("*") if p.is_file()):
        text = path.read_text()
        assert traces_of_this_machine(text, recording / "work") == [], path
        assert "Scenario" not in text or path.name == "manifest.json"
    pack(recording, tmp_path / "short.tar.xz")
    raw = sum(path.stat().st_size for path in recording.rglob("*") if path.is_file())
    assert (tmp_path / "short.tar.xz").stat().st_size < raw / 5


@pool_test
def test_htcondor_reads_the_recorded_user_logs(recording: Path) -> None:
    code = (
        "import sys, htcondor2\n"
        "print(sum(1 for f in sys.argv[1:] for e in htcondor2.JobEventLog(f).events(0)))"
    )
    logs = [str(path) for path in sorted((recording / "userlogs").iterdir())]
    done = subprocess.run(
        [sys.executable, "-c", code, *logs],
        capture_output=True,
        text=True,
        check=True,
        env={"CONDOR_CONFIG": "ONLY_ENV"},
    )
    headers = sum(
        len(re.findall(r"^\d{3} \(\d+\.\d+\.\d+\) ", Path(log).read_text(), re.MULTILINE))
        for log in logs
    )
    assert int(done.stdout) == headers > 100


def test_a_recording_that_names_a_machine_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "a.log").write_text("reading from file /tmp/secret/x")
    with pytest.raises(RecordingError, match="scrub it before you ship it"):
        pack(tmp_path / "rec", tmp_path / "rec.tar.xz")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"personalities": ("steady", "haunted")}, "unknown kind of execution point 'haunted'"),
        ({"memory_policy": "none"}, "unknown memory policy 'none'"),
        ({"behaviours": {"sulk": 1.0}}, "give a share for each behaviour"),
        ({"scenarios": ("earthquake",)}, "unknown scenario 'earthquake'"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(
    settings: dict[str, object], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        LabSettings(minutes=1, seed=1, **settings)  # type: ignore[arg-type]


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(UsageError, match="not empty"):
        run_lab(LabSettings(minutes=1, seed=1), tmp_path)


def test_the_scenarios_can_be_listed() -> None:
    shown = CliRunner().invoke(lab, ["scenarios", "--json"])
    rows = [json.loads(line) for line in shown.output.splitlines()]
    assert len(rows) >= 30
    assert all(row["about"] and row["family"] for row in rows)
