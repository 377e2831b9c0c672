"""How good the advice was in use: compare the advice on each hold with its outcome.

The ledger has the advice; the store's hold episodes have the outcomes. Advice counts only if it
was given before the hold ended: questions about a hold that was released long ago say nothing
about predictions. Of several answers about one hold the last one before its release counts,
since that is the one people could follow.
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
from condor_advice.preprocess.holds.labels import label_of
from condor_advice.preprocess.holds.outcomes import OUTCOMES, Outcome

BINS = 5
MIN_FOR_BINS = 25
VERDICTS = ("RELEASE", "FIX", "REMOVE", "ASK")


class Ended(Protocol):
    """The fields of a hold episode that are compared with advice."""

    @property
    def time_us(self) -> int:
        """When the job was held."""
        ...

    @property
    def number(self) -> int:
        """1 for the job's first hold."""
        ...

    @property
    def outcome(self) -> int:
        """Index in OUTCOMES."""
        ...

    @property
    def released_us(self) -> int | None:
        """When the job was released."""
        ...

    @property
    def decided_us(self) -> int | None:
        """When the outcome became known."""
        ...


class Holds(Protocol):
    """Where holds are looked up: `preprocess.holds.episode_store.KeptEpisodes`."""

    def holds_of(
        self, cluster: int, first: int, last: int, access_point: str | None = None
    ) -> Sequence[Any]:
        """Return all holds of a cluster's procs `first` to `last`."""
        ...


@dataclass(frozen=True, slots=True)
class Followed:
    """One hold that had advice, with the advice that counts and the outcome."""

    advice: GivenAdvice
    outcome: Outcome
    released: bool
    decided: bool

    @property
    def label(self) -> int | None:
        """1 if the release led to success, 0 if not, None if that is not known."""
        return label_of(self.outcome) if self.decided else None

    @property
    def was_followed(self) -> bool | None:
        """Tell whether people followed the advice; None while that is open or cannot be known.

        `ASK` advises nothing. After `FIX` a release counts as followed: the log does not show
        repairs.
        """
        removed = self.decided and not self.released
        if self.advice.verdict in ("RELEASE", "FIX"):
            return True if self.released else (False if removed else None)
        if self.advice.verdict == "REMOVE":
            return False if self.released else (True if removed else None)
        return None


@dataclass(frozen=True, slots=True)
class Joined:
    """All advice of a period, joined with the outcomes."""

    followed: Sequence[Followed]
    looked_back: int  # holds that were asked about only after they had ended
    not_found: int  # answers about holds that the store does not have (yet)


def join(given: Iterable[GivenAdvice], holds: Holds) -> Joined:
    """Look up the outcome of each hold that had advice."""
    by_cluster: dict[tuple[str, int], list[GivenAdvice]] = defaultdict(list)
    for advice in given:
        by_cluster[advice.access_point, advice.cluster].append(advice)
    followed: list[Followed] = []
    looked_back = not_found = 0
    for (access_point, cluster), advices in by_cluster.items():
        procs = [advice.proc for advice in advices]
        episodes: dict[int, list[Any]] = defaultdict(list)
        for episode in holds.holds_of(cluster, min(procs), max(procs), access_point or None):
            episodes[episode.job.proc].append(episode)
        by_hold: dict[tuple[int, int], tuple[Ended, list[GivenAdvice]]] = {}
        for advice in advices:
            match = _same_hold(advice, episodes[advice.proc])
            if match is None:
                not_found += 1
            else:
                by_hold.setdefault((advice.proc, match.time_us), (match, []))[1].append(advice)
        for episode, answers in by_hold.values():
            last = _last_in_time(episode, answers)
            if last is None:
                looked_back += 1
                continue
            followed.append(
                Followed(
                    last,
                    OUTCOMES[episode.outcome],
                    episode.released_us is not None,
                    episode.decided_us is not None,
                )
            )
    return Joined(followed, looked_back, not_found)


def _same_hold(given: GivenAdvice, episodes: Sequence[Any]) -> Any:
    """Return the hold that the advice was about, matched by time.

    Hold numbers do not match: they depend on where the count began.
    """
    near = min(episodes, key=lambda hold: abs(hold.time_us / 1e6 - given.held_at), default=None)
    if near is None:
        return None
    later = near.time_us / 1e6 - given.held_at
    submitted_on_hold = near.number == 1 and 0 < later <= SUBMITTING_SECONDS
    return near if submitted_on_hold or abs(later) <= SAME_HOLD_SECONDS else None


