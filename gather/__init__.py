"""Read event logs, job ads and workload logs, and keep their events in the store.

These are the names that other packages use most. Each module is imported on first use, so that
a command starts without the modules it does not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from condor_advice.gather.clock import Clock, find_zone
    from condor_advice.gather.collect import Collector
    from condor_advice.gather.errors import AdviceError, Unreachable, UsageError
    from condor_advice.gather.events import JobEvent, JobEventType, JobId, JobStatus
    from condor_advice.gather.reader import EventColumns
    from condor_advice.gather.store import Store, default_store_path

__all__ = [
    "AdviceError",
    "Clock",
    "Collector",
    "EventColumns",
    "JobEvent",
    "JobEventType",
    "JobId",
    "JobStatus",
    "Store",
    "Unreachable",
    "UsageError",
    "default_store_path",
    "find_zone",
]

_MODULES = {
    "clock": ("Clock", "find_zone"),
    "collect": ("Collector",),
    "errors": ("AdviceError", "Unreachable", "UsageError"),
    "events": ("JobEvent", "JobEventType", "JobId", "JobStatus"),
    "reader": ("EventColumns",),
    "store": ("Store", "default_store_path"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
