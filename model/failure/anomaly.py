"""Requests that are unusual for this pool, with the field that makes them so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_advice.model.failure.profiles import REQUEST_FIELDS, Profiles
from condor_advice.preprocess.jobs.horizons import JobDataset

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One unusual job: how rare (share of past jobs that are odder) and by which field."""

    row: int
    rarity: float
    field: str
    value: float
    usual: float
    against: str  # "user and program" or "all jobs"


class AnomalyDetector:
    """Density under the job profiles, and distance from the user's own habit."""

    def __init__(self, profiles: Profiles, reference: Floats) -> None:
        self.profiles = profiles
        self.reference = np.sort(reference)  # log densities of past jobs

    @classmethod
    def fit(
        cls,
        profiles: Profiles,
        data: JobDataset,
        rows: npt.NDArray[np.bool_],
    ) -> AnomalyDetector:
        """Take the densities of past jobs as the measure of what is usual."""
        densities = profiles.log_density(profiles.standardise(data.take(rows)))
        return cls(profiles, np.quantile(densities, np.linspace(0, 1, 1001)))

    def rarity(self, data: JobDataset) -> Floats:
        """Return which share of past jobs was at least as odd as each of these."""
        densities = self.profiles.log_density(self.profiles.standardise(data))
        below = np.searchsorted(self.reference, densities, side="right")
        return np.asarray(below / len(self.reference), dtype=np.float64)

    def find(self, data: JobDataset, threshold: float = 0.01) -> list[Anomaly]:
        """Return the jobs rarer than `threshold`, each with its oddest request."""
        points = self.profiles.standardise(data)
        rarity = self.rarity(data)
        component = self.profiles.assign(points)
        wanted = [
            index for index, name in enumerate(self.profiles.fields) if name in REQUEST_FIELDS
        ]
        found = []
        for row in np.flatnonzero(rarity < threshold):
            mean = self.profiles.means[component[row]]
            precision = self.profiles.precisions[component[row]]
            # How far each field is from what the other fields of this job lead one to expect.
            pull = precision @ (points[row] - mean)
            surprise = np.abs(pull) / np.sqrt(np.diag(precision))
            field = max(wanted, key=lambda index: float(surprise[index]))
            expected = points[row, field] - pull[field] / precision[field, field]
            centre, scale = self.profiles.centre[field], self.profiles.scale[field]
            found.append(
                Anomaly(
                    int(row),
                    float(rarity[row]),
                    self.profiles.fields[field],
                    float(np.expm1(points[row, field] * scale + centre)),
                    float(np.expm1(expected * scale + centre)),
                    "all jobs",
                )
            )
        return found


def against_habit(
    data: JobDataset, level: str = "user_program", factor: float = 4.0, min_submits: float = 5.0
) -> list[Anomaly]:
    """Return jobs that ask for far more or less than the user's last job of this program.

    Uses the history's own columns: the last request of the key against this one.
    """
    found: list[Anomaly] = []
    fields = {"request_change": "log_requested_seconds", "cpus_change": "log_cpus"}
    if f"{level}.request_change" not in data.names:
        level = "user"
    if f"{level}.request_change" not in data.names:
        return found
    outcomes = np.expm1(data.column(f"{level}.outcomes"))
    for change_name, field in fields.items():
        change = data.column(f"{level}.{change_name}").astype(np.float64)
        value = data.column(field).astype(np.float64)
        with np.errstate(invalid="ignore"):
            odd = (np.abs(change) > np.log(factor)) & (outcomes >= min_submits)
        for row in np.flatnonzero(odd):
            habit = level.replace("user_program", "user and program")
            found.append(
                Anomaly(
                    int(row),
                    float("nan"),
                    field,
                    float(np.expm1(value[row])),
                    float(np.expm1(value[row] - change[row])),
                    habit,
                )
            )
    return found
