"""Start, resume and cancel a sweep."""

from __future__ import annotations

import re
from pathlib import Path

from condor_advice.dag.condor import access_point, submit_dag
from condor_advice.dag.plan import DAG_FILE, SweepPlan, trial_name
from condor_advice.dag.state import SweepState, TrialState
from condor_advice.dag.sync import create_sweep
from condor_advice.gather.errors import UsageError
from condor_advice.gather.files import replace_file
from condor_advice.model.registry.versions import default_models_path

_DONE = re.compile(r"^DONE (\S+)$", re.MULTILINE)
_MOST_RESCUES = 999


def submit(directory: Path) -> int:
    """Submit a sweep's DAG; return the cluster of its DAGMan job."""
    plan = SweepPlan.load(directory.absolute())
    access_point()
    with SweepState(plan.directory) as state:
        if (cluster := state.noted("cluster")) is not None:
            verb = "is running" if is_alive(cluster) else "has run"
            raise UsageError(
                f"{directory}: the sweep {verb} as job {cluster}.0; "
                f"`condor-advice sweep status {directory}` shows it, `sweep resume` continues it"
            )
        create_sweep(plan)
        cluster = submit_dag(plan.directory / DAG_FILE)
        state.note("cluster", cluster)
        # DAGMan's jobs do not see this environment, so save the path for the FINAL node.
        state.note("registry", str(default_models_path()))
    return cluster


def resume(directory: Path) -> tuple[int, int]:
    """Run what is not done; return the DAGMan cluster and how many failed trials run again.

    What DAGMan's last rescue DAG marks as done stays done, except failed trials and the
    evaluation, which may now see better trials.
    """
    plan = SweepPlan.load(directory.absolute())
    access_point()
    with SweepState(plan.directory) as state:
        cluster = state.noted("cluster")
        if cluster is None:
            raise UsageError(
                f"{directory}: the sweep was never submitted; use `condor-advice sweep submit`"
            )
        if is_alive(cluster):
            raise UsageError(f"{directory}: the sweep is running as job {cluster}.0")
        failed = state.reopen((TrialState.FAILED,))
        open_ = {trial_name(t.number) for t in state.trials() if not t.state.is_over}
        if open_:
            plan.evaluation.unlink(missing_ok=True)
        _write_rescue(plan, again=open_ | {"evaluate-0"} if open_ else set())
        (plan.directory / f"{DAG_FILE}.metrics").unlink(missing_ok=True)
        cluster = submit_dag(plan.directory / DAG_FILE)
        state.note("cluster", cluster)
        state.note("cancelled", False)
    return cluster, failed


def cancel(directory: Path) -> int:
    """Remove a sweep's DAGMan job, and so its nodes' jobs; return the removed cluster."""
    plan = SweepPlan.load(directory.absolute())
    access_point()
    with SweepState(plan.directory) as state:
        cluster = state.noted("cluster")
        if cluster is None or not is_alive(cluster):
            raise UsageError(
                f"{directory}: the sweep is not running, so there is nothing to cancel"
            )
        state.note("cancelled", True)
        access_point().remove_cluster(cluster, f"sweep {plan.name} cancelled")
    return int(cluster)


def is_alive(cluster: int) -> bool:
    """Return whether a DAGMan job is in the queue."""
    return bool(access_point().select(f"ClusterId == {cluster}", ()))


def _rescues(plan: SweepPlan) -> list[Path]:
    return sorted(plan.directory.glob(f"{DAG_FILE}.rescue[0-9][0-9][0-9]"))


def _write_rescue(plan: SweepPlan, again: set[str]) -> None:
    """Write the next rescue DAG from the last one and from what is done since."""
    known = _rescues(plan)
    done = set(_DONE.findall(known[-1].read_text())) if known else set()
    done |= _done_by_files(plan)
    with SweepState(plan.directory) as state:
        done |= {trial_name(t.number) for t in state.trials() if t.state.is_over}
    number = int(known[-1].suffix.removeprefix(".rescue")) + 1 if known else 1
    if number > _MOST_RESCUES:
        raise UsageError(
            f"{plan.directory}: DAGMan allows {_MOST_RESCUES} rescue DAGs; plan the sweep again"
        )
    lines = [f"DONE {node}" for node in sorted(done - again)]
    replace_file(plan.directory / f"{DAG_FILE}.rescue{number:03d}", "\n".join(lines) + "\n")


def _done_by_files(plan: SweepPlan) -> set[str]:
    """Return the nodes before the trials whose output exists; a killed DAGMan writes no rescue."""
    done = set()
    if (plan.directory / "check" / "out" / "check.json").exists():
        done.add("check-0")
    shards = len(plan.sources)
    for index, key in enumerate(plan.prepared):
        for shard in range(shards):
            part = plan.directory / "prepared" / f"{key}-{shard}" / "out" / f"part-{shard}.npz"
            if part.exists():
                done.add(f"prepare-{index * shards + shard}")
        if plan.prepared_file(key).exists():
            done.add(f"merge-{index}")
    return done
