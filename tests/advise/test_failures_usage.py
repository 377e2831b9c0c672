"""`failures train --usage`: from recorded usage to a model that the in-job hook obeys."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from condor_advice.advise.cli import cli
from condor_advice.model import checkpoint_risk as usage
from condor_checkpoint.risk import Risk, Trees

pytest.importorskip("xgboost")
# Jobs that were recorded on a real pool; half of them came to a bad end.
RECORDED = Path(__file__).resolve().parents[2] / "bench/reports/checkpoint/usage.jsonl.xz"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("usage") / "usage.jsonl"
    with lzma.open(RECORDED, "rt") as file:
        path.write_text("".join(list(file)[::2]))
    return path


@pytest.fixture(scope="module")
def trained(recorded: Path) -> tuple[Path, dict[str, object]]:
    out = recorded.with_name("model.json")
    done = CliRunner().invoke(
        cli, ["failures", "train", "--usage", str(recorded), "--out", str(out), "--json"]
    )
    assert done.exit_code == 0, done.output
    return out, json.loads(done.output)


def test_an_option_takes_all_files_that_a_shell_makes_of_a_pattern(tmp_path: Path) -> None:
    """HTCondor rotates its history, so that `--history spool/history*` is several words."""
    ad = "ClusterId = {}\nProcId = 0\nQDate = 9\nJobStatus = 4\nCompletionDate = 99\nExitCode = 0\n"
    for number in (1, 2, 3):
        (tmp_path / f"history.{number}").write_text(ad.format(number) + "***\n")
    files = sorted(map(str, tmp_path.glob("history.*")))
    done = CliRunner().invoke(cli, ["failures", "train", "--history", *files, "--seed", "1"])
    assert "3 jobs with a known outcome" in str(done.exception)


def test_the_command_trains_on_a_real_recording_and_says_how_good_it_is(trained) -> None:  # type: ignore[no-untyped-def]
    out, said = trained
    assert said["model"] == str(out)
    assert said["jobs"] == 90
    assert said["trees"]["roc_auc"] > 0.8
    assert 0 < said["failed_judged_jobs"] < said["judged_jobs"] < said["jobs"]


def test_the_hooks_risk_rises_before_a_recorded_job_runs_out_of_memory(trained, recorded) -> None:  # type: ignore[no-untyped-def]
    trees = Trees(json.loads(trained[0].read_text()))
    jobs = [job.describe() for job in usage.read_usage([recorded])]
    leak = next(job for job in reversed(jobs) if job.cause == "memory")
    steady = next(job for job in reversed(jobs) if not job.failed)
    at_the_end = trees.probability(leak.features[-1].tolist())
    assert at_the_end > 0.5
    assert at_the_end > trees.probability(steady.features[len(steady.features) // 2].tolist())
    risk = Risk(leak.interval, trees)
    for sample in leak.samples:
        standing = risk.add(sample, sample.elapsed)
    assert standing


def test_what_condor_checkpoint_records_is_read_by_the_command(tmp_path: Path) -> None:
    recording = tmp_path / "own.jsonl"
    subprocess.run(
        [
            *(sys.executable, "-m", "condor_checkpoint", "record", "--interval", "0.05"),
            *("--out", str(recording), "--"),
            *(sys.executable, "-c", "import time; time.sleep(1.5)"),
        ],
        check=True,
        capture_output=True,
    )
    [job] = usage.read_usage([recording])
    assert not job.failed
    done = CliRunner().invoke(
        cli, ["failures", "train", "--usage", str(recording), "--out", str(tmp_path / "m.json")]
    )
    # One healthy job is read, and is too little to learn from.
    assert done.exit_code != 0
    assert "1 jobs: fitting, calibration and test each need failed and healthy" in _said(done)
    assert not (tmp_path / "m.json").exists()


def test_files_that_are_no_recording_are_named(tmp_path: Path) -> None:
    table = tmp_path / "means.csv"
    table.write_text("job_id,memory_GB,failed\njobID1,4.5,0\n")
    for file, words in ((table, "means.csv: not recorded usage"), (tmp_path / "gone", "gone: not")):
        done = CliRunner().invoke(
            cli, ["failures", "train", "--usage", str(file), "--out", str(tmp_path / "m.json")]
        )
        assert done.exit_code != 0
        assert words in _said(done)
    done = CliRunner().invoke(cli, ["failures", "train", "--usage", str(table)])
    assert "--usage requires --out FILE" in _said(done)


def _said(done) -> str:  # type: ignore[no-untyped-def]
    """Return the error, which the program's own entry point would print."""
    return f"{done.output} {done.exception}"