def _last_in_time(episode: Ended, answers: Sequence[GivenAdvice]) -> GivenAdvice | None:
    """Return the last advice that was given before the hold ended."""
    ends = [end for end in (episode.released_us, episode.decided_us) if end is not None]
    # Allow a second: the clocks of the log and of the advice may differ.
    before = min(ends) / 1e6 + 1.0 if ends else float("inf")
    in_time = [advice for advice in answers if advice.at <= before]
    return max(in_time, key=lambda advice: advice.at, default=None)


def summarise(joined: Joined) -> dict[str, Any]:
    """Return the figures: per verdict, per model, and the quality of the probabilities."""
    followed = joined.followed
    verdicts = {
        verdict: _verdict([hold for hold in followed if hold.advice.verdict == verdict])
        for verdict in VERDICTS
        if any(hold.advice.verdict == verdict for hold in followed)
    }
    sources = sorted({_source(hold.advice) for hold in followed})
    return {
        "holds": len(followed),
        "looked_back": joined.looked_back,
        "not_found": joined.not_found,
        "open": sum(not hold.decided for hold in followed),
        "verdicts": verdicts,
        "chances": _chances(followed),
        "by_source": {
            source: _chances([hold for hold in followed if _source(hold.advice) == source])
            for source in sources
        },
    }


def _verdict(group: Sequence[Followed]) -> dict[str, Any]:
    known = [hold.label for hold in group if hold.label is not None]
    outcomes = Counter(hold.outcome.value for hold in group if hold.decided)
    return {
        "holds": len(group),
        "followed": sum(hold.was_followed is True for hold in group),
        "not_followed": sum(hold.was_followed is False for hold in group),
        "open": sum(not hold.decided for hold in group),
        "outcomes": dict(sorted(outcomes.items())),
        "released_with_known_outcome": len(known),
        "succeeded": sum(known),
        "success_rate": sum(known) / len(known) if known else None,
        "chance_said": (
            float(np.mean([hold.advice.p_success for hold in group if hold.label is not None]))
            if known
            else None
        ),
    }


def _chances(group: Sequence[Followed]) -> dict[str, Any]:
    """Return how good the predicted chance of success after a release as is was.

    Holds with the verdict FIX are left out: the job may have been repaired before the release.
    """
    known = [hold for hold in group if hold.label is not None and hold.advice.verdict != "FIX"]
    p = np.array([hold.advice.p_success for hold in known])
    label = np.array([hold.label for hold in known], dtype=np.float64)
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
    """Return predicted and observed success in bins of equally many holds; none with too few."""
    if len(p) < MIN_FOR_BINS:
        return []
    return [
        {"said": float(p[part].mean()), "came": float(label[part].mean()), "holds": len(part)}
        for part in np.array_split(np.argsort(p, kind="stable"), BINS)
    ]


def _source(given: GivenAdvice) -> str:
    return given.model or given.source


def in_words(summary: Mapping[str, Any]) -> list[str]:
    """Return the figures as lines of text; none if there was no advice."""
    if not (summary["holds"] or summary["looked_back"] or summary["not_found"]):
        return []
    lines = [
        f"advice was given on {summary['holds']:,} holds before they ended; "
        f"{summary['open']:,} are still open"
    ]
    for verdict, part in summary["verdicts"].items():
        line = f"  {verdict}: {part['holds']:,}"
        if verdict != "ASK":
            line += f", followed {part['followed']:,}, not followed {part['not_followed']:,}"
        if part["released_with_known_outcome"]:
            # The prediction is for a release without the repair.
            predicted = "predicted without a repair" if verdict == "FIX" else "predicted"
            line += (
                f"; of {part['released_with_known_outcome']:,} released with a known outcome "
                f"{part['succeeded']:,} succeeded ({part['success_rate']:.0%}; {predicted}: "
                f"{part['chance_said']:.0%})"
            )
        lines.append(line)
    for source, chances in summary["by_source"].items():
        if chances["holds"]:
            line = f"  {source}: Brier score {chances['brier']:.3f} on {chances['holds']:,} holds"
            if chances["calibration_error"] is not None:
                line += f", calibration error {chances['calibration_error']:.3f}"
            lines.append(line)
    if summary["looked_back"]:
        lines.append(
            f"  {summary['looked_back']:,} holds were asked about only after they had ended"
        )
    if summary["not_found"]:
        lines.append(
            f"  {summary['not_found']:,} answers are about holds that are not in the store"
        )
    return lines
