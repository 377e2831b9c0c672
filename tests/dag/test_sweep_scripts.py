"""Run PRE, node and POST of a trial as DAGMan and a starter would, without a pool.

The nodes are real: `run_node.sh` in a scratch directory that holds what would be transferred.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sweeps_for_tests import SMALL

from condor_advice.dag import nodes, scripts
from condor_advice.dag.create import plan_sweep
from condor_advice.dag.generate import PACKAGE, RUNNER
from condor_advice.dag.nodes import CHECKPOINT
from condor_advice.dag.plan import SweepPlan
from condor_advice.dag.state import SweepState, Trial, TrialState


def run_node(
    plan: SweepPlan, where: Path, inputs: list[Path], arguments: list[str], kill_after: float = 0
) -> int:
    """Run one node in a scratch directory; restart it after checkpoints; copy `out` back."""
    scratch = where / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for path in [plan.directory / PACKAGE, *inputs]:
        copy = shutil.copytree if path.is_dir() else shutil.copyfile
        copy(path, scratch / path.name)
    while True:
        process = subprocess.Popen(
            [plan.directory / RUNNER, *arguments],
            cwd=scratch,
            env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"},
            stderr=(where / "node.err").open("ab"),
            stdout=(where / "node.out").open("ab"),
        )
        if kill_after:
            states = scratch / "out" / "state"
            deadline = time.monotonic() + 60
            while not list(states.glob("seed-*.pt")) and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(kill_after)
            process.send_signal(signal.SIGKILL)
            kill_after = 0
            process.wait()
            continue
        if process.wait() != CHECKPOINT:
            break
    shutil.copytree(scratch / "out", where / "out", dirs_exist_ok=True)
    shutil.rmtree(scratch)
    return process.returncode


def run_trial(plan: SweepPlan, number: int) -> int:
    """Run a trial's node in this process: torch is slow to start."""
    where = plan.trial_directory(number)
    scratch = where / "scratch"
    shutil.copytree(where / "in", scratch)
    before = Path.cwd()
    status = CHECKPOINT
    with (where / "node.err").open("w") as file, contextlib.redirect_stderr(file):
        while status == CHECKPOINT:
            try:
                os.chdir(scratch)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(sys, "argv", ["nodes", "trial"])
                    nodes.main()
                status = 0
            except SystemExit as end:
                status = int(str(end.code))
            finally:
                os.chdir(before)
    shutil.copytree(scratch / "out", where / "out", dirs_exist_ok=True)
    shutil.rmtree(scratch)
    return status


def go_on(plan: SweepPlan, number: int, job: str = "1.0") -> tuple[int, int]:
    """Run a trial's node once; return the status of its PRE and of its POST script."""
    before = scripts.pre(plan, f"trial-{number}")
    if before != scripts.DONE:
        return before, -1
    returned = run_trial(plan, number)
    return before, scripts.post(plan, f"trial-{number}", str(returned), job)


