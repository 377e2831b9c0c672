"""The profile of a simulation: how often things happen, read from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from condor_advice.gather.errors import UsageError
from condor_advice.lab.simulate.faults import FAULTS

PROFILES = Path(__file__).parents[1] / "profiles"


@dataclass(frozen=True, slots=True)
class Targets:
    """The figures that a simulation aims for."""

    jobs_per_day: float
    held_share: float
    holds_per_held_job: float


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes and rates; profiles/ospool.toml explains each."""

    access_points: int
    start: str
    users: int
    user_exponent: float
    cluster_exponent: float
    largest_cluster: int
    single_job_share: float
    run_minutes_median: float
    run_minutes_sigma: float
    wait_minutes_median: float
    execution_points: int
    bad_execution_points: float
    outages_per_week: float
    outage_hours: float
    outage_severity: float
    old_wordings: float
    upgrade_after_days: float
    evictions_per_run: float
    failing_share: float


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the event log is written."""

    iso_dates: bool
    ad_information: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything a simulation needs besides the number of jobs and the seed."""

    targets: Targets
    shape: Shape
    log: LogSettings
    faults: Mapping[str, float]

    @classmethod
    def read(cls, path: Path | None = None) -> Profile:
        """Read a TOML file, or the OSPool profile without one. Unknown keys are errors."""
        path = path or PROFILES / "ospool.toml"
        try:
            tables = tomllib.loads(path.read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"{path}: cannot read the profile: {error}") from error
        unknown = sorted(set(tables) - {field.name for field in fields(cls)})
        if unknown or len(tables) < 4:
            raise UsageError(
                f"{path}: a profile has the tables [targets], [shape], [log] and [faults]; "
                + (f"unknown: {', '.join(unknown)}" if unknown else "some are missing")
            )
        faults = tables["faults"]
        if unknown := sorted(set(faults) - set(FAULTS)):
            raise UsageError(
                f"{path}: unknown fault: {', '.join(unknown)}; choose from {', '.join(FAULTS)}"
            )
        return cls(
            _read_table(path, Targets, tables["targets"]),
            _read_table(path, Shape, tables["shape"]),
            _read_table(path, LogSettings, tables["log"]),
            faults,
        )


def _read_table(path: Path, kind: Any, values: dict[str, Any]) -> Any:
    known = {field.name for field in fields(kind)}
    if wrong := sorted(known ^ set(values)):
        raise UsageError(
            f"{path}: [{kind.__name__.lower()}] has unknown or missing keys: {', '.join(wrong)}"
        )
    return kind(**values)
