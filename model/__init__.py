"""Tensors and features to trained, calibrated, explained and registered models.

Rooms: `held` (release or not), `failure` (will it fail), `registry` (versions of models for
held jobs), `infer` (NumPy evaluation). Each lists the names that other rooms may use.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__` that imports a listed name's module when it is asked for.

    Advice loads one model and should not pay for training, evaluation and the registry.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get