def trial_of(plan: SweepPlan, number: int) -> Trial:
    with SweepState(plan.directory) as state:
        return state.trial(number)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Merged episodes of a recording, made by the real nodes once."""
    from condor_advice.advise.commands.sweep import recordings

    root = tmp_path_factory.mktemp("prepared")
    import yaml

    (root / "sweep.yaml").write_text(yaml.safe_dump(SMALL))
    plan = plan_sweep(root / "sweep.yaml", root / "sweep", 1, recordings())
    [key] = plan.prepared
    document = plan.directory / "sweep.json"
    check = run_node(plan, plan.directory / "check", [document], ["check", "sweep.json"])
    assert check == 0, (plan.directory / "check" / "node.err").read_text()
    part = plan.directory / "prepared" / f"{key}-0"
    shard = plan.directory / "shards" / "0"
    assert run_node(plan, part, [shard, document], ["prepare", "sweep.json", "0", key]) == 0
    merged = plan.directory / "prepared" / key
    parts = [part / "out" / "part-0.npz", document]
    assert run_node(plan, merged, parts, ["merge", "sweep.json", key]) == 0
    return merged / "out" / "data.npz"


@pytest.fixture
def ready(planned: Any, prepared: Path) -> Any:
    """A planned sweep whose preprocessing is done."""

    def make(**changes: Any) -> SweepPlan:
        plan = planned(**changes)
        [key] = plan.prepared
        target = plan.prepared_file(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(prepared, target)
        return plan

    return make


def test_a_trial_gets_parameters_trains_and_reports(ready):
    plan = ready(trials=2)
    assert go_on(plan, 0) == (scripts.DONE, scripts.DONE)
    trial = trial_of(plan, 0)
    assert trial.state is TrialState.FINISHED
    assert sorted(trial.epochs) == [1, 2]
    assert 0.1 < trial.epochs[2]["validation_loss"] < 1.5
    assert scripts.pre(plan, "trial-0") == scripts.SKIP, "a finished trial does not run again"
    assert scripts.post(plan, "trial-0", "0", "1.0") == scripts.DONE, "POST can be repeated"
    assert trial_of(plan, 0) == trial


def constant(epochs: int) -> dict[str, Any]:
    return {
        "learning_rate": {"value": 0.01},
        "hidden": {"value": 8},
        "epochs": {"value": epochs},
    }


def test_a_killed_trial_ends_exactly_like_its_undisturbed_twin(ready):
    # Trial 0 checkpoints after every epoch and is killed while it trains; trial 1 runs undisturbed.
    plan = ready(trials=2, parameters=constant(3))
    for number, kill_after in ((0, 0.15), (1, 0)):
        assert scripts.pre(plan, f"trial-{number}") == scripts.DONE
        if number == 1:
            task = plan.trial_directory(1) / "in" / "task.json"
            task.write_text(json.dumps(json.loads(task.read_text()) | {"checkpoint_seconds": 999}))
        where = plan.trial_directory(number)
        inputs = sorted((where / "in").iterdir())
        assert run_node(plan, where, inputs, ["trial"], kill_after) == 0
        assert scripts.post(plan, f"trial-{number}", "0", "1.0") == scripts.DONE
    disturbed, twin = trial_of(plan, 0), trial_of(plan, 1)
    outputs = [(plan.trial_directory(n) / "node.out").read_text() for n in (0, 1)]
    assert "checkpoint after epoch" in outputs[0]
    assert "checkpoint" not in outputs[1]
    assert disturbed.parameters == twin.parameters
    assert disturbed.epochs == twin.epochs, "every figure of every epoch is the same, bit for bit"
    models = [(plan.trial_directory(n) / "out" / "model.npz").read_bytes() for n in (0, 1)]
    assert models[0] == models[1]


def test_hyperband_pauses_at_bands_continues_from_there_and_stops_poor_trials(ready):
    plan = ready(
        trials=2,
        method="grid",
        parameters={
            # A network that predicts success for every hold has a large loss.
            "class_weight": {"values": [1.0, 300.0]},
            "learning_rate": {"value": 0.01},
            "hidden": {"value": 8},
            "epochs": {"value": 4},
        },
        early_terminate={"type": "hyperband", "min_iter": 2, "eta": 4},
        section={"resources": {"memory_mb": 512, "checkpoint_seconds": 999}},
    )
    assert go_on(plan, 0, "1.0") == (scripts.DONE, scripts.AGAIN)
    assert trial_of(plan, 0).state is TrialState.PAUSED
    assert trial_of(plan, 0).epoch == 2
    assert go_on(plan, 0, "2.0") == (scripts.DONE, scripts.DONE)
    assert trial_of(plan, 0).state is TrialState.FINISHED
    # Training without a pause gives the same result.
    whole = train_here(plan).history
    assert trial_of(plan, 0).epochs == {one.epoch: one.metrics() for one in whole}
    assert go_on(plan, 1, "3.0") == (scripts.DONE, scripts.DONE)
    assert trial_of(plan, 1).state is TrialState.STOPPED
    assert trial_of(plan, 1).epoch == 2
    assert "its best after 2 epochs is" in trial_of(plan, 1).reason


def train_here(plan: SweepPlan, seed: int = 0) -> Any:
    """Train trial 0 of a sweep again, in this process and without interruption."""
    from dataclasses import replace

    from condor_advice.dag.episodes import load_split
    from condor_advice.model.held import lstm_training

    task = json.loads((plan.trial_directory(0) / "in" / "task.json").read_text())
    data = load_split(plan.prepared_file(plan.prepared_for(task["parameters"])))
    return lstm_training.train(
        data["train"],
        data["validation"],
        replace(nodes.settings_of(task), seed=seed),
    )


def test_a_failed_job_is_retried_a_limited_number_of_times(ready):
    plan = ready(trials=1, section={"resources": {"memory_mb": 512, "retries": 1}})
    assert scripts.pre(plan, "trial-0") == scripts.DONE
    assert scripts.post(plan, "trial-0", "-9", "1.0") == scripts.AGAIN
    assert scripts.post(plan, "trial-0", "-9", "1.0") == scripts.AGAIN, (
        "the same job, reported twice"
    )
    assert trial_of(plan, 0).failures == 1
    assert trial_of(plan, 0).reason == "killed by signal 9"
    assert scripts.pre(plan, "trial-0") == scripts.DONE
    assert scripts.post(plan, "trial-0", "1", "2.0") == scripts.DONE
    assert trial_of(plan, 0).state is TrialState.FAILED


def test_a_hopeless_trial_is_not_retried_and_says_why(ready):
    plan = ready(trials=1, parameters={"hidden": {"value": 4}, "epochs": {"value": 1}})
    assert scripts.pre(plan, "trial-0") == scripts.DONE
    inputs = plan.trial_directory(0) / "in"
    task = json.loads((inputs / "task.json").read_text())
    task["parameters"] |= {"learning_rate": float("inf"), "hidden": 4}
    (inputs / "task.json").write_text(json.dumps(task))
    returned = run_trial(plan, 0)
    assert returned == scripts.EXIT_HOPELESS, (plan.trial_directory(0) / "node.err").read_text()
    assert scripts.post(plan, "trial-0", str(returned), "1.0") == scripts.DONE
    trial = trial_of(plan, 0)
    assert trial.state is TrialState.FAILED
    assert "the loss was not finite" in trial.reason


def test_the_result_of_an_earlier_run_does_not_count(ready):
    plan = ready(trials=1, parameters=constant(1))
    assert scripts.pre(plan, "trial-0") == scripts.DONE
    assert run_trial(plan, 0) == 0
    result = plan.trial_directory(0) / "out" / "result.json"
    stale = json.loads(result.read_text()) | {"run": 7}
    result.write_text(json.dumps(stale))
    assert scripts.post(plan, "trial-0", "0", "1.0") == scripts.AGAIN
    assert trial_of(plan, 0).epochs == {}


def test_the_next_pre_records_a_result_whose_post_script_was_killed(ready):
    plan = ready(trials=1, parameters=constant(1))
    assert scripts.pre(plan, "trial-0") == scripts.DONE
    assert run_trial(plan, 0) == 0
    assert scripts.pre(plan, "trial-0") == scripts.SKIP
    assert trial_of(plan, 0).state is TrialState.FINISHED


def test_a_damaged_state_is_trained_again(ready):
    plan = ready(
        trials=1,
        parameters=constant(2),
        early_terminate={"type": "hyperband", "min_iter": 1, "eta": 4},
    )
    assert go_on(plan, 0, "1.0") == (scripts.DONE, scripts.AGAIN)
    left = plan.trial_directory(0) / "out" / "state" / "seed-0.pt"
    left.write_bytes(left.read_bytes()[:1000])
    assert go_on(plan, 0, "2.0") == (scripts.DONE, scripts.DONE)
    assert trial_of(plan, 0).state is TrialState.FINISHED
    assert trial_of(plan, 0).epochs[2] == train_here(plan).history[1].metrics()
    assert "is damaged" in (plan.trial_directory(0) / "node.err").read_text()


def test_no_trial_begins_once_the_target_is_reached(ready):
    metric = {"name": "validation_loss", "goal": "minimize", "target": 5.0}
    plan = ready(trials=2, parameters=constant(1), metric=metric)
    assert go_on(plan, 0) == (scripts.DONE, scripts.DONE)
    assert scripts.pre(plan, "trial-1") == scripts.SKIP
    assert trial_of(plan, 1).state is TrialState.SKIPPED


def test_several_seeds_are_reported_as_their_mean(ready):
    plan = ready(trials=1, parameters=constant(2), section={"seeds": [0, 1]})
    assert go_on(plan, 0) == (scripts.DONE, scripts.DONE)
    trial = trial_of(plan, 0)
    single = [train_here(plan, seed).history[-1] for seed in (0, 1)]
    mean = sum(one.validation_loss for one in single) / 2
    assert trial.epochs[2]["validation_loss"] == pytest.approx(mean, rel=1e-12)
    assert single[0].validation_loss != single[1].validation_loss


@pytest.mark.parametrize(
    ("returned", "dag_status", "failed", "trial_state", "status"),
    [
        ("0", "0", "0", TrialState.FINISHED, scripts.DONE),
        ("1", "0", "0", TrialState.FINISHED, scripts.AGAIN),
        ("0", "2", "1", TrialState.FINISHED, scripts.AGAIN),
        ("0", "0", "0", TrialState.FAILED, scripts.AGAIN),
        ("0", "0", "0", TrialState.RUNNING, scripts.AGAIN),
        ("0", "0", "0", TrialState.STOPPED, scripts.DONE),
    ],
)
def test_the_workflow_succeeds_only_if_everything_did(
    planned, returned, dag_status, failed, trial_state, status
):
    plan = planned(trials=1)
    with SweepState(plan.directory) as state:
        state.ask(0, lambda _: {"x": 1})
        state.tell(0, {}, lambda _trials, _trial: (trial_state, ""))
    assert scripts.final(plan, "final", returned, dag_status, failed) == status


def test_scripts_cost_less_than_a_second_of_cpu(ready):
    plan = ready(trials=12, method="bayes", parameters=SMALL["parameters"])
    with SweepState(plan.directory) as state:
        for number in range(10):
            state.ask(
                number,
                lambda _, n=number: {"learning_rate": 0.001 * (n + 1), "hidden": 4, "epochs": 2},
            )
            state.tell(
                number,
                {1: {"validation_loss": 1.0 / (number + 1)}},
                lambda _trials, _trial: (TrialState.FINISHED, ""),
            )
    for arguments in (["pre", "trial-10"], ["post", "trial-10", "1", "9.0"]):
        timed = (
            "import resource, subprocess, sys; "
            "done = subprocess.run(sys.argv[1:], check=False); "
            "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
            "print(used.ru_utime + used.ru_stime); "
            "sys.exit(done.returncode)"
        )
        what, *rest = arguments
        done = subprocess.run(
            [
                *(sys.executable, "-c", timed),
                *(sys.executable, "-m", "condor_advice.dag.scripts", what, str(plan.directory)),
                *rest,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (scripts.DONE, scripts.AGAIN), done.stderr
        assert float(done.stdout) < 1.0, arguments


def test_an_execution_point_without_torch_fails_the_check_at_once_and_says_so(planned, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    plan = planned(section={"environment": {"python": str(bare / "bin" / "python")}})
    where = plan.directory / "check"
    document = plan.directory / "sweep.json"
    assert run_node(plan, where, [document], ["check", "sweep.json"]) == scripts.EXIT_HOPELESS
    stderr = (where / "node.err").read_text()
    assert "lacks numpy (No module named 'numpy'), torch" in stderr
    assert "use environment: bundle" in stderr


def test_an_execution_point_without_python_fails_the_check_at_once_and_says_so(planned):
    plan = planned(section={"environment": {"python": "/opt/none/bin/python"}})
    where = plan.directory / "check"
    document = plan.directory / "sweep.json"
    assert run_node(plan, where, [document], ["check", "sweep.json"]) == scripts.EXIT_HOPELESS
    assert "/opt/none/bin/python is missing or older" in (where / "node.err").read_text()
