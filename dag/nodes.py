"""What the nodes of a sweep run on an execution point.

    python -m condor_advice.dag.nodes check|prepare|merge|trial|evaluate ...

A node reads the files that HTCondor transferred to its directory and writes its results to
`out/`. It needs no network. It exits with EXIT_HOPELESS when another run would fail the same way.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import platform
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from condor_advice.dag.scripts import CHECKPOINT, EXIT_HOPELESS
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.files import replace_file

if TYPE_CHECKING:
    from condor_advice.model.held.data import HeldData
    from condor_advice.model.held.lstm_training import LstmSettings, TrainedLstm

OUT = Path("out")
METRICS = ("validation_loss", "validation_roc_auc", "train_loss")
# The sweep sets these for every trial.
_NOT_SEARCHED = ("seed", "threads", "max_steps", "keep")


def trial_parameters() -> dict[str, Any]:
    """Return every parameter that a trial understands, with its default."""
    from condor_advice.dag.plan import PREPROCESSING
    from condor_advice.model.held.lstm_training import LstmSettings

    defaults = LstmSettings()
    network = {setting.name: getattr(defaults, setting.name) for setting in fields(LstmSettings)}
    return {k: v for k, v in network.items() if k not in _NOT_SEARCHED} | PREPROCESSING


def main() -> None:
    """Run one node; on failure, say why on the last line of stderr."""
    node, *arguments = sys.argv[1:]
    nodes: dict[str, Callable[..., None]] = {
        "check": check,
        "prepare": prepare,
        "merge": merge,
        "trial": trial,
        "evaluate": evaluate,
    }
    try:
        OUT.mkdir(exist_ok=True)
        nodes[node](*arguments)
    except AdviceError as error:
        print(f"condor-advice: {platform.node()}: {error}", file=sys.stderr)
        sys.exit(EXIT_HOPELESS)
    except Exception as error:
        traceback.print_exc()
        print(f"condor-advice: {platform.node()}: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)


# ---- check ----------------------------------------------------------------------------------


def check(plan_file: str) -> None:
    """Check everything that later nodes need, so that a sweep fails in seconds, not hours."""
    plan = json.loads(Path(plan_file).read_text())
    wanted = {"numpy", "torch"}
    kinds = {source["kind"] for source in plan["sources"]}
    wanted |= {"pyarrow"} if "export" in kinds else set()
    wanted |= {"zstandard"} if "store" in kinds else set()
    wanted |= {"wandb"} if plan["tracking"] != "off" else set()
    missing, versions = [], {}
    for name in sorted(wanted):
        try:
            module = importlib.import_module(name)
            versions[name] = getattr(module, "__version__", "?")
        except Exception as error:  # a broken library is as bad as a missing one
            missing.append(f"{name} ({error})")
    if missing:
        raise AdviceError(
            f"Python {platform.python_version()} at {sys.executable} lacks {', '.join(missing)}; "
            "install them there, use environment: bundle, or use an image that has them"
        )
    free = shutil.disk_usage(".").free // 2**20
    if free < 100:
        raise AdviceError(f"only {free} MB of disk space is free; raise resources.disk_mb")
    from condor_advice.model.held import lstm_training

    lstm_training.build(lstm_training.LstmSettings(hidden=4))
    report = {"python": platform.python_version(), "machine": platform.node(), "free_mb": free}
    replace_file(OUT / "check.json", json.dumps(report | versions))
    print(f"ready for this sweep: {report | versions}")


# ---- data -----------------------------------------------------------------------------------


def prepare(plan_file: str, shard: str, key: str) -> None:
    """Turn one shard into episodes."""
    from condor_advice.dag.episodes import read_shard

    plan = json.loads(Path(plan_file).read_text())
    data = read_shard(Path(shard), plan["prepared"][key])
    data.save(OUT / f"part-{shard}.npz")
    print(json.dumps(data.summary()))


def merge(plan_file: str, key: str) -> None:
    """Join the shards of one preprocessing and split the episodes."""
    from condor_advice.dag.episodes import merge_shards
    from condor_advice.dag.sweepfile import SplitShares
    from condor_advice.model.held.data import HeldData

    plan = json.loads(Path(plan_file).read_text())
    count = len(plan["sources"])
    shards = [HeldData.load(Path(f"part-{shard}.npz")) for shard in range(count)]
    data, parts = merge_shards(shards, SplitShares(**plan["split"]))
    data.save(OUT / "data.npz", parts)
    summary = data.summary() | {name: len(rows) for name, rows in parts.items()}
    replace_file(OUT / "summary.json", json.dumps(summary | {"data_hash": data.hash()}))
    print(json.dumps(summary))


# ---- trial ----------------------------------------------------------------------------------


def trial() -> None:
    """Train one trial up to the next band, with checkpoints on the way."""
    from condor_advice.dag.episodes import load_split

    began = time.monotonic()
    task = json.loads(Path("task.json").read_text())
    states = OUT / "state"
    if not states.is_dir():
        # After a band, the last job's state is transferred along.
        if Path("resume").is_dir():
            shutil.copytree("resume", states)
        else:
            states.mkdir()
    settings = settings_of(task)
    data = load_split(Path("data.npz"))
    until = int(task["until"])
    done = _epochs_done(states, task["seeds"])
    trained: dict[int, TrainedLstm] = {}
    while not trained or done < until:
        # Train every seed for one epoch, then the next epoch: the result is the mean over seeds.
        done = min(done + 1, until)
        for seed in task["seeds"]:
            of_seed = replace(settings, seed=seed, epochs=done)
            trained[seed] = _train(data, of_seed, states / f"seed-{seed}.pt")
        if min(len(network.history) for network in trained.values()) < done:
            break  # training has stopped improving
        if done < until and time.monotonic() - began >= task["checkpoint_seconds"]:
            print(f"checkpoint after epoch {done}")
            sys.exit(CHECKPOINT)
    _leave_result(task, trained)


def settings_of(task: dict[str, Any]) -> LstmSettings:
    """Return the network's settings for a trial's parameters."""
    from condor_advice.dag.plan import PREPROCESSING
    from condor_advice.model.held.lstm_training import LstmSettings

    parameters = PREPROCESSING | task["parameters"]
    context = parameters["neighbours"] * parameters["neighbour_steps"]
    network = {k: v for k, v in parameters.items() if k not in PREPROCESSING}
    return LstmSettings(
        **network, max_steps=parameters["max_steps"] + context, threads=int(task["threads"])
    )


def _train(data: dict[str, HeldData], settings: LstmSettings, state: Path) -> TrainedLstm:
    from condor_advice.model.held import lstm_training

    def check(report: lstm_training.EpochReport) -> None:
        if not all(math.isfinite(value) for value in report.metrics().values()):
            raise AdviceError(
                f"the loss was not finite after epoch {report.epoch}; training diverges with these "
                "parameters"
            )

    return lstm_training.train(data["train"], data["validation"], settings, state, check)


def _epochs_done(states: Path, seeds: list[int]) -> int:
    """Return how many epochs every seed has done, according to the state files.

    Remove a damaged file: that seed trains again from the start.
    """
    import torch

    counts = []
    for seed in seeds:
        path = states / f"seed-{seed}.pt"
        try:
            counts.append(len(torch.load(path, weights_only=True)["history"]))
        except FileNotFoundError:
            counts.append(0)
        except Exception as error:
            print(f"condor-advice: {path} is damaged ({error}); starting over", file=sys.stderr)
            path.unlink()
            counts.append(0)
    return min(counts)


def _leave_result(task: dict[str, Any], trained: dict[int, TrainedLstm]) -> None:
    import numpy as np

    from condor_advice.model.arrays import save_arrays

    reports = list(zip(*(network.history for network in trained.values()), strict=False))
    rows = []
    for of_seeds in reports:
        figures = [report.metrics() for report in of_seeds]
        mean = {name: float(np.mean([f[name] for f in figures])) for name in figures[0]}
        rows.append({"epoch": of_seeds[0].epoch, "metrics": mean})
    replace_file(OUT / "history.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    # The seed with the best epoch provides the trial's model.
    best = min(trained, key=lambda seed: min(r.validation_loss for r in trained[seed].history))
    save_arrays(OUT / "model.npz", trained[best].network.arrays())
    ended = None
    if len(rows) < int(task["until"]):
        ended = f"no improvement for {trained[best].settings.patience} epochs"
    if task["tracking"] != "off":
        _track(task, rows)
    result = {
        "trial": task["trial"],
        "run": task["run"],
        "epoch": len(rows),
        "epochs": task["epochs"],
        "ended": ended,
        "seed": best,
        "settings": trained[best].settings.as_dict(),
        "machine": platform.node(),
    }
    replace_file(OUT / "result.json", json.dumps(result))


def _track(task: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Write the trial as an offline W&B run; a failure here does not fail the trial."""
    try:
        os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off"}
        # Keep the execution point's own figures, code and metadata private.
        os.environ |= {"WANDB_X_DISABLE_STATS": "true", "WANDB_DISABLE_CODE": "true"}
        os.environ |= {"WANDB_DISABLE_GIT": "true", "WANDB_X_DISABLE_META": "true"}
        identity = task["identity"]
        project = task["texts"].get("project", "condor-advice")
        if task.get("wandb_sweep"):
            # W&B takes these from the environment only, for a run of a sweep.
            os.environ |= {"WANDB_SWEEP_ID": task["wandb_sweep"], "WANDB_RUN_ID": identity}
            os.environ["WANDB_PROJECT"] = project
        for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
            os.environ[name] = str(Path("home").absolute())
        if entity := task["texts"].get("entity"):
            os.environ["WANDB_ENTITY"] = entity
        from condor_advice.model.tracking import WandbTracking

        work = Path("home") / "tracking"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        tracker = WandbTracking(project, identity, work, group=task["sweep"])
        tracker.start(task["parameters"])
        for row in rows:
            tracker.log(row["epoch"], row["metrics"])
        tracker.finish()
        # Keep the run alone: W&B also writes symbolic links, which HTCondor does not transfer.
        shutil.rmtree(OUT / "wandb", ignore_errors=True)
        (OUT / "wandb").mkdir()
        for run in (work / "wandb").glob("offline-run-*"):
            shutil.rmtree(run / "logs", ignore_errors=True)
            shutil.move(run, OUT / "wandb" / run.name)
    except Exception as error:
        print(f"condor-advice: cannot write the W&B run: {error}", file=sys.stderr)


# ---- evaluate -------------------------------------------------------------------------------


def evaluate() -> None:
    """Evaluate the best trials on the test split, and train a model like the best one."""
    from condor_advice.dag.evaluation import evaluate_candidates

    evaluation = evaluate_candidates(Path("candidates.json"), Path())
    replace_file(OUT / "evaluation.json", json.dumps(evaluation))
    print(json.dumps(evaluation))
    if importlib.util.find_spec("xgboost") is None:
        print(
            "xgboost is not installed here; the FINAL node will train the candidate",
            file=sys.stderr,
        )
        return
    from condor_advice.dag.candidate import build_listed

    build_listed(Path(), OUT / "candidate")


if __name__ == "__main__":
    main()
