"""Turn a job id into an Advice, and show it on the command line.

Other code uses the names below. Each is imported at its first use, so that the command line
starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from condor_advice.advise.advice import Advice as Advice
    from condor_advice.advise.answer import advise_on as advise_on
    from condor_advice.advise.because import Because as Because
    from condor_advice.gather.errors import AdviceError as AdviceError
    from condor_advice.gather.errors import NoSuchJob as NoSuchJob
    from condor_advice.gather.errors import Unreachable as Unreachable
    from condor_advice.gather.errors import UsageError as UsageError
    from condor_advice.model.held.rules import Verdict as Verdict

_MODULES = {
    "Advice": "condor_advice.advise.advice",
    "AdviceError": "condor_advice.gather.errors",
    "Because": "condor_advice.advise.because",
    "NoSuchJob": "condor_advice.gather.errors",
    "Unreachable": "condor_advice.gather.errors",
    "UsageError": "condor_advice.gather.errors",
    "Verdict": "condor_advice.model.held.rules",
    "advise_on": "condor_advice.advise.answer",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
