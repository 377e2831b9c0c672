"""Find requests that are unusual for this pool, and the field that is unusual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_advice.model.failure.profiles import REQUEST_FIELDS, Profiles
from condor_advice.preprocess.jobs.horizons import JobDataset

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One unusual job: its rarity (share of past jobs at least as unusual) and the field."""

    row: int
    rarity: float
    field: str
    value: float
    usual: float
    against: str  # "user and program" or "all jobs"


class AnomalyDetector:
    """Finds jobs of low density under the job profiles."""

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
        """Use the densities of past jobs as the reference."""
        densities = profiles.log_density(profiles.standardise(data.take(rows)))
        return cls(profiles, np.quantile(densities, np.linspace(0, 1, 1001)))

    def rarity(self, data: JobDataset) -> Floats:
        """Return the share of past jobs at least as unusual as each of these."""
        densities = self.profiles.log_density(self.profiles.standardise(data))
        below = np.searchsorted(self.reference, densities, side="right")
        return np.asarray(below / len(self.reference), dtype=np.float64)

    def find(self, data: JobDataset, threshold: float = 0.01) -> list[Anomaly]:
        """Return the jobs rarer than `threshold`, each with its most unusual request."""
        points = self.profiles.standardise(data)
        rarity = self.rarity(data)
        component = self.profiles.assign(points)
        wanted = [
            index for index, name in enumerate(self.profiles.fields) if name in REQUEST_FIELDS
        ]
        anomalies = []
        for row in np.flatnonzero(rarity < threshold):
            mean = self.profiles.means[component[row]]
            precision = self.profiles.precisions[component[row]]
            # How far each field is from its expected value, given the job's other fields.
            pull = precision @ (points[row] - mean)
            surprise = np.abs(pull) / np.sqrt(np.diag(precision))
            field = max(wanted, key=lambda index: float(surprise[index]))
            expected = points[row, field] - pull[field] / precision[field, field]
            centre, scale = self.profiles.centre[field], self.profiles.scale[field]
            anomalies.append(
                Anomaly(
                    int(row),
                    float(rarity[row]),
                    self.profiles.fields[field],
                    float(np.expm1(points[row, field] * scale + centre)),
                    float(np.expm1(expected * scale + centre)),
                    "all jobs",
                )
            )
        return anomalies


def against_habit(
    data: JobDataset, level: str = "user_program", factor: float = 4.0, min_submits: float = 5.0
) -> list[Anomaly]:
    """Return jobs that request far more or less than the user's last job of this program.

    Compares this request with the last one in the history's columns.
    """
    anomalies: list[Anomaly] = []
    fields = {"request_change": "log_requested_seconds", "cpus_change": "log_cpus"}
    if f"{level}.request_change" not in data.names:
        level = "user"
    if f"{level}.request_change" not in data.names:
        return anomalies
    outcomes = np.expm1(data.column(f"{level}.outcomes"))
    for change_name, field in fields.items():
        change = data.column(f"{level}.{change_name}").astype(np.float64)
        value = data.column(field).astype(np.float64)
        with np.errstate(invalid="ignore"):
            odd = (np.abs(change) > np.log(factor)) & (outcomes >= min_submits)
        for row in np.flatnonzero(odd):
            habit = level.replace("user_program", "user and program")
            anomalies.append(
                Anomaly(
                    int(row),
                    float("nan"),
                    field,
                    float(np.expm1(value[row])),
                    float(np.expm1(value[row] - change[row])),
                    habit,
                )
            )
    return anomalies
