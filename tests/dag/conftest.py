"""Fixtures of the sweep tests: small sweep files and planned sweeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sweeps_for_tests import SMALL

from condor_advice.dag.create import plan_sweep
from condor_advice.dag.plan import SweepPlan


@pytest.fixture
def sweep_file(tmp_path: Path) -> Callable[..., Path]:
    """Write the small sweep with changes: top-level keys, or `section` for ours."""

    def write(section: dict[str, Any] | None = None, **changes: Any) -> Path:
        import yaml

        content = SMALL | changes
        content["condor_advice"] = SMALL["condor_advice"] | (section or {})
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return write


@pytest.fixture
def planned(tmp_path: Path, sweep_file: Callable[..., Path]) -> Callable[..., SweepPlan]:
    """A planned sweep in `tmp_path/sweep`."""
    from condor_advice.advise.commands.sweep import recordings

    def make(trials: int = 2, **changes: Any) -> SweepPlan:
        return plan_sweep(sweep_file(**changes), tmp_path / "sweep", trials, recordings())

    return make
