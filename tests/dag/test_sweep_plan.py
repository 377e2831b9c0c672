"""Planning writes a whole sweep directory, or refuses before it writes anything."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest
from click.testing import CliRunner

from condor_advice.advise.commands.sweep import recordings, sweep
from condor_advice.dag import scripts
from condor_advice.dag.create import NoSpace, plan_sweep
from condor_advice.dag.plan import PLAN_FILE, SweepPlan
from condor_advice.dag.state import SweepState
from condor_advice.gather.errors import AdviceError, Unreachable, UsageError
from condor_advice.gather.store import Store


def lines(plan: SweepPlan) -> list[str]:
    return (plan.directory / "sweep.dag").read_text().splitlines()


def test_the_dag_goes_from_the_check_to_the_final_node(planned):
    plan = planned(trials=3)
    dag = lines(plan)
    parents = [line for line in dag if line.startswith("PARENT")]
    assert parents == [
        "PARENT check-0 CHILD prepare-0",
        "PARENT prepare-0 CHILD merge-0",
        "PARENT merge-0 CHILD trial-0 trial-1 trial-2",
        "PARENT trial-0 trial-1 trial-2 CHILD evaluate-0",
    ]
    assert "FINAL final final.sub" in dag
    assert any(line.startswith("SCRIPT HOLD ALL_NODES ") for line in dag)
    assert "PRE_SKIP trial-0 3" in dag
    assert "RETRY check-0 2 UNLESS-EXIT 10" in dag
    trial = (plan.directory / "trial.sub").read_text()
    for setting in (
        "checkpoint_exit_code = 85",
        "transfer_checkpoint_files = out",
        "when_to_transfer_output = ON_EXIT_OR_EVICT",
        "erase_output_and_error_on_restart = false",
        "periodic_remove = JobStatus == 5 && time() - EnteredCurrentStatus > 3600",
    ):
        assert setting in trial


def test_bayes_runs_in_lanes_so_that_later_trials_learn_from_earlier_ones(planned):
    resources = {"memory_mb": 512, "max_running": 3}
    plan = planned(trials=8, method="bayes", section={"resources": resources})
    dag = lines(plan)
    assert "MAXJOBS trial 3" in dag
    assert [
        line for line in dag if line.startswith("PARENT trial-") and "evaluate" not in line
    ] == [f"PARENT trial-{number} CHILD trial-{number + 3}" for number in range(5)]
    assert "PRIORITY trial-0 8" in dag
    assert "PRIORITY trial-7 1" in dag


def test_equal_preprocessing_is_done_once_and_shared(planned):
    parameters = {
        "max_steps": {"values": [16, 32]},
        "neighbours": {"values": [0, 2]},
        "hidden": {"values": [4, 8, 16]},
        "epochs": {"value": 2},
    }
    data = [{"recording": "pool_a"}, {"recording": "pool_b"}]
    plan = planned(trials=12, method="grid", parameters=parameters, section={"data": data})
    assert len(plan.prepared) == 4
    dag = "\n".join(lines(plan))
    assert dag.count("JOB prepare-") == 4 * 2
    assert dag.count("JOB merge-") == 4
    chosen = {"max_steps": 16, "neighbours": 2, "hidden": 4, "epochs": 2}
    assert plan.prepared[plan.prepared_for(chosen)]["neighbours"] == 2


def test_a_grid_has_as_many_trials_as_combinations(planned):
    parameters = {"hidden": {"values": [4, 8]}, "attention": {"values": [True, False]}}
    assert planned(trials=99, method="grid", parameters=parameters).trials == 4


def test_a_thousand_trials_are_written_in_five_seconds(sweep_file, tmp_path):
    path = sweep_file()
    known = recordings()
    # The first plan of a process imports the packages; time only the generator.
    plan_sweep(path, tmp_path / "first", 1, known)
    began = time.process_time()
    plan = plan_sweep(path, tmp_path / "sweep", 1000, known)
    assert time.process_time() - began < 5
    assert sum(line.startswith("JOB trial-") for line in lines(plan)) == 1000


def test_dagman_accepts_the_dag(pool, planned):
    plan = planned(trials=5, method="bayes")
    done = pool.run(["condor_dag_checker", str(plan.directory / "sweep.dag")], check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("image", ["docker://example.org/torch:2", "torch.sif"])
def test_a_named_image_becomes_a_container_job(pool, planned, tmp_path, image):
    (tmp_path / "torch.sif").write_bytes(b"")
    plan = planned(section={"environment": {"image": image}})
    for node, variables in (("check", []), ("trial", ["trial=0"])):
        description = plan.directory / f"{node}.sub"
        done = pool.run(["condor_submit", str(description), *variables, "-dry-run", "-"])
        assert f'ContainerImage="{image}"' in done.stdout
        if image == "torch.sif":
            assert re.search(rf'TransferInput="[^"]*{tmp_path}/torch.sif', done.stdout)
    assert not (plan.directory / "bundle.tar.gz").exists()
    assert "PYTHON='python3'" in (plan.directory / "run_node.sh").read_text()


def test_logs_and_stores_are_copied_at_planning(planned, tmp_path, event_log):
    logs = tmp_path / "logs"
    logs.mkdir()
    shutil.copyfile(event_log("missing_input.log"), logs / "EventLog.1")
    shutil.copyfile(event_log("completed.log"), logs / "EventLog")
    Store(tmp_path / "store.sqlite").close()
    data = [{"logs": "logs/EventLog"}, {"store": "store.sqlite"}]
    plan = planned(section={"data": data})
    (logs / "EventLog").write_text("overwritten since")
    shard = plan.directory / "shards" / "0"
    assert json.loads((shard / "source.json").read_text())["files"] == ["EventLog.1", "EventLog"]
    assert (shard / "EventLog").read_bytes() == event_log("completed.log").read_bytes()
    copied = sqlite3.connect(plan.directory / "shards" / "1" / "store.sqlite")
    assert copied.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_sweep_is_private_to_its_owner(planned, tmp_path, event_log):
    log = tmp_path / "EventLog"
    shutil.copyfile(event_log("missing_input.log"), log)
    log.chmod(0o644)
    Store(tmp_path / "store.sqlite").close()
    before = os.umask(0o022)
    try:
        plan = planned(section={"data": [{"logs": "EventLog"}, {"store": "store.sqlite"}]})
        scripts.log(plan, "a line")
    finally:
        os.umask(before)
    paths = [plan.directory, *plan.directory.rglob("*")]
    modes = {path.name: path.stat().st_mode & 0o777 for path in paths if path.is_file()}
    assert modes.pop("run_node.sh") == 0o700
    assert set(modes.values()) == {0o600}
    assert {"EventLog", "store.sqlite", "state.sqlite", PLAN_FILE, "scripts.log"} <= set(modes)
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o700}
    assert log.stat().st_mode & 0o777 == 0o644


def test_a_plan_is_read_back_as_it_was_written(planned):
    plan = planned(trials=4, early_terminate={"type": "hyperband", "min_iter": 1})
    assert SweepPlan.load(plan.directory) == plan
    with SweepState(plan.directory) as state:
        assert [trial.number for trial in state.trials()] == [0, 1, 2, 3]


def test_nothing_is_left_when_there_is_no_space(sweep_file, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(NoSpace, match=r"0\.0 GB free, but this sweep may need \d"):
        plan_sweep(sweep_file(), tmp_path / "sweep", 2, recordings())
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.yaml"]


def test_nothing_is_left_when_writing_fails(sweep_file, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("condor_advice.dag.create.write_package", full)
    with pytest.raises(AdviceError, match="No space left on device"):
        plan_sweep(sweep_file(), tmp_path / "sweep", 2, recordings())
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.yaml"]


@pytest.mark.parametrize(
    ("out", "trials", "message"),
    [
        (".", 2, "exists already"),
        ("none/sweep", 2, "no such directory"),
        ("sweep", None, "give the number of trials"),
        ("sweep", 0, "--trials must be from 1"),
        ("a sweep", 2, "a path without spaces"),
    ],
)
def test_a_wrong_call_says_what_to_change(sweep_file, tmp_path, out, trials, message):
    with pytest.raises(UsageError, match=message):
        plan_sweep(sweep_file(), tmp_path / out, trials, recordings())


def test_preprocessing_parameters_need_choices(sweep_file, tmp_path):
    parameters = {"frame_seconds": {"distribution": "q_normal", "mu": 3600, "sigma": 60, "q": 1}}
    with pytest.raises(UsageError, match="frame_seconds: preprocessing runs before"):
        plan_sweep(sweep_file(parameters=parameters), tmp_path / "sweep", 2, recordings())
    many = {"max_steps": {"min": 2, "max": 99}}
    with pytest.raises(UsageError, match=r"98 ways of preprocessing \(at most 32\)"):
        plan_sweep(sweep_file(parameters=many), tmp_path / "sweep", 2, recordings())


def test_without_a_pool_submit_says_so(planned, monkeypatch):
    from condor_advice.dag.control import submit
    from condor_advice.lab.pool import use_config

    plan = planned()
    monkeypatch.delenv("CONDOR_CONFIG", raising=False)
    use_config(None)
    with pytest.raises(Unreachable, match=r"no schedd answers here .* Nothing was submitted"):
        submit(plan.directory)
    with SweepState(plan.directory) as state:
        assert state.noted("cluster") is None


def test_the_command_prints_json_and_names_every_problem(sweep_file, tmp_path):
    runner = CliRunner()
    good = [str(sweep_file()), "--trials", "2", "--out", str(tmp_path / "sweep"), "--json"]
    done = runner.invoke(sweep, ["init", *good])
    assert json.loads(done.stdout)["trials"] == 2, done.output
    bad = sweep_file(method="magic", colour="red")
    done = subprocess.run(
        [sys.executable, "-m", "condor_advice", "sweep", "init", str(bad), "--out", "x"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2
    assert "2 problems; nothing was written or submitted" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["submit", "status", "best", "resume", "cancel", "sync"])
def test_every_verb_refuses_a_directory_without_a_sweep(verb, tmp_path):
    done = CliRunner().invoke(sweep, [verb, str(tmp_path)])
    assert isinstance(done.exception, Unreachable)
    assert "no sweep here" in str(done.exception)


def test_the_package_for_execution_points_is_ours_alone_and_always_the_same(tmp_path):
    import zipfile

    from condor_advice.dag.bundle import write_package

    write_package(tmp_path / "a.zip")
    write_package(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    names = zipfile.ZipFile(tmp_path / "a.zip").namelist()
    assert {Path(name).parts[0] for name in names} == {"condor_advice"}
    assert "condor_advice/dag/nodes.py" in names
    assert not any("recordings" in name or "starter" in name for name in names)
