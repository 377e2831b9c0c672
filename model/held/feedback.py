"""How good the advice was in use: what was said of a hold against what came of it.

The ledger keeps what was answered; the store's hold episodes know how each hold ended. An answer
counts only if it was given before the hold's end began: whoever looks back at a hold that was
released long ago learns nothing about how good foresight is. Of several answers about one hold
the last one before its release counts, since that is the one that could be followed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from condor_advice.gather.events import SAME_HOLD_SECONDS, SUBMITTING_SECONDS
from condor_advice.gather.ledger import GivenAdvice
from condor_advice.model.metrics import brier, calibration_error
from condor_advice.preprocess.holds.episodes import Outcome
from condor_advice.preprocess.holds.labels import OUTCOMES, label_of

BINS = 5
MIN_FOR_BINS = 25
VERDICTS = ("RELEASE", "FIX", "REMOVE", "ASK")


class Ended(Protocol):
    """What is needed of a hold episode."""

    @property
    def time_us(self) -> int:
        """When it was held."""
        ...

    @property
    def number(self) -> int:
        """1 for the job's first hold."""
        ...

    @property
    def outcome(self) -> int:
        """Its place in OUTCOMES."""
        ...

    @property
    def released_us(self) -> int | None:
        """When it was released."""
        ...

    @property
    def decided_us(self) -> int | None:
        """When its end was known."""
        ...


class Holds(Protocol):
    """Where the holds of jobs are looked up: `preprocess.kept.KeptEpisodes`."""

    def holds_of(
        self, cluster: int, first: int, last: int, access_point: str | None = None
    ) -> Sequence[Any]:
        """Return all holds of a range of a cluster's procs."""
        ...


@dataclass(frozen=True, slots=True)
class Followed:
    """One hold that was advised on, with the answer that counts and the hold's end."""

    advice: GivenAdvice
    outcome: Outcome
    released: bool
    decided: bool

    @property
    def label(self) -> int | None:
        """1 where a release led to success, 0 where not, None where nobody knows."""
        return label_of(self.outcome) if self.decided else None

    @property
    def was_followed(self) -> bool | None:
        """Tell whether people did what was advised; None while that is open, or not to be told.

        `ASK` asks for nothing. After `FIX` a release counts as followed: that something was
        repaired before is not in the log.
        """
        removed = self.decided and not self.released
        if self.advice.verdict in ("RELEASE", "FIX"):
            return True if self.released else (False if removed else None)
        if self.advice.verdict == "REMOVE":
            return False if self.released else (True if removed else None)
        return None


@dataclass(frozen=True, slots=True)
class Joined:
    """All advice of a span of time, joined to what came of it."""

    followed: Sequence[Followed]
    looked_back: int  # holds that were only asked about when their end had begun
    not_found: int  # holds that the store does not know, or not yet


def join(given: Iterable[GivenAdvice], holds: Holds) -> Joined:
    """Look up how each hold ended that was advised on."""
    by_cluster: dict[tuple[str, int], list[GivenAdvice]] = defaultdict(list)
    for one in given:
        by_cluster[one.access_point, one.cluster].append(one)
    found: list[Followed] = []
    looked_back = not_found = 0
    for (access_point, cluster), advices in by_cluster.items():
        procs = [one.proc for one in advices]
        episodes: dict[int, list[Any]] = defaultdict(list)
        for episode in holds.holds_of(cluster, min(procs), max(procs), access_point or None):
            episodes[episode.job.proc].append(episode)
        by_hold: dict[tuple[int, int], tuple[Ended, list[GivenAdvice]]] = {}
        for one in advices:
            match = _same_hold(one, episodes[one.proc])
            if match is None:
                not_found += 1
            else:
                by_hold.setdefault((one.proc, match.time_us), (match, []))[1].append(one)
        for episode, answers in by_hold.values():
            counts = _the_one_that_counts(episode, answers)
            if counts is None:
                looked_back += 1
                continue
            found.append(
                Followed(
                    counts,
                    OUTCOMES[episode.outcome],
                    episode.released_us is not None,
                    episode.decided_us is not None,
                )
            )
    return Joined(found, looked_back, not_found)


def _same_hold(given: GivenAdvice, episodes: Sequence[Any]) -> Any:
    """Return the hold that was advised on: by its time, since numbers depend on who counts."""
    near = min(episodes, key=lambda one: abs(one.time_us / 1e6 - given.held_at), default=None)
    if near is None:
        return None
    later = near.time_us / 1e6 - given.held_at
    submitted_so = near.number == 1 and 0 < later <= SUBMITTING_SECONDS
    return near if submitted_so or abs(later) <= SAME_HOLD_SECONDS else None


