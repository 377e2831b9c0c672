"""What is known at a moment about the holds of an access point, from a store or from logs.

`KnownFacts` answers for any moment: the evidence that models read, the same evidence without some
of it, and the counts that people read. All of it comes from the same facts, so an answer never
contradicts the numbers beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from condor_advice.preprocess.holds.evidence import (
    MOST_ENDS,
    MOST_OF_A_KIND,
    SEARCHED,
    Evidence,
    EvidenceTable,
    Occlusion,
    evidence_about,
    occlusions,
)
from condor_advice.preprocess.holds.facts import Ends, Facts, Moment, moment_at
from condor_advice.preprocess.holds.job_numbers import cluster_of
from condor_advice.preprocess.holds.outcomes import OUTCOME_INDEX, Outcome

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# From so many questions on, one index over all facts is cheaper than a search for each question.
MANY_QUESTIONS = 24
_GOOD = OUTCOME_INDEX[Outcome.SUCCEEDED]
_TELLING = tuple(
    OUTCOME_INDEX[outcome]
    for outcome in (Outcome.SUCCEEDED, Outcome.HELD_SAME, Outcome.HELD_OTHER, Outcome.FAILED)
)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many jobs were released after some holds, and how many of these succeeded."""

    released: int = 0  # with an outcome that tells something
    succeeded: int = 0


@dataclass(frozen=True, slots=True)
class LikeCases:
    """What came of releases after holds for the same reason, in some window of time."""

    as_is: Tally
    changed: Tally  # the job, or what it asks for, had been changed before the release
    seconds: float  # the window's length


