"""Sweeps on a real pool survive what happens there: evictions, holds, failures, restarts."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sweeps_for_tests import SMALL
from wandb_server import WandbServer

from condor_advice.dag.plan import SweepPlan
from condor_advice.dag.state import SweepState, Trial, TrialState
from condor_advice.lab.pool import ExecutionPoint, Pool
from condor_advice.model.held.model import HeldModel
from condor_advice.model.held.train import PART_NAMES
from condor_advice.model.registry.versions import Registry

SECRET = "local-0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def own_pool(make_pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    """A pool with two execution points of one core each, because the machine has only two."""
    monkeypatch.setenv("CONDOR_ADVICE_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    points = [ExecutionPoint(name, cpus=1, memory_mb=4096) for name in ("ep1", "ep2")]
    pool: Pool = make_pool(execution_points=points)
    pool.start()
    return pool


def advice(pool: Pool, *arguments: str, check: bool = True) -> str:
    """Run `condor-advice` as the pool's account."""
    done = pool.run([sys.executable, "-m", "condor_advice", *arguments], check=check)
    return done.stdout


def status(pool: Pool, plan: SweepPlan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        advice(pool, "sweep", "status", str(plan.directory), "--json")
    )
    return found


def wait(what: Callable[[], Any], seconds: float = 200, why: Callable[[], str] = str) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, f"not after {seconds} s: {why()}"
        time.sleep(0.3)
    return found


def script_log(plan: SweepPlan) -> str:
    path = plan.directory / "logs" / "scripts.log"
    return path.read_text() if path.exists() else ""


def wait_for_end(pool: Pool, plan: SweepPlan) -> dict[str, Any]:
    metrics = plan.directory / "sweep.dag.metrics"

    def why() -> str:
        out = plan.directory / "sweep.dag.dagman.out"
        return script_log(plan) + "\n".join(out.read_text().splitlines()[-30:])

    wait(metrics.exists, 250, why)
    return wait(lambda: (found := status(pool, plan))["state"] != "running" and found, 30, why)


def trials_of(plan: SweepPlan) -> list[Trial]:
    with SweepState(plan.directory) as state:
        return state.trials()


def events(plan: SweepPlan, number: int) -> list[str]:
    path = plan.trial_directory(number) / "node.log"
    text = path.read_text() if path.exists() else ""
    return re.findall(r"^(\d{3}) \(", text, re.MULTILINE)


def dagman_pid(plan: SweepPlan) -> int | None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"condor_dagman") and any(
                str(plan.directory).encode() in word for word in words
            ):
                return int(entry.name)
    return None


def test_an_evicted_trial_a_killed_dagman_and_a_restarted_schedd_change_no_result(
    own_pool, planned, tmp_path
):
    # All trials are equal: trial 0 is disturbed, trial 1 is its twin.
    parameters = {
        "learning_rate": {"value": 0.01},
        "hidden": {"value": 8},
        "epochs": {"value": 4},
    }
    # One at a time: the twin starts after all disturbances of the other.
    resources = SMALL["condor_advice"]["resources"] | {"max_running": 1}
    plan = planned(trials=2, parameters=parameters, section={"resources": resources})
    advice(own_pool, "sweep", "submit", str(plan.directory))

    def checkpointed() -> bool:
        # A checkpoint is a pair of transfers in the middle of a run.
        return events(plan, 0).count("040") >= 4

    wait(checkpointed, 120, lambda: script_log(plan))
    job = wait(
        lambda: re.search(
            r"^001 \(0*(\d+)\.", (plan.trial_directory(0) / "node.log").read_text(), re.MULTILINE
        )
    )[1]
    own_pool.run(["condor_vacate_job", f"{job}.0"])
    wait(lambda: "004" in events(plan, 0), 60)
    first = wait(lambda: dagman_pid(plan))
    os.kill(first, signal.SIGKILL)
    own_pool.run(["condor_restart", "-schedd"], check=False)
    second = wait(lambda: (pid := dagman_pid(plan)) and pid != first and pid, 120)
    assert second != first

    found = wait_for_end(own_pool, plan)
    assert found["exit_status"] == 0, script_log(plan)
    assert "Running in RECOVERY mode" in (plan.directory / "sweep.dag.dagman.out").read_text()
    disturbed, twin = trials_of(plan)
    assert disturbed.state is twin.state is TrialState.FINISHED
    assert disturbed.epochs == twin.epochs, "the same figures, bit for bit"
    assert "004" in events(plan, 0)
    assert "004" not in events(plan, 1)

    # The winner is registered with its lineage, and can give advice.
    name = found["model"]
    registry = Registry(tmp_path / "models")
    manifest = registry.verify(name)
    assert manifest.settings["sweep"]["trial"] == 0
    assert manifest.settings["sweep"]["name"] == plan.name
    summary = next(plan.directory.glob("prepared/*/out/summary.json"))
    assert manifest.data_hash == json.loads(summary.read_text())["data_hash"]
    assert manifest.metrics["test"]["episodes"] > 50
    assert registry.current_name() != name, "a candidate gives no advice before it is promoted"
    # The stack decides how much the network counts, if at all.
    assert set(HeldModel.load(registry.path(name)).weights) <= {*PART_NAMES}
    assert manifest.settings["lstm"]["learning_rate"] == 0.01
    page = (plan.report / "index.html").read_text()
    assert page.count("data:image/png;base64,") >= 1
    assert "http://" not in page
    assert "https://" not in page
    assert (plan.report / "learning_curves.png").stat().st_size > 5000


