"""`predict` and `failures` from the command line, from a table to advice about a submit file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from condor_advice.advise.cli import cli
from condor_advice.advise.presubmit.prediction import describe_reason
from condor_advice.gather.errors import UsageError
from condor_advice.lab.workload import simulate_jobs
from condor_advice.model.failure.model import NotAPrediction
from condor_advice.model.failure.train import TrainSettings, train_models
from condor_advice.preprocess.jobs.history import HISTORY_LEVELS
from condor_advice.preprocess.jobs.horizons import Horizon, JobFeatures, Labels

pytest.importorskip("htcondor2")
pytest.importorskip("xgboost")

JOB = """\
executable = /home/user3/bin/step1.sh
transfer_executable = false
should_transfer_files = YES
request_cpus = 2
request_memory = 2000
allowed_execute_duration = 3600
queue 2
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("model")
    settings = TrainSettings(trials=1, members=1, max_rounds=30, threads=1)
    train_models(simulate_jobs(2000, seed=4, users=10), [Horizon.SUBMIT], Labels(), settings).save(
        where
    )
    return where


@pytest.fixture(scope="module")
def swf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small SWF file made from simulated jobs."""
    path = tmp_path_factory.mktemp("swf") / "small.swf"
    table = simulate_jobs(900, seed=6, users=8)
    lines = []
    for row in range(len(table)):
        started = table["start_time"][row] == table["start_time"][row]
        begin = table["start_time"][row] if started else table["end_time"][row]
        run = table.run_seconds[row] if started else -1
        status = {1: 1, 2: 0, 3: 5, 4: 0}[int(table.state[row])]
        lines.append(
            f"{row + 1} {table['submit_time'][row] - 1.7e9:.0f} "
            f"{begin - table['submit_time'][row]:.0f} {run:.0f} -1 -1 -1 "
            f"{table['requested_cpus'][row]:.0f} "
            f"{table['requested_seconds'][row]:.0f} -1 {status} "
            f"{table.text['user'][row]} -1 {table.text['executable'][row]} 1 -1 -1 -1"
        )
    path.write_text("; UnixStartTime: 1700000000\n" + "\n".join(lines) + "\nbroken line\n")
    return path


def test_predict_gives_risk_reasons_sizes_and_no_fault(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.sub"
    path.write_text(JOB)
    done = CliRunner().invoke(
        cli, ["predict", str(path), "--model", str(model), "--user", "user3", "--json"]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["findings"] == []
    assert found["jobs"] == 2
    assert 0.0 < found["risk"]["probability"] < 1.0
    assert len(found["risk"]["by_job"]) == 2
    assert len(found["risk"]["reasons"]) == 5
    assert all(reason["text"] for reason in found["risk"]["reasons"])
    sizes = {one["target"]: one for one in found["sizes"]}
    assert set(sizes) == {"memory_mb", "disk_mb", "run_seconds"}
    # This program uses about 1000 MB: twice five hundred, with a spread of a fifth.
    assert 800 < sizes["memory_mb"]["suggested"] < 2500
    assert sizes["memory_mb"]["command"] == "request_memory"
    assert sizes["memory_mb"]["requested"] == "2000"


def test_another_user_has_another_history(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.sub"
    path.write_text(JOB)
    said = set()
    for user in ("user3", "nobody-yet"):
        done = CliRunner().invoke(
            cli, ["predict", str(path), "--model", str(model), "--user", user, "--json"]
        )
        found = json.loads(done.output)
        said.add(found["risk"]["probability"])
        assert bool(found["sizes"]) == (user == "user3")
    assert len(said) == 2


def test_an_unusual_request_is_pointed_out(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.sub"
    path.write_text(JOB.replace("request_cpus = 2", "request_cpus = 512"))
    done = CliRunner().invoke(
        cli, ["predict", str(path), "--model", str(model), "--user", "user3", "--json"]
    )
    assert "log_cpus" in {one["field"] for one in json.loads(done.output)["anomalies"]}


def test_text_output_and_exit_status_for_scripts(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.sub"
    path.write_text(JOB)
    good = CliRunner().invoke(cli, ["predict", str(path), "--model", str(model)])
    assert good.exit_code == 0
    assert "no faults found" in good.output
    assert "risk of failing:" in good.output
    path.write_text(JOB.replace("2000", "2"))
    bad = CliRunner().invoke(cli, ["predict", str(path), "--model", str(model)])
    assert bad.exit_code == 1
    assert "2 without a unit means 2 MB [units]" in bad.output
    ignored = CliRunner().invoke(
        cli, ["predict", str(path), "--model", str(model), "--ignore", "units"]
    )
    assert ignored.exit_code == 0
    raised = CliRunner().invoke(
        cli, ["predict", str(path), "--lint-only", "--", "request_memory=2GB"]
    )
    assert raised.exit_code == 0, raised.output


def test_without_a_model_the_lint_still_answers_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = tmp_path / "job.sub"
    path.write_text(JOB)
    done = CliRunner().invoke(cli, ["predict", str(path)])
    assert done.exit_code == 0
    assert "no failure model yet" in done.output


def test_predict_imports_no_training_package(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.sub"
    path.write_text(JOB)
    code = (
        "import sys\n"
        "from condor_advice.advise.cli import cli\n"
        "cli.main(sys.argv[1:], standalone_mode=False)\n"
        "print([m for m in ('xgboost', 'pandas', 'sklearn', 'scipy', 'torch', 'matplotlib',"
        " 'imblearn') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "predict", str(path), "--model", str(model)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("[]"), done.stdout


def test_failures_evaluate_keeps_its_json_contract(swf: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli,
        [
            "failures",
            "evaluate",
            "--swf",
            str(swf),
            "--split",
            "0.6",
            "--horizon",
            "submit,two_minutes,running,post_mortem",
            "--trials",
            "1",
            "--bootstrap",
            "5",
            "--threads",
            "1",
            "--json",
            "--report",
            str(tmp_path / "report"),
        ],
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert set(found["horizons"]) == {"submit", "two_minutes", "running", "post_mortem"}
    for one in found["horizons"].values():
        assert {
            "roc_auc",
            "pr_auc",
            "f1",
            "precision",
            "recall",
            "accuracy",
            "n_test",
            "base_rate",
        } <= set(one)
    assert found["bad_lines"] == 1
    assert "does not predict" in found["horizons"]["post_mortem"]["note"]
    assert (tmp_path / "report" / "submit-job.png").exists()


def test_failures_train_writes_a_model_and_refuses_post_mortem(swf: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    common = ["failures", "train", "--swf", str(swf), "--trials", "1", "--threads", "1"]
    done = runner.invoke(cli, [*common, "--horizon", "submit", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["horizons"]["submit"]["rows"] > 500
    assert (tmp_path / "manifest.json").exists()
    refused = runner.invoke(cli, [*common, "--horizon", "submit,post_mortem"])
    assert isinstance(refused.exception, NotAPrediction)
    nothing = runner.invoke(cli, ["failures", "train"])
    assert isinstance(nothing.exception, UsageError)
    assert "no job table" in str(nothing.exception)
    wrong = runner.invoke(cli, [*common, "--horizon", "yesterday"])
    assert "choose from submit, start" in str(wrong.exception)


def test_precision_and_cost_choose_the_threshold(swf: Path) -> None:
    found = {}
    for option in (["--cost", "20"], ["--cost", "0.5"], ["--precision", "0.8"]):
        done = CliRunner().invoke(
            cli,
            [
                "failures",
                "evaluate",
                "--swf",
                str(swf),
                "--horizon",
                "submit",
                "--trials",
                "1",
                "--bootstrap",
                "2",
                "--threads",
                "1",
                "--json",
                *option,
            ],
        )
        assert done.exit_code == 0, done.output
        found[" ".join(option)] = json.loads(done.output)["horizons"]["submit"]
    assert found["--cost 20"]["recall"] > found["--cost 0.5"]["recall"]
    assert found["--cost 20"]["threshold"] < found["--precision 0.8"]["threshold"]


def test_every_feature_of_a_prediction_has_words() -> None:
    for name in JobFeatures(tuple(HISTORY_LEVELS)).names(Horizon.SUBMIT):
        assert "_" not in describe_reason(name, 0.5), name
