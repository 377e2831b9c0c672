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


def load_scenarios(kind: str = "") -> dict[str, Scenario]:
    """Return all scenarios of a kind of pool by name, in alphabetical order.

    Without a kind they are those of this folder.
    """
    package = importlib.import_module(f"condor_advice.lab.kinds.{kind}" if kind else __name__)
    scenarios = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        scenarios[info.name] = Scenario(
            info.name, module.FAMILY, module.WEIGHT, (module.__doc__ or "").strip(), module.set_up
        )
    return scenarios
