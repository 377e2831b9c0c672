"""What being wrong costs, in CPU hours."""

from __future__ import annotations

from dataclasses import dataclass

from condor_advice.advise.holds import Hold


@dataclass(frozen=True, slots=True)
class Cost:
    """What a failed release and a wrong remove would each throw away."""

    failed_release_cpu_hours: float
    wrong_remove_cpu_hours: float
    known: bool = True  # False: nothing tells how long it ran

    @property
    def threshold(self) -> float:
        """The chance above which a release is expected to cost less than a remove."""
        total = self.failed_release_cpu_hours + self.wrong_remove_cpu_hours
        return self.failed_release_cpu_hours / total if total > 0 else 0.0


def cost_of(hold: Hold) -> Cost:
    """Work out the cost from how long the job has run.

    A release that fails is expected to run as long as its longest run; a wrong remove throws
    away all that ran so far, since it would have to be done again.
    """
    cpus = _number(hold.ad.get("RequestCpus")) or hold.feature("job_cpus_request") or 1.0
    longest, total = hold.feature("job_run_longest"), hold.feature("job_run_total")
    if hold.episode is None:
        total = _number(hold.ad.get("RemoteWallClockTime"))
        starts = _number(hold.ad.get("NumJobStarts")) or 0.0
        longest = total / max(starts, 1.0) if total is not None else None
        if total is None:
            return Cost(0.0, 0.0, known=False)
    return Cost((longest or 0.0) * cpus / 3600, (total or 0.0) * cpus / 3600)


def _number(value: object) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if usable else None  # type: ignore[arg-type]
