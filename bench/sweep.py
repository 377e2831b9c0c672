"""Measure what a sweep costs besides its trials: generator, scripts, DAGMan and the pool.

    python bench/sweep.py [--trials 8] [--show] [--bundle] [--keep DIR]

Prints one JSON line per benchmark. `overhead` is the slot time without a trial, per trial: wall
time times slots, less the trials' own run times. `--show` runs a Bayesian search of 12 trials with
hyperband on two recordings and evicts one trial. `--bundle` runs a small sweep whose execution
points use only the bundle.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from condor_advice.advise.commands.sweep import recordings
from condor_advice.dag.create import plan_sweep
from condor_advice.dag.plan import SweepPlan
from condor_advice.dag.state import SweepState, Trial, TrialState
from condor_advice.lab.pool import ExecutionPoint, Pool

SLOTS = 2
SWEEP: dict[str, Any] = {
    "name": "bench",
    "method": "random",
    "metric": {"name": "validation_loss", "goal": "minimize"},
    "parameters": {
        "learning_rate": {"value": 0.003},
        "hidden": {"value": 16},
        "patience": {"value": 0},
        "epochs": {"value": 3},
    },
    "condor_advice": {
        "data": [{"recording": "pool_a"}],
        "split": {"gap_seconds": 0},
        "environment": {"python": sys.executable},
        "tracking": "off",
        "resources": {"memory_mb": 1024, "disk_mb": 500, "checkpoint_seconds": 600},
    },
}


def main() -> None:
    """Run all benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--trials", type=int, default=8, help="equal trials that measure the overhead"
    )
    parser.add_argument("--show", action="store_true", help="also run a search of 12 trials")
    parser.add_argument("--bundle", action="store_true", help="also run a sweep from the bundle")
    parser.add_argument("--only-show", action="store_true", help="run only the search")
    parser.add_argument("--keep", type=Path, help="keep the sweeps in this directory")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sweep-bench-") as scratch:
        root = (chosen.keep or Path(scratch)).absolute()
        root.mkdir(parents=True, exist_ok=True)
        os.environ["CONDOR_ADVICE_MODELS"] = str(root / "models")
        if not chosen.only_show:
            generator(root)
            scripts(root)
        points = [ExecutionPoint(f"ep{n + 1}", cpus=1, memory_mb=8192) for n in range(SLOTS)]
        with Pool(execution_points=points) as pool:
            if not chosen.only_show:
                overhead(pool, root, chosen.trials)
            if chosen.show or chosen.only_show:
                show(pool, root)
            if chosen.bundle:
                bundle(pool, root)


def tell(name: str, **figures: Any) -> None:
    """Print one line."""
    rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}
    print(json.dumps({"bench": f"sweep {name}", **rounded}), flush=True)


def make(root: Path, name: str, trials: int, **changes: Any) -> SweepPlan:
    """Plan a sweep."""
    content = SWEEP | {"name": name} | changes
    content["condor_advice"] = SWEEP["condor_advice"] | changes.get("condor_advice", {})
    path = root / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    shutil.rmtree(root / name, ignore_errors=True)
    return plan_sweep(path, root / name, trials, recordings())


def generator(root: Path) -> None:
    """Time the planning of 1,000 trials, with all modules imported before."""
    make(root, "warm", 1)
    began, cpu = time.monotonic(), time.process_time()
    make(root, "thousand", 1000, method="bayes", parameters=_searched())
    tell(
        "generator",
        trials=1000,
        seconds=time.monotonic() - began,
        cpu_seconds=time.process_time() - cpu,
    )
    shutil.rmtree(root / "thousand")


def _searched() -> dict[str, Any]:
    return {
        "learning_rate": {"distribution": "log_uniform_values", "min": 0.0005, "max": 0.02},
        "hidden": {"values": [8, 16, 32, 64]},
        "dropout": {"min": 0.0, "max": 0.5},
        "attention": {"values": [True, False]},
        "epochs": {"value": 12},
    }


