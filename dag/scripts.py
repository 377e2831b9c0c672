"""The scripts that DAGMan runs on the access point around each node.

    python -m condor_advice.dag.scripts pre|post|hold|final DIR NODE ...

DAGMan starts them at least once for each trial, so they import little. They answer DAGMan with
exit statuses; see the constants. They write to logs/scripts.log in the sweep directory, because
DAGMan discards the output of scripts.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from condor_advice.dag.plan import SweepPlan, trial_name, trial_number
from condor_advice.dag.search import next_band, propose, propose_by_wandb, should_stop
from condor_advice.dag.state import SweepState, Trial, TrialState
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.files import private_files, replace_file

DONE = 0
AGAIN = 1  # RETRY: run the node again, after a failure or for the next band of hyperband
GIVE_UP = 2  # RETRY ... UNLESS-EXIT: the sweep itself is broken
SKIP = 3  # PRE_SKIP: the node is done without a job
EXIT_HOPELESS = 10  # a node's job exits with this when another run would fail the same way
CHECKPOINT = 85  # a job exits with this after a checkpoint, to be started again
RELEASES = 2  # releases of a held job before its node is retried instead


def main() -> None:
    """Run one script, and log whatever goes wrong."""
    name, directory, *arguments = sys.argv[1:]
    plan = SweepPlan.load(Path(directory))
    scripts: dict[str, Callable[..., int]] = {
        "pre": pre,
        "post": post,
        "prepare-evaluation": prepare_evaluation,
        "hold": on_hold,
        "final": final,
    }
    try:
        with private_files():
            status = scripts[name](plan, *arguments)
    except AdviceError as error:
        log(plan, f"{name} {' '.join(arguments)}: {error}")
        status = GIVE_UP
    except Exception:
        log(plan, f"{name} {' '.join(arguments)}: {traceback.format_exc()}")
        raise
    sys.exit(status)


def log(plan: SweepPlan, text: str) -> None:
    """Append a line to the log; several scripts may do so at once."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = f"{stamp} {text}\n".encode()
    handle = os.open(
        plan.directory / "logs" / "scripts.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
    )
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


# ---- before a trial -------------------------------------------------------------------------


def pre(plan: SweepPlan, node: str) -> int:
    """Choose a trial's parameters and write its job's input files."""
    number = trial_number(node)
    with SweepState(plan.directory) as state:
        # A killed POST script may have left a result that is not recorded yet.
        if (told := take_result(plan, state, number)) is not None and told.state.is_over:
            log(plan, f"{node}: already {told.state}")
            return SKIP
        trial = state.ask(number, lambda trials: choose(plan, trials, number))
        sweep = state.noted("wandb_sweep")
    if trial.state.is_over:
        log(plan, f"{node}: {trial.state}: {trial.reason}")
        return SKIP
    lay_out(plan, trial, sweep)
    log(plan, f"{node}: {json.dumps(dict(trial.parameters))}, from epoch {trial.epoch}")
    return DONE


def choose(plan: SweepPlan, trials: list[Trial], number: int) -> Mapping[str, Any] | None:
    """Ask the search; return None once the target is reached or the grid is used up."""
    metric = plan.metric
    values = (trial.best(metric) for trial in trials if trial.state.is_over)
    if any(value is not None and metric.reached(value) for value in values):
        return None
    known = [trial.known(metric) for trial in trials]
    if plan.engine == "wandb":
        return propose_by_wandb(plan.config, metric, known, number, plan.search_seed)
    return propose(plan.method, plan.parameters, known, number, plan.search_seed)


def lay_out(plan: SweepPlan, trial: Trial, wandb_sweep: str | None = None) -> None:
    """Fill the directory that is transferred with the trial's job."""
    directory = plan.trial_directory(trial.number)
    inputs = directory / "in"
    inputs.mkdir(parents=True, exist_ok=True)
    (directory / "out" / "result.json").unlink(missing_ok=True)
    task = task_of(plan, trial) | {"wandb_sweep": wandb_sweep}
    replace_file(inputs / "task.json", json.dumps(task))
    data = plan.prepared_file(plan.prepared_for(trial.parameters))
    link(data, inputs / "data.npz")
    # The state of the last run; without it the job starts from the first epoch.
    last_state = directory / "out" / "state"
    shutil.rmtree(inputs / "resume", ignore_errors=True)
    if trial.epoch and last_state.is_dir():
        shutil.copytree(last_state, inputs / "resume")