class KnownFacts:
    """The facts of an access point, to be asked about any hold at any moment."""

    def __init__(self, facts: Facts, ends_of: Callable[[Iterable[int], int], Ends]) -> None:
        self.facts = facts
        self._ends_of = ends_of
        self._row = {}
        if len(facts):
            first = int(facts["episode"][0])
            consecutive = int(facts["episode"][-1]) - first == len(facts) - 1
            if not consecutive:
                self._row = {int(episode): row for row, episode in enumerate(facts["episode"])}

    def row(self, episode: int) -> int:
        """Return the row of an episode."""
        return self._row[episode] if self._row else episode - int(self.facts["episode"][0])

    def __contains__(self, episode: int) -> bool:
        if self._row or not len(self.facts):
            return episode in self._row
        return 0 <= self.row(episode) < len(self.facts)

    @cached_property
    def _columns(self) -> dict[str, Ints]:
        """The columns that a search compares, each in one piece of memory."""
        facts = self.facts
        columns = {
            level: np.ascontiguousarray(facts[level]).astype(np.int64)
            for level in ("program", "stem", "template", "point", "family", "owner")
        }
        columns["cluster"] = cluster_of(np.ascontiguousarray(facts["job"]))
        columns["pool"] = np.zeros(len(facts), np.int64)
        return columns

    @cached_property
    def _places(self) -> list[Ints]:
        names = ("decided_sequence", "released_sequence", "sequence")
        return [np.ascontiguousarray(self.facts[name]) for name in names]

    def before(self, time_us: int, cluster: int) -> Moment:
        """Return the moment right before a time, for a question about a hold of a cluster."""
        return moment_at(self.facts, self._ends_of([cluster], MOST_ENDS), time_us)

    # ---- evidence

    def evidence(self, episodes: Sequence[int], moments: Sequence[Moment]) -> list[Evidence]:
        """Return the evidence about some episodes, each at its moment."""
        rows = [self.row(episode) for episode in episodes]
        if len(rows) < MANY_QUESTIONS:
            return [
                evidence_about(self.facts[row], *self.related(episode, moment), moment)
                for row, episode, moment in zip(rows, episodes, moments, strict=True)
            ]
        clusters = np.unique(cluster_of(self.facts["job"][rows])).tolist()
        table = EvidenceTable(self.facts, self._ends_of(clusters, MOST_ENDS))
        return table.evidence(rows, moments)

    def without_each(self, episode: int, moment: Moment) -> list[Occlusion]:
        """Return the evidence about an episode without each group of related episodes."""
        hold = self.facts[self.row(episode)]
        return occlusions(hold, *self.related(episode, moment), moment)

    def related(self, episode: int, moment: Moment) -> tuple[Facts, Ends]:
        """Return the related episodes that count, and how mates ended that were never held."""
        row = self.row(episode)
        hold = self.facts[row]
        chosen = [np.flatnonzero(self.facts["job"] == hold["job"])]
        chosen[0] = chosen[0][self.facts["sequence"][chosen[0]] < moment.sequence]
        for level in SEARCHED:
            column = self._columns[level]
            key = column[row]
            if (level in ("program", "stem") and key == 0) or key < 0:
                continue  # not known
            rows = np.flatnonzero(column == key)
            for places in self._places:
                chosen.append(_latest(rows, places[rows], moment.sequence))
        seen = np.unique(np.concatenate(chosen))
        ends = self._ends_of([int(cluster_of(hold["job"]))], MOST_ENDS)
        ends = ends[ends["sequence"] < moment.sequence][-MOST_ENDS:]
        return self.facts[seen[seen != row]], ends

    # ---- counts for people

    def like_cases(
        self, episode: int, moment: Moment, windows: Sequence[float], enough: int
    ) -> LikeCases:
        """Count what came of releases after holds for the same reason.

        The shortest window with enough cases counts; if none has enough, the one with the most.
        """
        row = self.row(episode)
        rows = np.flatnonzero(self._columns["template"] == self._columns["template"][row])
        decided = self._decided(rows[rows != row], moment)
        best = LikeCases(Tally(), Tally(), windows[0])
        for seconds in windows:
            recent = decided[self.facts["decided"][decided] >= moment.time - int(seconds * 1e6)]
            cases = LikeCases(*self._tallies(recent), seconds)
            if cases.as_is.released > best.as_is.released or seconds == windows[0]:
                best = cases
            if best.as_is.released >= enough:
                break
        return best

    def mates(self, episode: int, moment: Moment) -> tuple[Tally, Tally]:
        """Count jobs of the same cluster with the same reason: released as is, and changed."""
        return self._other_jobs(episode, moment, "cluster")

    def program(self, episode: int, moment: Moment) -> tuple[int, Tally]:
        """Return how many other clusters of the same program had this reason, and what came of it.

        Outcomes of releases as is are counted.
        """
        row = self.row(episode)
        columns = self._columns
        if not columns["program"][row]:
            return 0, Tally()
        rows = np.flatnonzero(
            (columns["program"] == columns["program"][row])
            & (columns["template"] == columns["template"][row])
            & (columns["cluster"] != columns["cluster"][row])
            & (self.facts["sequence"] < moment.sequence)
        )
        as_is, _ = self._tallies(self._decided(rows, moment))
        return len(np.unique(columns["cluster"][rows])), as_is

    def came_back(self, episode: int, moment: Moment) -> int:
        """Count the job's earlier holds for the same reason that were released as is."""
        hold = self.facts[self.row(episode)]
        facts = self.facts
        return int(
            np.count_nonzero(
                (facts["job"] == hold["job"])
                & (facts["template"] == hold["template"])
                & (facts["sequence"] < min(int(hold["sequence"]), moment.sequence))
                & (facts["changed"] == 0)
            )
        )

    def _other_jobs(self, episode: int, moment: Moment, level: str) -> tuple[Tally, Tally]:
        row = self.row(episode)
        columns = self._columns
        rows = np.flatnonzero(
            (columns[level] == columns[level][row])
            & (columns["template"] == columns["template"][row])
            & (self.facts["job"] != self.facts["job"][row])
        )
        return self._tallies(self._decided(rows, moment))

    def _decided(self, rows: Ints, moment: Moment) -> Ints:
        """Return the rows whose release had an outcome that was known at a moment."""
        facts = self.facts[rows]
        known = (facts["decided_sequence"] >= 0) & (facts["decided_sequence"] < moment.sequence)
        known &= (facts["decided"] <= moment.time) & np.isin(facts["outcome"], _TELLING)
        return rows[known]

    def _tallies(self, rows: Ints) -> tuple[Tally, Tally]:
        """Count jobs by their latest outcome: released as is, and after a change."""
        facts = self.facts[rows]
        tallies = []
        for changed in (False, True):
            some = facts[(facts["changed"] != 0) == changed]
            some = some[np.argsort(some["decided_sequence"], kind="stable")]
            latest = dict(zip(some["job"].tolist(), some["outcome"].tolist(), strict=True))
            good = sum(outcome == _GOOD for outcome in latest.values())
            tallies.append(Tally(len(latest), good))
        return tallies[0], tallies[1]


def _latest(rows: Ints, places: Ints, before: int) -> Ints:
    """Return the rows that became known last, before a place in the order of events."""
    known = (places >= 0) & (places < before)
    rows, places = rows[known], places[known]
    if len(rows) > MOST_OF_A_KIND:
        rows = rows[np.argpartition(places, -MOST_OF_A_KIND)[-MOST_OF_A_KIND:]]
    return rows
