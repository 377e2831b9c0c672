"""Release, fix or remove? Advice for held HTCondor jobs.

    from condor_advice import advise_on

    advice = advise_on("1234.7")
    print(advice.verdict.value, advice.p_success, advice.because)

docs/python.md says more. Importing this package loads nothing else; the first use of a name does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from condor_advice.advise import (
        Advice,
        AdviceError,
        Because,
        NoSuchJob,
        Unreachable,
        UsageError,
        Verdict,
        advise_on,
    )

__version__ = "0.2.0"
__all__ = [
    "Advice",
    "AdviceError",
    "Because",
    "NoSuchJob",
    "Unreachable",
    "UsageError",
    "Verdict",
    "__version__",
    "advise_on",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from condor_advice import advise

        return getattr(advise, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
