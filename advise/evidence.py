"""The evidence: outcomes of similar holds, the job's own past, its execution point.

Counts are as of the moment the answer refers to: now for a job that is held now, the moment that
`--at` names, or the moment of the hold for an earlier one. No other user is named.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from condor_advice.advise.holds import OVERCOUNTED, Hold
from condor_advice.preprocess.holds.facts import Moment, decision_moment
from condor_advice.preprocess.holds.job_numbers import cluster_number
from condor_advice.preprocess.holds.known import LikeCases, Tally

# The shortest window with enough similar cases counts; if none has enough, the one with the most.
WINDOWS = (6 * 3600.0, 86400.0, 7 * 86400.0, 30 * 86400.0)
ENOUGH_CASES = 20
# A log whose last event is older than this is judged as of its end: its jobs waited no longer.
OLD_LOG_SECONDS = 86400.0
# An execution point is at fault if it had this many holds for the reason within an hour and most
# of all such holds, although most jobs start elsewhere.
BLACK_HOLE_HOLDS = 3
BLACK_HOLE_SHARE = 0.7
BLACK_HOLE_STARTS = 0.5


@dataclass(frozen=True, slots=True)
class Evidence:
    """The numbers behind a verdict."""

    like: LikeCases | None  # None: no hold episodes are kept
    came_back: int  # earlier holds of this job for the same reason, released as is
    starts: int | None  # executions so far
    releases: int | None
    mates: Tally  # other jobs of its cluster, held for the same reason and released as is
    mates_changed: Tally  # and those that were changed before their release
    program_clusters: int  # other clusters of the same program that were held for this reason
    program: Tally  # what came of their releases as is
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
            "like_cases": like.as_is.released if like else 0,
            "like_cases_succeeded": like.as_is.succeeded if like else 0,
            "like_cases_hours": like.seconds / 3600 if like else None,
            "like_cases_changed": like.changed.released if like else 0,
            "like_cases_changed_succeeded": like.changed.succeeded if like else 0,
            "releases_that_came_back": self.came_back,
            "starts": self.starts,
            "releases": self.releases,
            "mates_released": self.mates.released,
            "mates_succeeded": self.mates.succeeded,
            "mates_changed": self.mates_changed.released,
            "mates_changed_succeeded": self.mates_changed.succeeded,
            "program_clusters": self.program_clusters,
            "program_released": self.program.released,
            "program_succeeded": self.program.succeeded,
            "execution_point_holds_1h": self.point_holds,
            "execution_point_starts_1h": self.point_starts,
            "share_on_execution_point_1h": self.point_share,
            "share_of_starts_on_execution_point_1h": self.point_start_share,
        }


class Witness:
    """Gathers evidence for many holds; looks up shared facts only once."""

    def __init__(
        self, as_of_hold: bool = False, at: datetime | None = None, at_release: bool = False
    ) -> None:
        self._as_of_hold = as_of_hold
        self._at_release = at_release
        self._at_us = None if at is None else int(at.timestamp() * 1e6)
        self._now_us = int(time.time() * 1e6)
        self._moments: dict[tuple[int, int], Moment] = {}
        self._shared: dict[tuple[int, int, Moment], LikeCases] = {}

    def moment(self, hold: Hold) -> Moment | None:
        """Return the moment that the answer about a hold refers to; None if no episode is kept."""
        kept, episode = hold.kept, hold.episode
        if kept is None or episode is None:
            return None
        if self._at_release:
            return decision_moment(kept.known.facts[kept.known.row(episode.episode)])
        if self._at_us is not None:
            key = (id(kept), cluster_number(0, episode.job.cluster))
            if key not in self._moments:
                self._moments[key] = kept.known.before(self._at_us, episode.kin[0])
            return self._moments[key]
        if self._as_of_hold or not episode.is_open:
            # This hold may decide the outcome of an earlier one of the same job: include it.
            return Moment(episode.time_us, episode.sequence + 1)
        last = kept.last_us or self._now_us
        old = self._now_us - last > OLD_LOG_SECONDS * 1e6
        return Moment(max(last, episode.time_us) if old else self._now_us)

    def evidence(self, hold: Hold) -> Evidence:
        """Return the evidence for or against a release."""
        ad = hold.ad
        starts = hold.feature("job_starts")
        here, everywhere = hold.feature("point_start_1h"), hold.feature("pool_start_1h")
        like, came_back = None, _holds_for_same_reason(hold)
        mates, mates_changed, clusters, program = Tally(), Tally(), 0, Tally()
        moment = self.moment(hold)
        if moment is not None and hold.kept is not None and hold.episode is not None:
            known, episode = hold.kept.known, hold.episode.episode
            like = self._like_cases(hold, moment)
            came_back = known.came_back(episode, moment)
            mates, mates_changed = known.mates(episode, moment)
            clusters, program = known.program(episode, moment)
        return Evidence(
            like=like,
            came_back=came_back,
            starts=_whole(ad.get("NumJobStarts") if starts is None else starts),
            releases=_whole(hold.feature("past_releases")),
            mates=mates,
            mates_changed=mates_changed,
            program_clusters=clusters,
            program=program,
            point_holds=_whole(hold.feature("point_template_hold_1h")),
            point_starts=_whole(here),
            point_share=hold.feature("share_on_point_1h"),
            point_start_share=here / everywhere if here is not None and everywhere else None,
        )

    def _like_cases(self, hold: Hold, moment: Moment) -> LikeCases:
        assert hold.kept is not None
        assert hold.episode is not None
        key = (id(hold.kept), hold.episode.template_id, moment)
        if key not in self._shared:
            self._shared[key] = hold.kept.known.like_cases(
                hold.episode.episode, moment, WINDOWS, ENOUGH_CASES
            )
        return self._shared[key]


def _holds_for_same_reason(hold: Hold) -> int:
    """Count earlier holds for the same code, from the job ad."""
    by_reason = hold.ad.get("NumHoldsByReason")
    if not isinstance(by_reason, dict) or hold.code in OVERCOUNTED:
        return 0
    most = max((n for n in by_reason.values() if isinstance(n, int)), default=0)
    return max(0, most - 1) if len(by_reason) == 1 else 0


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None