def scripts(root: Path, known: int = 100) -> None:
    """Measure the CPU time of PRE (Bayesian search with 100 known trials) and POST."""
    plan = make(root, "scripts", known + 10, method="bayes", parameters=_searched())
    import random

    draws = random.Random(0)
    with SweepState(plan.directory) as state:
        for number in range(known):
            state.ask(number, lambda _: {p.name: p.at(draws.random()) for p in plan.parameters})
            epochs = {epoch: {"validation_loss": draws.random()} for epoch in range(1, 13)}
            state.tell(number, epochs, lambda _t, _o: (TrialState.FINISHED, ""))
    [key] = plan.prepared
    plan.prepared_file(key).parent.mkdir(parents=True, exist_ok=True)
    plan.prepared_file(key).write_bytes(b"")
    spent: dict[str, list[float]] = {"pre": [], "post": []}
    for number in range(known, known + 5):
        for script, more in (("pre", []), ("post", ["1", f"{number}.0"])):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "condor_advice.dag.scripts", script]
            subprocess.run([*command, str(plan.directory), f"trial-{number}", *more], check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent[script].append(
                after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            )
    for script, seconds in spent.items():
        tell(script, known_trials=known, cpu_seconds_median=sorted(seconds)[2], most=max(seconds))


def overhead(pool: Pool, root: Path, trials: int) -> None:
    """Run equal trials and measure how much of the slots' time they get."""
    plan = make(root, "equal", trials)
    submit(pool, plan)
    wait(pool, plan)
    runs = [run for number in range(trials) for run in run_times(plan, number)]
    own = sum(end - start for start, end in runs)
    wall = max(end for _, end in runs) - first_submit(plan, trials)
    tell(
        "overhead",
        trials=trials,
        slots=SLOTS,
        wall_seconds=wall,
        trial_seconds=own / trials,
        perfect_seconds=own / SLOTS,
        overhead_seconds_per_trial=(wall * SLOTS - own) / trials,
        # Check, preprocessing, evaluation, the candidate's training and FINAL: once per sweep.
        rest_of_workflow_seconds=duration(plan) - wall,
    )


def show(pool: Pool, root: Path) -> None:
    """Run a Bayesian search with hyperband; evict the first trial while it trains."""
    plan = make(
        root,
        "show",
        12,
        method="bayes",
        parameters=_searched() | {"max_steps": {"values": [32, 64]}},
        early_terminate={"type": "hyperband", "min_iter": 3, "eta": 2},
        condor_advice={
            "data": [{"recording": "pool_a"}, {"recording": "pool_b"}],
            "tracking": "offline",
            "resources": SWEEP["condor_advice"]["resources"]
            | {"max_running": 3, "checkpoint_seconds": 5},
        },
    )
    began = time.monotonic()
    submit(pool, plan)
    evicted = evict(pool, plan, 0)
    status = wait(pool, plan)
    trials = trials_of(plan)
    states = [trial.state for trial in trials]
    tell(
        "show",
        trials=len(trials),
        slots=SLOTS,
        seconds=time.monotonic() - began,
        exit_status=status["exit_status"],
        finished=states.count(TrialState.FINISHED),
        stopped_early=states.count(TrialState.STOPPED),
        failed=states.count(TrialState.FAILED),
        epochs=sum(trial.epoch for trial in trials),
        epochs_without_hyperband=sum(int(trial.parameters["epochs"]) for trial in trials),
        evicted_job=evicted,
        evictions=events(plan, 0).count("004"),
        best=status["best"],
        model=status["model"],
        figures=json.loads(plan.evaluation.read_text()),
    )
    twin(plan)


def twin(plan: SweepPlan) -> None:
    """Train the evicted trial again without interruption, and compare every figure."""
    from condor_advice.dag.episodes import load_split
    from condor_advice.dag.nodes import settings_of
    from condor_advice.model.held import lstm_training

    trial = trials_of(plan)[0]
    task = json.loads((plan.trial_directory(0) / "in" / "task.json").read_text())
    data = load_split(plan.prepared_file(plan.prepared_for(trial.parameters)))
    from dataclasses import replace

    trained = lstm_training.train(
        data["train"],
        data["validation"],
        replace(settings_of(task), epochs=trial.epoch),
    )
    same = {epoch.epoch: epoch.metrics() for epoch in trained.history} == trial.epochs
    tell("twin", trial=0, runs=trial.runs, epochs=trial.epoch, equal_bit_for_bit=same)


def bundle(pool: Pool, root: Path) -> None:
    """Run a sweep on execution points that use only the bundle's Python and packages."""
    began = time.monotonic()
    resources = SWEEP["condor_advice"]["resources"] | {"disk_mb": 4000}
    plan = make(root, "bundled", 2, condor_advice={"environment": "bundle", "resources": resources})
    planned = time.monotonic() - began
    submit(pool, plan)
    status = wait(pool, plan)
    size = (plan.directory / "bundle.tar.gz").stat().st_size
    check = json.loads((plan.directory / "check" / "out" / "check.json").read_text())
    tell(
        "bundle",
        megabytes=size / 1e6,
        plan_seconds=planned,
        seconds=time.monotonic() - began,
        exit_status=status["exit_status"],
        check=check,
    )


# ---- helpers --------------------------------------------------------------------------------


def advice(pool: Pool, *arguments: str) -> str:
    """Run `condor-advice` against the pool."""
    return pool.run([sys.executable, "-m", "condor_advice", *arguments]).stdout


def submit(pool: Pool, plan: SweepPlan) -> None:
    """Submit a sweep."""
    advice(pool, "sweep", "submit", str(plan.directory))


def wait(pool: Pool, plan: SweepPlan, seconds: float = 3000) -> dict[str, Any]:
    """Wait until a sweep ends; return its status."""
    deadline = time.monotonic() + seconds
    while not (plan.directory / "sweep.dag.metrics").exists():
        if time.monotonic() > deadline:
            raise TimeoutError((plan.directory / "logs" / "scripts.log").read_text())
        time.sleep(0.5)
    time.sleep(2)
    status: dict[str, Any] = json.loads(
        advice(pool, "sweep", "status", str(plan.directory), "--json")
    )
    return status


def evict(pool: Pool, plan: SweepPlan, number: int) -> str | None:
    """Vacate a trial's job after its first checkpoint."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        # Two transfer events at the start; two more mean a checkpoint.
        if events(plan, number).count("040") >= 4:
            text = (plan.trial_directory(number) / "node.log").read_text()
            job = re.findall(r"^001 \(0*(\d+)\.", text, re.MULTILINE)[-1]
            pool.run(["condor_vacate_job", f"{job}.0"], check=False)
            return str(job)
        time.sleep(0.3)
    return None


def trials_of(plan: SweepPlan) -> list[Trial]:
    """Read the trials."""
    with SweepState(plan.directory) as state:
        return state.trials()


def node_log(plan: SweepPlan, number: int) -> str:
    """Read a trial's job event log."""
    path = plan.trial_directory(number) / "node.log"
    return path.read_text() if path.exists() else ""


def events(plan: SweepPlan, number: int) -> list[str]:
    """Return the numbers of a trial's events."""
    return re.findall(r"^(\d{3}) \(", node_log(plan, number), re.MULTILINE)


def times(plan: SweepPlan, number: int, kind: str) -> list[float]:
    """Return the times of a trial's events of one kind."""
    moments = re.findall(rf"^{kind} \([\d.]+\) (\S+ \S+)", node_log(plan, number), re.MULTILINE)
    return [datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() for text in moments]


def run_times(plan: SweepPlan, number: int) -> list[tuple[float, float]]:
    """Return the start and end of each run of a trial."""
    return list(zip(times(plan, number, "001"), times(plan, number, "005"), strict=True))


def duration(plan: SweepPlan) -> float:
    """Return how long DAGMan ran."""
    return float(json.loads((plan.directory / "sweep.dag.metrics").read_text())["duration"])


def first_submit(plan: SweepPlan, trials: int) -> float:
    """Return when the first trial was submitted."""
    return min(times(plan, number, "000")[0] for number in range(trials))


if __name__ == "__main__":
    main()
