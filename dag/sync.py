"""Send a sweep to W&B: the sweep itself, and the offline runs of its trials.

The API key stays in the caller's environment. It goes into no file, submit description or job
ad, so execution points never see it; the access point alone sends to W&B.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from condor_advice.dag.plan import SweepPlan, trial_name
from condor_advice.dag.state import SweepState, Trial
from condor_advice.gather.errors import AdviceError, Unreachable

KEY = "WANDB_API_KEY"
PROJECT = "condor-advice"
SYNC_SECONDS = 300


@dataclass
class Synced:
    """What `sync` sent."""

    sweep: str | None = None
    runs: list[int] = field(default_factory=list)
    unchanged: int = 0
    problems: list[str] = field(default_factory=list)


def create_sweep(plan: SweepPlan) -> str | None:
    """Create the sweep at W&B, once; return its id there, or None without a key."""
    if not os.environ.get(KEY):
        return None
    with SweepState(plan.directory) as state:
        if (known := state.noted("wandb_sweep")) is not None:
            return str(known)
        os.environ.setdefault("WANDB_DIR", str(plan.directory / "logs"))  # for its own logs
        wandb = _wandb()
        try:
            with contextlib.redirect_stdout(sys.stderr):  # it prints the sweep's address
                identity = str(
                    wandb.sweep(
                        dict(plan.config),
                        project=plan.texts.get("project", PROJECT),
                        entity=plan.texts.get("entity"),
                    )
                )
        except Exception as error:
            raise Unreachable(
                f"W&B did not accept the sweep ({_without_key(str(error))}); check {KEY} and "
                "WANDB_BASE_URL, or unset the key and send runs later with "
                "`condor-advice sweep sync`"
            ) from error
        state.note("wandb_sweep", identity)
    return identity


def sync(plan: SweepPlan) -> Synced:
    """Send every offline run that is new or has grown since the last time."""
    if not os.environ.get(KEY):
        raise AdviceError(
            f"{KEY} is not set; set it in the environment and try again (no run is lost)"
        )
    _wandb()
    sent = Synced(create_sweep(plan))
    with SweepState(plan.directory) as state:
        for trial in state.trials():
            if not trial.epochs:
                continue
            if state.noted(f"synced-{trial.number}") == trial.epoch:
                sent.unchanged += 1
                continue
            problem = _send(plan, trial)
            if problem is None:
                state.note(f"synced-{trial.number}", trial.epoch)
                sent.runs.append(trial.number)
            else:
                sent.problems.append(f"{trial_name(trial.number)}: {problem}")
    return sent


def follow(
    plan: SweepPlan,
    is_running: Callable[[], bool],
    say: Callable[[str], None],
    every_seconds: float = 30.0,
) -> Synced:
    """Send runs as trials finish, until the sweep is over."""
    total = Synced()
    while True:
        running = is_running()  # asked before sending, so that the last round misses nothing
        sent = sync(plan)
        total.sweep = sent.sweep
        total.runs += sent.runs
        total.problems = sent.problems
        total.unchanged = sent.unchanged
        for number in sent.runs:
            say(f"{trial_name(number)} sent")
        if not running:
            return total
        time.sleep(every_seconds)


def _send(plan: SweepPlan, trial: Trial) -> str | None:
    """Send one trial's offline run; return the problem, if any."""
    directory = plan.trial_directory(trial.number) / "out" / "wandb"
    runs = sorted(directory.glob("offline-run-*")) if directory.is_dir() else []
    if not runs:
        return "no W&B run (tracking was off, or wandb is missing on the execution point)"
    command = [sys.executable, "-m", "wandb", "sync", str(runs[-1])]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SYNC_SECONDS,
            check=False,
            env=os.environ | {"WANDB_SILENT": "false", "WANDB_DIR": str(plan.directory / "logs")},
        )
    except (OSError, subprocess.SubprocessError) as error:
        return _without_key(str(error))
    if done.returncode != 0 or "Finished syncing" not in done.stderr + done.stdout:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        return _without_key(
            lines[-1] if lines else f"wandb sync failed with exit status {done.returncode}"
        )
    return None


def _wandb() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise AdviceError(
            "sending to W&B needs wandb, which is not installed; pip install wandb"
        ) from error
    return wandb


def _without_key(text: str) -> str:
    key = os.environ.get(KEY, "")
    return text.replace(key, "***") if key else text
