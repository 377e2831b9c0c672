"""The status of a sweep, from its state, DAGMan's files and the queue."""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from condor_advice.dag.condor import access_point
from condor_advice.dag.plan import DAG_FILE, STATUS_FILE, SweepPlan, trial_name
from condor_advice.dag.scripts import best_trials
from condor_advice.dag.state import SweepState, Trial, TrialState
from condor_advice.gather.errors import AdviceError, Unreachable
from condor_advice.gather.events import JobStatus

_NODE = re.compile(
    r'Node = "([^"]+)";\s*NodeStatus = (\d+);.*?StatusDetails = "([^"]*)"', re.DOTALL
)
_FAILED = 6  # NodeStatus of a node that failed
_QUEUE = {
    JobStatus.IDLE: "idle",
    JobStatus.RUNNING: "running",
    JobStatus.HELD: "held",
    JobStatus.TRANSFERRING_OUTPUT: "running",
    JobStatus.SUSPENDED: "idle",
}


@dataclass(frozen=True)
class Best:
    """The best trial so far."""

    trial: int
    value: float
    epoch: int
    state: str
    parameters: Mapping[str, Any]
    model: str | None  # path of its network


@dataclass(frozen=True)
class Status:
    """The status of a sweep at one moment."""

    name: str
    directory: str
    state: str  # planned, running, finished, failed, cancelled, or interrupted
    cluster: int | None
    exit_status: int | None
    metric: str
    goal: str
    trials: Mapping[str, int]  # by TrialState, and trials' jobs by their status in the queue
    total: int
    over: int
    held: Sequence[Mapping[str, Any]]
    failed_nodes: Sequence[Mapping[str, str]]
    failed_trials: Sequence[Mapping[str, Any]]
    best: Best | None
    seconds_left: float | None
    model: str | None = None  # its name in the registry
    notes: Sequence[str] = field(default_factory=tuple)

    def as_dict(self) -> dict[str, Any]:
        """Return the status for JSON."""
        return asdict(self)


def look(directory: Path) -> Status:
    """Return a sweep's status; without a schedd, what its files say."""
    plan = SweepPlan.load(directory.absolute())
    with SweepState(plan.directory) as state:
        trials = state.trials()
        cluster = state.noted("cluster")
        cancelled = state.noted("cancelled", False)
        model = state.noted("model")
    notes = []
    queue: list[Mapping[str, Any]] | None = None
    if cluster is not None:
        try:
            queue = _queue(cluster)
        except Unreachable as error:
            notes.append(str(error).split(";")[0])
    metrics = _metrics(plan)
    alive = queue is not None and any(job["ClusterId"] == cluster for job in queue)
    exit_status = None if alive or not metrics else int(metrics.get("exitcode", 1))
    failed = _failed_nodes(plan)
    counts = Counter(str(trial.state) for trial in trials)
    for job in queue or []:
        node = str(job.get("DAGNodeName") or "")
        if node.startswith("trial-"):
            counts[_QUEUE.get(job["JobStatus"], "running") + "_jobs"] += 1
    return Status(
        plan.name,
        str(plan.directory),
        _word(cluster, queue is None, alive, cancelled, exit_status),
        cluster,
        exit_status,
        plan.metric.name,
        plan.metric.goal,
        {str(state): counts[str(state)] for state in TrialState}
        | {f"{word}_jobs": counts[f"{word}_jobs"] for word in ("idle", "running", "held")},
        plan.trials,
        sum(trial.state.is_over for trial in trials),
        [_held(job) for job in queue or [] if job["JobStatus"] == JobStatus.HELD],
        failed,
        [
            {"trial": trial.number, "reason": trial.reason}
            for trial in trials
            if trial.state is TrialState.FAILED
        ],
        best_of(plan, trials),
        _seconds_left(plan, trials) if alive else None,
        model,
        notes,
    )


def best_of(plan: SweepPlan, trials: list[Trial]) -> Best | None:
    """Return the best trial so far, unfinished ones included."""
    ranked = best_trials(plan, trials, also_paused=True)
    if not ranked:
        return None
    trial = ranked[0]
    losses = trial.losses(plan.metric)
    epoch = min(losses, key=lambda e: (losses[e] if math.isfinite(losses[e]) else math.inf, e))
    model = plan.trial_directory(trial.number) / "out" / "model.npz"
    return Best(
        trial.number,
        plan.metric.loss(losses[epoch]),
        epoch,
        str(trial.state),
        dict(trial.parameters),
        str(model) if model.exists() else None,
    )