def test_a_held_node_and_a_failing_trial_end_in_the_right_status_and_resume(own_pool, planned):
    parameters = {
        "learning_rate": {"values": [0.01, 1e30]},
        "hidden": {"value": 4},
        "epochs": {"value": 1},
    }
    plan = planned(trials=2, method="grid", parameters=parameters)
    shard = plan.directory / "shards" / "0"
    shard.rename(shard.with_name("away"))
    advice(own_pool, "sweep", "submit", str(plan.directory))
    wait(lambda: "prepare-0: job" in script_log(plan), 90, lambda: script_log(plan))
    shard.with_name("away").rename(shard)
    assert re.search(r"prepare-0: job \S+ held \(13/2 .*removed", script_log(plan)), script_log(
        plan
    )

    found = wait_for_end(own_pool, plan)
    assert found["state"] == "failed"
    assert found["exit_status"] == 1, "the FINAL node succeeded, but a trial failed"
    # The trial that asks first gets the grid's first point.
    good, bad = sorted(trials_of(plan), key=lambda trial: trial.parameters["learning_rate"])
    assert good.state is TrialState.FINISHED
    assert bad.state is TrialState.FAILED
    assert "the loss was not finite" in bad.reason
    assert bad.runs == 1, "a hopeless trial is not retried"
    assert found["best"]["trial"] == good.number
    assert found["model"], "the best of the other trials is still registered"
    shown = advice(own_pool, "sweep", "status", str(plan.directory))
    assert f"failed: trial-{bad.number}: exit status 10" in shown
    assert f"continue with: condor-advice sweep resume {plan.directory}" in shown.replace("\n", "")

    before = events(plan, good.number)
    told = json.loads(advice(own_pool, "sweep", "resume", str(plan.directory), "--json"))
    assert told["failed_trials_again"] == 1
    found = wait_for_end(own_pool, plan)
    assert found["exit_status"] == 1
    assert trials_of(plan)[bad.number].runs == 2
    assert events(plan, good.number) == before, "finished trials did not run again"


def test_a_sweep_is_cancelled_with_its_jobs_and_the_key_is_nowhere(own_pool, planned, monkeypatch):
    plan = planned(trials=2)
    with WandbServer() as server:
        monkeypatch.setenv("WANDB_API_KEY", SECRET)
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        advice(own_pool, "sweep", "submit", str(plan.directory))
        [sweep] = server.sweeps
        assert "condor_advice" not in sweep["config"]
        assert server.authorizations, "the client logged in with the key"
    again = own_pool.run(
        [sys.executable, "-m", "condor_advice", "sweep", "submit", str(plan.directory)], check=False
    )
    assert again.returncode == 2
    assert "the sweep is running as job" in again.stderr
    wait(lambda: own_pool.jobs("JobUniverse == 5"), 30)
    queue = own_pool.run(["condor_q", "-long", "-allusers"]).stdout
    assert "DAGNodeName" in queue
    advice(own_pool, "sweep", "cancel", str(plan.directory))
    wait(lambda: not own_pool.jobs("JobStatus < 3 && JobUniverse == 5"), 60)
    found = wait(lambda: (found := status(own_pool, plan))["state"] != "running" and found, 60)
    assert found["state"] == "cancelled"
    history = own_pool.run(["condor_history", "-long"]).stdout
    assert "condor_dagman" in queue + history
    for text in (queue, history):
        assert SECRET not in text
    for place in (plan.directory, own_pool.directory):
        for path in place.rglob("*"):
            if path.is_file():
                assert SECRET.encode() not in path.read_bytes(), path
