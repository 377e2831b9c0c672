"""A hold to judge, from a live job ad, a store or an event log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.events import HoldCode, JobId
from condor_advice.preprocess.holds.episode_store import KeptEpisode, KeptEpisodes
from condor_advice.preprocess.holds.hold_reasons import Family
from condor_advice.preprocess.holds.templates import FAMILIES, parse_reason


@dataclass(frozen=True, slots=True)
class Hold:
    """One hold of one job: what HTCondor reported, and its context."""

    job: JobId
    number: int  # 1 for the job's first hold
    at: datetime  # UTC
    code: int | None
    subcode: int | None
    reason: str
    template: str  # the reason with hosts, paths and numbers taken out
    family: Family
    owner: str  # empty if unknown
    point: str  # the execution point where it was held; empty if unknown
    ad: Mapping[str, Any] = field(default_factory=dict, repr=False)  # the live job ad, if any
    episode: KeptEpisode | None = field(default=None, repr=False)
    kept: KeptEpisodes | None = field(default=None, repr=False)  # where the episode comes from
    missing: str = ""  # what would improve the answer, and how to get it
    past: bool = False  # judged as of the hold: nothing later counts

    @property
    def template_id(self) -> int | None:
        """The template's number; None without an episode."""
        return self.episode.template_id if self.episode else None

    def feature(self, name: str) -> float | None:
        """Return a feature of the hold; None if it is unknown."""
        if self.episode is None or self.kept is None:
            return None
        place = _indexes(self.kept).get(name)
        value = np.nan if place is None else float(self.episode.features[place])
        return None if np.isnan(value) else value

    @property
    def features(self) -> npt.NDArray[np.float32] | None:
        """All features, as FEATURE_NAMES, where episodes are kept.

        Rows kept by another version may lack a column, until `gather` runs again: it is NaN.
        """
        if self.episode is None:
            return None
        from condor_advice.preprocess.holds.features import FEATURE_NAMES

        row = self.episode.features
        if self.kept is None or self.kept.feature_names == FEATURE_NAMES:
            return row
        places = _indexes(self.kept)
        known = [row[places[name]] if name in places else np.nan for name in FEATURE_NAMES]
        return np.array(known, np.float32)


_feature_indexes: dict[tuple[str, ...], dict[str, int]] = {}


def _indexes(kept: KeptEpisodes) -> dict[str, int]:
    names = kept.feature_names
    if names not in _feature_indexes:
        _feature_indexes[names] = {name: index for index, name in enumerate(names)}
    return _feature_indexes[names]


def hold_of_episode(episode: KeptEpisode, kept: KeptEpisodes, past: bool = False) -> Hold:
    """Return the hold of an episode from a store or a log."""
    return Hold(
        job=episode.job,
        number=episode.number,
        at=datetime.fromtimestamp(episode.time_us / 1e6, UTC),
        code=episode.code,
        subcode=episode.subcode,
        reason=episode.reason,
        template=episode.template,
        family=FAMILIES[episode.family],
        owner=episode.owner,
        point=episode.point,
        episode=episode,
        kept=kept,
        past=past,
    )


def hold_of_ad(
    job: JobId,
    ad: Mapping[str, Any],
    episode: KeptEpisode | None = None,
    kept: KeptEpisodes | None = None,
    missing: str = "",
) -> Hold:
    """Return the hold of a live job ad; where they differ, the ad outranks the episode."""
    code, subcode = ad.get("HoldReasonCode"), ad.get("HoldReasonSubCode")
    text = str(ad.get("HoldReason", ""))
    reason = parse_reason(text, code, subcode)
    # slot1_2@ep1@host: what follows the slot names the execution point, also if several share a
    # machine.
    slot = reason.point or str(ad.get("LastRemoteHost", ""))
    point = episode.point if episode else re.sub(r"^slot[^@]*@", "", slot)
    return Hold(
        job=job,
        number=episode.number if episode else _number_of(ad),
        at=datetime.fromtimestamp(int(ad.get("EnteredCurrentStatus", 0)), UTC),
        code=code,
        subcode=subcode,
        reason=text,
        template=reason.template,
        family=reason.family,
        owner=str(ad.get("Owner", "")),
        point=point,
        ad=ad,
        episode=episode,
        kept=kept,
        missing=missing,
    )


# HTCondor 25 counts a hold with one of these codes several times in NumHolds.
OVERCOUNTED = (
    HoldCode.JOB_POLICY,
    HoldCode.SYSTEM_POLICY,
    HoldCode.JOB_DURATION_EXCEEDED,
    HoldCode.JOB_EXECUTE_EXCEEDED,
)


def _number_of(ad: Mapping[str, Any]) -> int:
    """Return which hold of the job this is, from its ad alone."""
    if ad.get("HoldReasonCode") in OVERCOUNTED:
        return 1
    return max(1, int(ad.get("NumHolds", 1)))