def _the_one_that_counts(episode: Ended, answers: Sequence[GivenAdvice]) -> GivenAdvice | None:
    ends = [one for one in (episode.released_us, episode.decided_us) if one is not None]
    # A second of grace: clocks of the log and of whoever advised need not agree to the second.
    before = min(ends) / 1e6 + 1.0 if ends else float("inf")
    in_time = [one for one in answers if one.at <= before]
    return max(in_time, key=lambda one: one.at, default=None)


def summarise(joined: Joined) -> dict[str, Any]:
    """Return the figures: per verdict, per model, and how well chances were said."""
    followed = joined.followed
    verdicts = {
        verdict: _verdict([one for one in followed if one.advice.verdict == verdict])
        for verdict in VERDICTS
        if any(one.advice.verdict == verdict for one in followed)
    }
    sources = sorted({_source(one.advice) for one in followed})
    return {
        "holds": len(followed),
        "looked_back": joined.looked_back,
        "not_found": joined.not_found,
        "open": sum(not one.decided for one in followed),
        "verdicts": verdicts,
        "chances": _chances(followed),
        "by_source": {
            source: _chances([one for one in followed if _source(one.advice) == source])
            for source in sources
        },
    }


def _verdict(group: Sequence[Followed]) -> dict[str, Any]:
    known = [one.label for one in group if one.label is not None]
    outcomes = Counter(one.outcome.value for one in group if one.decided)
    return {
        "holds": len(group),
        "followed": sum(one.was_followed is True for one in group),
        "not_followed": sum(one.was_followed is False for one in group),
        "open": sum(not one.decided for one in group),
        "outcomes": dict(sorted(outcomes.items())),
        "released_with_known_outcome": len(known),
        "succeeded": sum(known),
        "success_rate": sum(known) / len(known) if known else None,
        "chance_said": (
            float(np.mean([one.advice.p_success for one in group if one.label is not None]))
            if known
            else None
        ),
    }


def _chances(group: Sequence[Followed]) -> dict[str, Any]:
    """Return how well the chance of a release as is was said.

    Holds with the verdict FIX are left out: who released those may have repaired them first.
    """
    known = [one for one in group if one.label is not None and one.advice.verdict != "FIX"]
    p = np.array([one.advice.p_success for one in known])
    label = np.array([one.label for one in known], dtype=np.float64)
    if not len(known):
        return {"holds": 0, "brier": None, "base_rate": None, "calibration_error": None,
                "reliability": []}  # fmt: skip
    bins = _bins(p, label)
    return {
        "holds": len(known),
        "brier": brier(label, p),
        "base_rate": float(label.mean()),
        "calibration_error": calibration_error(label, p, BINS) if bins else None,
        "reliability": bins,
    }


def _bins(p: Any, label: Any) -> list[dict[str, Any]]:
    """Return what was said and what came of it in bins of equally many; none with too few."""
    if len(p) < MIN_FOR_BINS:
        return []
    return [
        {"said": float(p[part].mean()), "came": float(label[part].mean()), "holds": len(part)}
        for part in np.array_split(np.argsort(p, kind="stable"), BINS)
    ]


def _source(given: GivenAdvice) -> str:
    return given.model or given.source


def in_words(found: Mapping[str, Any]) -> list[str]:
    """Return the figures as lines for people; none where there was no advice."""
    if not (found["holds"] or found["looked_back"] or found["not_found"]):
        return []
    lines = [
        f"advice was given on {found['holds']:,} holds before their end; "
        f"{found['open']:,} are still open"
    ]
    for verdict, part in found["verdicts"].items():
        line = f"  {verdict}: {part['holds']:,}"
        if verdict != "ASK":
            line += f", followed {part['followed']:,}, not followed {part['not_followed']:,}"
        if part["released_with_known_outcome"]:
            # What was said is about a release without the repair.
            said = "; without a repair" if verdict == "FIX" else ", said"
            line += (
                f"; of {part['released_with_known_outcome']:,} released with a known end "
                f"{part['succeeded']:,} succeeded ({part['success_rate']:.0%}{said} "
                f"{part['chance_said']:.0%})"
            )
        lines.append(line)
    for source, chances in found["by_source"].items():
        if chances["holds"]:
            line = f"  {source}: Brier score {chances['brier']:.3f} on {chances['holds']:,} holds"
            if chances["calibration_error"] is not None:
                line += f", calibration error {chances['calibration_error']:.3f}"
            lines.append(line)
    if found["looked_back"]:
        lines.append(f"  {found['looked_back']:,} holds were asked about when they were over")
    if found["not_found"]:
        lines.append(f"  {found['not_found']:,} answers are about holds that the store lacks")
    return lines
