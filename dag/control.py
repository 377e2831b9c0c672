"""Start, resume and cancel a sweep."""

from __future__ import annotations

from pathlib import Path

from condor_advice.dag.condor import schedd, submit_dag
from condor_advice.dag.plan import DAG_FILE, Plan
from condor_advice.dag.state import SweepState


def submit(directory: Path) -> int:
    """Submit a sweep's DAG; the cluster of its DAGMan job."""
    plan = Plan.load(directory.absolute())
    schedd()
    with SweepState(plan.directory) as state:
        cluster = submit_dag(plan.directory / DAG_FILE)
        state.note("cluster", cluster)
    return cluster