def _queue(cluster: int) -> list[Mapping[str, Any]]:
    attributes = ("JobStatus", "DAGNodeName", "HoldReason", "HoldReasonCode", "HoldReasonSubCode")
    constraint = f"ClusterId == {cluster} || DAGManJobId == {cluster}"
    return [live.ad for live in access_point().select(constraint, attributes)]


def _held(job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "job": f"{job['ClusterId']}.{job['ProcId']}",
        "node": job.get("DAGNodeName") or "DAGMan",
        "code": job.get("HoldReasonCode"),
        "subcode": job.get("HoldReasonSubCode"),
        "reason": job.get("HoldReason"),
    }


def _metrics(plan: SweepPlan) -> dict[str, Any]:
    try:
        metrics: dict[str, Any] = json.loads((plan.directory / f"{DAG_FILE}.metrics").read_text())
        return metrics
    except (OSError, ValueError):
        return {}


def _failed_nodes(plan: SweepPlan) -> list[dict[str, str]]:
    """Return the failed nodes, each with its last line on stderr."""
    try:
        text = (plan.directory / STATUS_FILE).read_text(errors="replace")
    except OSError:
        return []
    failed = []
    for name, status, details in _NODE.findall(text):
        if int(status) == _FAILED:
            failed.append({"node": name, "reason": last_words(plan, name) or details})
    return failed


def last_words(plan: SweepPlan, node: str) -> str:
    """Return the last line that a node's job wrote to stderr."""
    kind, _, number = node.partition("-")
    places = {"check": "check", "evaluate": "evaluate"}
    if kind == "trial":
        place = plan.trial_directory(int(number))
    elif kind in places:
        place = plan.directory / places[kind]
    elif kind == "final":
        return _last_line(plan.directory / "logs" / "final.err")
    else:
        keys = [
            f"{key}-{shard}" if kind == "prepare" else key
            for key in plan.prepared
            for shard in (range(len(plan.sources)) if kind == "prepare" else (0,))
        ]
        place = plan.directory / "prepared" / keys[int(number)]
    return _last_line(place / "node.err")


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _word(
    cluster: int | None, unknown: bool, alive: bool, cancelled: bool, exit_status: int | None
) -> str:
    if cluster is None:
        return "planned"
    if alive:
        return "running"
    if exit_status is None:
        return "unknown" if unknown else "cancelled" if cancelled else "interrupted"
    if exit_status == 0:
        return "finished"
    return "cancelled" if cancelled else "failed"


def _seconds_left(plan: SweepPlan, trials: list[Trial]) -> float | None:
    """Return the seconds left at the rate so far, or None if it is too early to tell."""
    over = [trial for trial in trials if trial.state.is_over and trial.asked]
    if len(over) < 2:
        return None
    began = min(trial.asked for trial in over if trial.asked)
    rate = len(over) / max(time.time() - began, 1.0)
    return (plan.trials - sum(trial.state.is_over for trial in trials)) / rate


def learning_curve(plan: SweepPlan, number: int) -> list[dict[str, float]]:
    """Return a trial's figures by epoch."""
    with SweepState(plan.directory) as state:
        trial = state.trial(number)
    return [{"epoch": epoch, **metrics} for epoch, metrics in sorted(trial.epochs.items())]


def describe(trial: Trial) -> str:
    """Describe a trial in one line."""
    text = f"{trial_name(trial.number)} {trial.state}"
    return f"{text}: {trial.reason}" if trial.reason else text


def require_result(plan: SweepPlan) -> Best:
    """Return the best trial, or raise an error that says why there is none yet."""
    with SweepState(plan.directory) as state:
        trials = state.trials()
    best = best_of(plan, trials)
    if best is None:
        bad = [describe(t) for t in trials if t.state is TrialState.FAILED]
        why = f"; {bad[0]}" if bad else ""
        raise AdviceError(
            f"{plan.directory}: no trial has a result yet{why}; see "
            f"`condor-advice sweep status {plan.directory}`"
        )
    return best
