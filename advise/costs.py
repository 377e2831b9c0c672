"""What a wrong decision about one hold costs, in CPU hours.

The formula is `mistake_costs` in model/held/thresholds.py; training and evaluation use it too.
This module finds its input in the hold's features, or in the live job ad if no episode is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from condor_advice.advise.holds import Hold
from condor_advice.model.held.thresholds import mistake_costs


@dataclass(frozen=True, slots=True)
class Cost:
    """What a failed release and a wrong remove would each waste."""

    failed_release_cpu_hours: float
    wrong_remove_cpu_hours: float
    threshold: float  # the chance of success from which a release is the cheaper choice
    known: bool = True  # False: it is unknown how long the job ran
    has_run: bool = True


def cost_of(hold: Hold) -> Cost:
    """Compute what a wrong decision about a hold costs, from how long the job has run."""
    cpus = _number(hold.ad.get("RequestCpus")) or hold.feature("job_cpus_request") or 1.0
    longest, total = hold.feature("job_run_longest"), hold.feature("job_run_total")
    known = True
    if hold.episode is None:
        total = _number(hold.ad.get("RemoteWallClockTime"))
        starts = _number(hold.ad.get("NumJobStarts")) or 0.0
        longest = total / max(starts, 1.0) if total is not None else None
        known = total is not None
    costs = mistake_costs(longest or 0.0, total or 0.0, cpus)
    return Cost(
        float(costs.failed_release),
        float(costs.wrong_remove),
        float(costs.thresholds()),
        known,
        has_run=bool(longest or total),
    )


def _number(value: object) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if usable else None  # type: ignore[arg-type]
