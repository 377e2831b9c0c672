"""Where to draw the line between release and not: by cost, by F1, by precision.

Two mistakes cost differently. A release that fails costs the run it wastes. A removal of a job
that would have succeeded costs the work done so far and doing it again. Both are estimated
for each job from its own runs, in CPU hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_advice.model.metrics import threshold_for_f1, threshold_for_precision

Floats = npt.NDArray[np.float64]

# Matching, starting and moving files occupy a slot although nothing runs.
START_CPU_HOURS = 0.01
# A removed job has to be noticed, submitted again, and to wait in the queue again.
RESUBMIT_CPU_HOURS = 0.02
PRECISION = 0.8


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU hours that each mistake would cost, per episode."""

    failed_release: Floats
    wrong_remove: Floats

    def thresholds(self) -> Floats:
        """Return, per episode, the probability from which releasing is the cheaper choice."""
        found: Floats = self.failed_release / (self.failed_release + self.wrong_remove)
        return found

    def of(self, released: npt.NDArray[np.bool_], label: Floats) -> Floats:
        """Return what decisions cost, given what a release would have done."""
        good = label > 0
        return np.where(
            released & ~good, self.failed_release, np.where(~released & good, self.wrong_remove, 0)
        )


def job_costs(features: npt.NDArray[np.float32], names: Sequence[str]) -> Costs:
    """Estimate the costs of both mistakes from the runs that each job has had."""
    where = {name: index for index, name in enumerate(names)}

    def column(name: str, unknown: float) -> Floats:
        values = features[:, where[name]].astype(np.float64)
        return np.where(np.isnan(values), unknown, values)

    cpus = np.maximum(column("job_cpus_request", 1.0), 1.0)
    longest = column("job_run_longest", 0.0) / 3600.0
    total = column("job_run_total", 0.0) / 3600.0
    return Costs(
        cpus * (START_CPU_HOURS + longest), cpus * (RESUBMIT_CPU_HOURS + np.maximum(total, longest))
    )


def cheapest(p: Floats, label: Floats, costs: Costs) -> float:
    """Return the one threshold for all that would have cost least."""
    candidates = np.unique(np.round(np.r_[0.02, p, 0.98], 3))
    spent = [float(np.sum(costs.of(p >= bound, label))) for bound in candidates]
    return float(candidates[int(np.argmin(spent))])


def choose(p: Floats, label: Floats, costs: Costs) -> dict[str, float]:
    """Return the thresholds by name."""
    return {
        "cost": cheapest(p, label, costs),
        "f1": threshold_for_f1(label, p),
        "precision": min(threshold_for_precision(label, p, PRECISION), 1.0),
    }
