"""Job profiles: a Gaussian mixture over requests, to find kinds of jobs and unusual jobs.

Fitting needs scikit-learn; a fitted mixture is plain arrays, evaluated with NumPy.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.workloads.table import JobTable
from condor_advice.preprocess.jobs.horizons import JobDataset, Labels

Floats = npt.NDArray[np.float64]

# Columns of a dataset at submit; the median replaces missing values.
PROFILE_FIELDS = (
    "log_cpus",
    "log_requested_seconds",
    "log_requested_memory",
    "log_requested_disk",
    "user.submit_rate",
    "user.running",
    "user.queued",
)
REQUEST_FIELDS = PROFILE_FIELDS[:4]
MAX_COMPONENTS = 12
FIT_ROWS = 20_000
_NUMBERS = ("usual", "centre", "scale", "weights", "means", "precisions")
_LOG_TWO_PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True, slots=True)
class Profiles:
    """A mixture of normal distributions over standardised fields."""

    fields: tuple[str, ...]
    usual: Floats  # median of each field, for unknown values
    centre: Floats
    scale: Floats
    weights: Floats  # axes: (component,)
    means: Floats  # axes: (component, field)
    precisions: Floats  # axes: (component, field, field)
    bic: Mapping[int, float]

    def standardise(self, data: JobDataset) -> Floats:
        """Return the standardised fields of each question; missing ones are the median."""
        values = np.stack([data.column(name).astype(np.float64) for name in self.fields], axis=1)
        values = np.where(np.isfinite(values), values, self.usual)
        return np.asarray((values - self.centre) / self.scale)

    def log_densities(self, points: Floats) -> Floats:
        """Return log(weight * density) of each point under each component."""
        densities = np.empty((len(points), len(self.weights)))
        for number, (mean, precision) in enumerate(zip(self.means, self.precisions, strict=True)):
            away = points - mean
            log_det = np.linalg.slogdet(precision)[1]
            densities[:, number] = (
                np.log(self.weights[number])
                + 0.5 * log_det
                - 0.5 * len(mean) * _LOG_TWO_PI
                - 0.5 * np.einsum("ij,jk,ik->i", away, precision, away)
            )
        return densities

    def log_density(self, points: Floats) -> Floats:
        """Return the log density of each point under the mixture."""
        parts = self.log_densities(points)
        top = parts.max(axis=1)
        return np.asarray(top + np.log(np.exp(parts - top[:, None]).sum(axis=1)))

    def assign(self, points: Floats) -> npt.NDArray[np.int64]:
        """Return the likeliest component of each point."""
        return np.asarray(self.log_densities(points).argmax(axis=1))

    def as_features(self, data: JobDataset) -> tuple[tuple[str, ...], npt.NDArray[np.float32]]:
        """Return responsibilities and density as columns for a failure model."""
        points = self.standardise(data)
        parts = self.log_densities(points)
        density = self.log_density(points)
        shares = np.exp(parts - density[:, None])
        names = (
            *(f"profile_{number}" for number in range(len(self.weights))),
            "profile_log_density",
        )
        return names, np.concatenate([shares, density[:, None]], axis=1).astype(np.float32)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return everything as plain arrays."""
        return {
            "fields": np.array(self.fields),
            "bic_components": np.array(list(self.bic)),
            "bic": np.array(list(self.bic.values())),
            **{name: getattr(self, name) for name in _NUMBERS},
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Profiles:
        """Rebuild profiles from `arrays`."""
        numbers: dict[str, Floats] = {name: arrays[name] for name in _NUMBERS}
        bic = dict(zip(arrays["bic_components"].tolist(), arrays["bic"].tolist(), strict=True))
        return cls(tuple(str(name) for name in arrays["fields"]), **numbers, bic=bic)


def fit_profiles(
    data: JobDataset,
    rows: npt.NDArray[np.bool_],
    seed: int = 0,
    max_components: int = MAX_COMPONENTS,
) -> Profiles:
    """Fit mixtures of 1 to `max_components` normals to these rows; keep the lowest BIC."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    chosen = np.flatnonzero(rows)
    if len(chosen) > FIT_ROWS:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, FIT_ROWS, replace=False))
    fields, columns = [], []
    for name in PROFILE_FIELDS:
        if name not in data.names:
            continue
        column = data.column(name)[chosen].astype(np.float64)
        known = column[np.isfinite(column)]
        if len(known) and np.ptp(known) > 0:
            fields.append(name)
            columns.append(np.where(np.isfinite(column), column, np.median(known)))
    values = np.stack(columns, axis=1)
    usual = np.median(values, axis=0)
    centre, scale = values.mean(axis=0), values.std(axis=0)
    points = (values - centre) / scale
    best, bic = None, {}
    # The points are few: more threads would only wait for one another.
    with threadpool_limits(1), warnings.catch_warnings():
        # Sixty rounds are enough to compare numbers of components.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for components in range(1, max_components + 1):
            # Requests are often round numbers; the ridge keeps components from collapsing there.
            mixture = GaussianMixture(
                components, reg_covar=1e-2, random_state=seed, n_init=1, max_iter=60
            ).fit(points)
            bic[components] = float(mixture.bic(points))
            if bic[components] == min(bic.values()):
                best = mixture
    assert best is not None
    return Profiles(
        tuple(fields), usual, centre, scale, best.weights_, best.means_, best.precisions_, bic
    )


def describe(
    profiles: Profiles,
    data: JobDataset,
    table: JobTable,
    labels: Labels,
) -> list[dict[str, float]]:
    """Return one row per profile: jobs, users, run time, requests, activity, failures."""
    which = profiles.assign(profiles.standardise(data))
    failed = labels.of(table)[data.row]
    run = table.run_seconds[data.row]
    cpus = np.expm1(data.column("log_cpus"))
    requested = np.expm1(data.column("log_requested_seconds"))
    users = table.text["user"][data.row]
    lines = []
    for number in range(len(profiles.weights)):
        mine = which == number
        if not np.any(mine):
            continue
        with np.errstate(invalid="ignore"):
            lines.append(
                {
                    "profile": number,
                    "jobs": int(np.sum(mine)),
                    "users": len(np.unique(users[mine])),
                    "median_run_seconds": _median(run[mine]),
                    "median_requested_seconds": _median(requested[mine]),
                    "median_cpus": _median(cpus[mine]),
                    "user_submits_per_hour": _mean(data.column("user.submit_rate")[mine]),
                    "failed": _mean(failed[mine]),
                }
            )
    return lines


def _median(values: npt.NDArray[Any]) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _mean(values: npt.NDArray[Any]) -> float:
    known = values[np.isfinite(values)]
    return float(np.mean(known)) if len(known) else float("nan")
