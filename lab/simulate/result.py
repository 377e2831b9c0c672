"""The result of a simulation, and how close it is to its profile."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from condor_advice.lab.simulate.profile import Profile, Targets


@dataclass(slots=True)
class SimulationResult:
    """Counts of what a simulation wrote."""

    directory: Path
    seconds: float
    jobs: int = 0
    events: int = 0
    bytes: int = 0
    held_jobs: int = 0
    holds: int = 0
    days: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    users: Counter[str] = field(default_factory=Counter)
    largest_cluster: int = 0
    access_points: int = 1

    def comparison(self, targets: Targets) -> dict[str, dict[str, float]]:
        """Return each target with the measured figure."""
        jobs, held, holds = max(self.jobs, 1), max(self.held_jobs, 1), max(self.holds, 1)
        return {
            "jobs_per_day": {
                "wanted": targets.jobs_per_day,
                "measured": self.jobs / self.access_points / max(self.days, 1e-9),
            },
            "held_share": {"wanted": targets.held_share, "measured": self.held_jobs / jobs},
            "holds_per_held_job": {
                "wanted": targets.holds_per_held_job,
                "measured": self.holds / held,
            },
            "repeat_share": {
                "wanted": 1 - 1 / targets.holds_per_held_job,
                "measured": 1 - self.held_jobs / holds,
            },
        }

    def as_json(self, profile: Profile) -> dict[str, Any]:
        """Return all figures as plain values."""
        busiest = sum(count for _, count in self.users.most_common(max(1, len(self.users) // 10)))
        return {
            "directory": str(self.directory),
            "jobs": self.jobs,
            "events": self.events,
            "bytes": self.bytes,
            "days": round(self.days, 3),
            "held_jobs": self.held_jobs,
            "holds": self.holds,
            "seconds": round(self.seconds, 2),
            "jobs_per_second": round(self.jobs / max(self.seconds, 1e-9)),
            "comparison": self.comparison(profile.targets),
            "share_of_busiest_tenth_of_users": round(busiest / max(self.jobs, 1), 3),
            "largest_cluster": self.largest_cluster,
            "holds_by_code": dict(self.codes.most_common()),
            "outcomes": dict(self.outcomes.most_common()),
        }
