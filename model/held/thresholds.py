"""Thresholds for a release: by cost, by F1, by precision.

Two mistakes cost differently. A release that fails wastes one more run. Removing a job that would
have succeeded wastes the work done so far, which has to be done again. `mistake_costs` estimates
both for each job from its own runs, in CPU hours. Training, evaluation and advice all use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Starting a job and transferring its files occupy a slot although nothing runs.
START_CPU_HOURS = 0.01
# Somebody has to notice a removed job and submit it again; it waits in the queue again.
RESUBMIT_CPU_HOURS = 0.02
PRECISION = 0.8


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU hours that each mistake would cost, per episode."""

    failed_release: Floats
    wrong_remove: Floats

    def thresholds(self) -> Floats:
        """Return, per episode, the probability from which releasing is the cheaper choice."""
        cheaper_from: Floats = self.failed_release / (self.failed_release + self.wrong_remove)
        return cheaper_from

    def of(self, released: npt.NDArray[np.bool_], label: Floats) -> Floats:
        """Return the cost of decisions; `label` is the outcome of a release."""
        good = label > 0
        return np.where(
            released & ~good, self.failed_release, np.where(~released & good, self.wrong_remove, 0)
        )


def mistake_costs(
    longest_seconds: npt.ArrayLike, total_seconds: npt.ArrayLike, cpus: npt.ArrayLike
) -> Costs:
    """Estimate the costs of both mistakes from a job's longest run and all its runs together.

    A release that fails is expected to run as long as the longest run so far. A job that has not
    run still costs the slot its start and, if it is removed, a new submission.
    """
    cores = np.maximum(np.asarray(cpus, np.float64), 1.0)
    longest = np.asarray(longest_seconds, np.float64) / 3600.0
    total = np.maximum(np.asarray(total_seconds, np.float64) / 3600.0, longest)
    return Costs(cores * (START_CPU_HOURS + longest), cores * (RESUBMIT_CPU_HOURS + total))


def job_costs(features: npt.NDArray[np.float32], names: Sequence[str]) -> Costs:
    """Estimate the costs of both mistakes from the features of each hold; NaN means no run."""
    where = {name: index for index, name in enumerate(names)}

    def column(name: str, unknown: float) -> Floats:
        values = features[:, where[name]].astype(np.float64)
        return np.where(np.isnan(values), unknown, values)

    return mistake_costs(
        column("job_run_longest", 0.0),
        column("job_run_total", 0.0),
        column("job_cpus_request", 1.0),
    )


def cheapest(p: Floats, label: Floats, costs: Costs) -> float:
    """Return the threshold with the lowest cost over all episodes."""
    candidates = np.unique(np.round(np.r_[0.02, p, 0.98], 3))
    spent = [float(np.sum(costs.of(p >= bound, label))) for bound in candidates]
    return float(candidates[int(np.argmin(spent))])


def choose(p: Floats, label: Floats, costs: Costs) -> dict[str, float]:
    """Return the thresholds by name."""
    # Only training needs these, not advice.
    from condor_advice.model.metrics import threshold_for_f1, threshold_for_precision

    return {
        "cost": cheapest(p, label, costs),
        "f1": threshold_for_f1(label, p),
        "precision": min(threshold_for_precision(label, p, PRECISION), 1.0),
    }
