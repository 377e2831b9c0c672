"""Train, calibrate, explain and register models.

Rooms: `held` (release a held job or not), `failure` (will a job fail), `registry` (versions of
models for held jobs), `infer` (evaluation with NumPy). Each lists the names other rooms may use.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, which imports the module of a listed name on first use.

    Giving advice loads one model and must not import training, evaluation or the registry.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get
