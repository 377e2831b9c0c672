"""One file per scenario: what goes wrong with a batch, why, and when it ends.

A scenario is a module with a docstring, `FAMILY`, `WEIGHT` (how often it is chosen; 1.0 is
usual) and `set_up(batch, world) -> Cause`, which changes one thing about a healthy batch.
`load_scenarios` loads every file in this folder.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from condor_advice.lab.world import Cause, JobBatch, LabWorld


@dataclass(frozen=True, slots=True)
class Scenario:
    """The contents of a scenario module."""

    name: str
    family: str
    weight: float
    about: str
    set_up: Callable[[JobBatch, LabWorld], Cause]


def load_scenarios() -> dict[str, Scenario]:
    """Return all scenarios of this folder by name, in alphabetical order."""
    scenarios = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        scenarios[info.name] = Scenario(
            info.name, module.FAMILY, module.WEIGHT, (module.__doc__ or "").strip(), module.set_up
        )
    return scenarios
