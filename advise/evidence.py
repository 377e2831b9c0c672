"""The evidence: outcomes of similar holds, the job's own past, its execution point.

Counts are as of the moment the answer refers to: now for a job that is held now, the moment of
the hold for an earlier one. No other user is named.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from condor_advice.advise.holds import OVERCOUNTED, Hold
from condor_advice.preprocess.holds.episode_store import LikeCases

# The shortest window with enough similar cases counts; if none has enough, the one with the most.
WINDOWS = (6 * 3600.0, 86400.0, 7 * 86400.0, 30 * 86400.0)
ENOUGH_CASES = 20
# An execution point is at fault if it had this many holds for the reason within an hour and most
# of all such holds, although most jobs start elsewhere.
BLACK_HOLE_HOLDS = 3
BLACK_HOLE_SHARE = 0.7
BLACK_HOLE_STARTS = 0.5


@dataclass(frozen=True, slots=True)
class Evidence:
    """The numbers behind a verdict."""

    like: LikeCases | None  # None: no hold episodes are kept
    came_back: int  # earlier holds of this job for the same reason
    starts: int | None  # executions so far
    releases: int | None
    mates_succeeded: int  # jobs of its cluster that were held for the same reason and released
    mates_released: int
    point_holds: int | None  # for this reason on its execution point, in the hour before
    point_starts: int | None
    point_share: float | None  # of this reason's holds in the hour before, on this point
    point_start_share: float | None  # of all starts in the hour before, on this point

    @property
    def black_hole(self) -> bool:
        """Tell whether the execution point is at fault."""
        return (
            (self.point_holds or 0) >= BLACK_HOLE_HOLDS
            and (self.point_share or 0.0) >= BLACK_HOLE_SHARE
            and self.point_start_share is not None
            and self.point_start_share <= BLACK_HOLE_STARTS
        )

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        like = self.like
        return {
            "like_cases": like.released if like else 0,
            "like_cases_succeeded": like.succeeded if like else 0,
            "like_cases_hours": like.seconds / 3600 if like else None,
            "releases_that_came_back": self.came_back,
            "starts": self.starts,
            "releases": self.releases,
            "mates_released": self.mates_released,
            "mates_succeeded": self.mates_succeeded,
            "execution_point_holds_1h": self.point_holds,
            "execution_point_starts_1h": self.point_starts,
            "share_on_execution_point_1h": self.point_share,
            "share_of_starts_on_execution_point_1h": self.point_start_share,
        }


class Witness:
    """Gathers evidence for many holds; looks up shared facts only once."""

    def __init__(self, as_of_hold: bool = False) -> None:
        self._as_of_hold = as_of_hold
        self._now_us = int(time.time() * 1e6)
        self._like: dict[tuple[int, int, int], LikeCases] = {}

    def evidence(self, hold: Hold) -> Evidence:
        """Return the evidence for or against a release."""
        ad = hold.ad
        same = hold.feature("past_holds_same_template")
        if same is None:
            same = _holds_for_same_reason(hold)
        starts = hold.feature("job_starts")
        here, everywhere = hold.feature("point_start_1h"), hold.feature("pool_start_1h")
        return Evidence(
            like=self._like_cases(hold),
            came_back=int(same or 0),
            starts=_whole(ad.get("NumJobStarts") if starts is None else starts),
            releases=_whole(hold.feature("past_releases")),
            mates_succeeded=int(hold.feature("cluster_template_good_total") or 0),
            mates_released=int(
                (hold.feature("cluster_template_good_total") or 0)
                + (hold.feature("cluster_template_bad_total") or 0)
            ),
            point_holds=_whole(hold.feature("point_template_hold_1h")),
            point_starts=_whole(here),
            point_share=hold.feature("share_on_point_1h"),
            point_start_share=here / everywhere if here is not None and everywhere else None,
        )

    def _like_cases(self, hold: Hold) -> LikeCases | None:
        kept, episode = hold.kept, hold.episode
        if kept is None or episode is None:
            return None
        # An old log is judged as of its end: it has nothing later.
        until, before = self._now_us, None
        if self._as_of_hold or not episode.is_open:
            # This hold may decide the outcome of an earlier one of the same job: include it.
            until, before = episode.time_us, episode.sequence + 1
        last = kept.last_us or until
        key = (id(kept), episode.template_id, before if before is not None else -1)
        if key not in self._like:
            self._like[key] = _widest(kept, episode.template_id, min(until, last), before)
        return self._like[key]


def _widest(kept: Any, template_id: int, until: int, before: int | None) -> LikeCases:
    most = LikeCases(0, 0, WINDOWS[0])
    for seconds in WINDOWS:
        cases: LikeCases = kept.like_cases(template_id, until, seconds, before)
        if cases.released > most.released:
            most = cases
        if most.released >= ENOUGH_CASES:
            break
    return most


def _holds_for_same_reason(hold: Hold) -> int:
    """Count earlier holds for the same code, from the job ad."""
    by_reason = hold.ad.get("NumHoldsByReason")
    if not isinstance(by_reason, dict) or hold.code in OVERCOUNTED:
        return 0
    most = max((n for n in by_reason.values() if isinstance(n, int)), default=0)
    return max(0, most - 1) if len(by_reason) == 1 else 0


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None