def task_of(plan: SweepPlan, trial: Trial) -> dict[str, Any]:
    """Return the task that a trial's node reads."""
    epochs = int(trial.parameters["epochs"])
    return {
        "trial": trial.number,
        "parameters": dict(trial.parameters),
        "run": trial.runs,
        "until": next_band(plan.hyperband, trial.epoch, epochs),
        "epochs": epochs,
        "seeds": list(plan.seeds),
        "metric": plan.metric.name,
        "goal": plan.metric.goal,
        "checkpoint_seconds": plan.resources.checkpoint_seconds,
        "threads": plan.resources.cpus,
        "tracking": plan.tracking,
        "sweep": plan.name,
        "identity": plan.run_identity(trial.number),
        "texts": dict(plan.texts),
    }


def link(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it where the file system has no hard links."""
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        os.link(source, part)
    except OSError:
        shutil.copyfile(source, part)
    os.replace(part, target)


# ---- after a trial --------------------------------------------------------------------------


def post(plan: SweepPlan, node: str, returned: str, job: str) -> int:
    """Record the result of a trial's job, and decide whether the node runs again."""
    number = trial_number(node)
    with SweepState(plan.directory) as state:
        trial = take_result(plan, state, number) if returned == "0" else None
        if trial is None:
            hopeless = returned == str(EXIT_HOPELESS)
            reason = failure_reason(plan, number, returned)
            allowed = None if hopeless else plan.resources.retries
            trial = state.tell_failure(number, job, reason, allowed)
    log(plan, f"{node}: job {job} returned {returned}: {trial.state} {trial.reason}".rstrip())
    # A trial that failed for good counts as done: the search avoids its parameters, and the next
    # trial in its lane runs. The FINAL node's script gives the workflow its exit status.
    return DONE if trial.state.is_over else AGAIN


def take_result(plan: SweepPlan, state: SweepState, number: int) -> Trial | None:
    """Record the result of a trial's last job; return None if it left none."""
    directory = plan.trial_directory(number)
    try:
        result = json.loads((directory / "out" / "result.json").read_text())
        task = json.loads((directory / "in" / "task.json").read_text())
        lines = (directory / "out" / "history.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return None
    if result.get("trial") != number or result.get("run") != task["run"]:
        return None  # from an earlier run
    epochs = {row["epoch"]: row["metrics"] for row in rows}

    def decide(trials: list[Trial], trial: Trial) -> tuple[TrialState, str]:
        if trial.epoch >= result["epochs"] or result.get("ended"):
            return TrialState.FINISHED, str(result.get("ended") or "")
        if plan.hyperband is not None:
            known = [other.known(plan.metric) for other in trials if other.epochs]
            reason = should_stop(plan.hyperband, known, number)
            if reason is not None:
                return TrialState.STOPPED, reason
        return TrialState.PAUSED, f"continues after epoch {trial.epoch}"

    return state.tell(number, epochs, decide)


def failure_reason(plan: SweepPlan, number: int, returned: str) -> str:
    """Return why a job failed, with the last line of its stderr if there is one."""
    try:
        error = (plan.trial_directory(number) / "node.err").read_text(errors="replace")
    except OSError:
        error = ""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    meaning = {
        "-1001": "the job could not be submitted",
        "-1002": "the job was removed",
        "-1003": "the job was removed",
        "-1004": "its PRE script failed",
    }
    cause = meaning.get(returned)
    if cause is None:
        status = int(returned)
        cause = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    return f"{cause}: {lines[-1]}" if lines and returned not in meaning else cause


# ---- held -----------------------------------------------------------------------------------


def on_hold(plan: SweepPlan, node: str, job: str) -> int:
    """Release a node's held job if our own advice says so; otherwise remove it for a retry.

    A hold never blocks the DAG: the job's periodic_remove removes it after `hold_minutes`, and
    DAGMan retries the node.
    """
    from condor_advice.dag.condor import access_point, advice_on
    from condor_advice.gather.live import HeldSince

    schedd = access_point()
    cluster, _, proc = job.partition(".")
    held = schedd.held_jobs([(int(cluster), int(proc or 0))])
    if not held:
        return DONE
    [live] = held
    hold = HeldSince(live.job.cluster, live.job.proc, int(live.ad["EnteredCurrentStatus"]))
    advice = advice_on(job)
    verdict = advice.get("verdict") if advice else None
    code, subcode = live.ad.get("HoldReasonCode", 0), live.ad.get("HoldReasonSubCode", 0)
    why = f"{code}/{subcode} {live.ad.get('HoldReason', '')}"
    with SweepState(plan.directory) as state:
        # Count our own releases, because NumHolds counts some holds several times.
        released = int(state.noted(f"released-{job}", 0))
        if verdict == "RELEASE" and released < RELEASES:
            state.note(f"released-{job}", released + 1)
    if verdict == "RELEASE" and released < RELEASES:
        schedd.release([hold], f"sweep {plan.name}: condor-advice says RELEASE")
        action = "released"
    elif verdict in ("RELEASE", "FIX", "REMOVE"):
        reason = f"sweep {plan.name}: condor-advice says {verdict}; DAGMan retries the node"
        schedd.remove([hold], reason)
        action = "removed"
    else:
        action = f"left held; to be removed after {plan.resources.hold_minutes} min"
    log(plan, f"{node}: job {job} held ({why}); advice {verdict}: {action}")
    return DONE


# ---- evaluation ------------------------------------------------------------------------------


def prepare_evaluation(plan: SweepPlan, node: str) -> int:
    """Write the inputs of the node that evaluates the best trials on the test split."""
    with SweepState(plan.directory) as state:
        trials = state.trials()
    shutil.rmtree(plan.directory / "evaluate" / "out", ignore_errors=True)
    lay_out_evaluation(plan, trials)
    return DONE


def lay_out_evaluation(plan: SweepPlan, trials: list[Trial]) -> Path:
    """Fill the directory from which the best trials are evaluated."""
    best = best_trials(plan, trials)[: plan.candidates]
    if not best:
        raise AdviceError(f"{plan.directory}: no trial has a result to evaluate")
    inputs = plan.directory / "evaluate" / "in"
    candidates = []
    for trial in best:
        model = plan.trial_directory(trial.number) / "out" / "model.npz"
        link(model, inputs / f"{trial_name(trial.number)}.npz")
        key = plan.prepared_for(trial.parameters)
        link(plan.prepared_file(key), inputs / f"{key}.npz")
        candidates.append({"trial": trial.number, "data": f"{key}.npz"})
    replace_file(inputs / "candidates.json", json.dumps(candidates))
    replace_file(inputs / "winner.json", json.dumps(_winner(plan, trials, inputs)))
    return inputs


def _winner(plan: SweepPlan, trials: list[Trial], inputs: Path) -> dict[str, Any] | None:
    """Return what training the best trial's model needs, or None if no trial can serve."""
    from condor_advice.dag.candidate import can_serve, lineage

    ranked = [trial for trial in best_trials(plan, trials) if can_serve(trial)]
    if not ranked:
        return None
    key = plan.prepared_for(ranked[0].parameters)
    link(plan.prepared_file(key), inputs / f"{key}.npz")
    return {
        "data": f"{key}.npz",
        "task": task_of(plan, ranked[0]),
        "lineage": lineage(plan, ranked[0]),
    }


def best_trials(plan: SweepPlan, trials: list[Trial], *, also_paused: bool = False) -> list[Trial]:
    """Return the trials that have a result, best first; unfinished ones only with `also_paused`."""
    wanted = {TrialState.FINISHED, TrialState.STOPPED}
    if also_paused:
        wanted |= {TrialState.PAUSED, TrialState.RUNNING}
    ranked = [
        (plan.metric.loss(value), trial.number, trial)
        for trial in trials
        if (value := trial.best(plan.metric)) is not None and trial.state in wanted
    ]
    return [trial for _, _, trial in sorted(ranked, key=lambda entry: entry[:2])]


# ---- the end --------------------------------------------------------------------------------


def final(plan: SweepPlan, node: str, returned: str, dag_status: str, failed: str) -> int:
    """Give the workflow its exit status; a successful FINAL node would hide failures."""
    with SweepState(plan.directory) as state:
        trials = state.trials()
    lost = [t for t in trials if not t.state.is_over]
    bad = [t for t in trials if t.state is TrialState.FAILED]
    good = returned == "0" and dag_status == "0" and failed == "0" and not lost and not bad
    log(
        plan,
        f"{node}: DAG status {dag_status}, {failed} nodes failed; trials failed: "
        f"{[trial_name(t.number) for t in bad]}, not over: {[trial_name(t.number) for t in lost]}",
    )
    return DONE if good else AGAIN


if __name__ == "__main__":
    main()
