"""What is known about a hold at a moment: related hold episodes in the state they are in then.

A hold's features are those of the moment it began. Then time passes: mates are released, and
finish or come back. The evidence is read at the moment of asking, so it knows what became of
them. It has two forms, both made here and nowhere else, for training and for advice alike:

* tokens, one for each of the most telling earlier episodes (and for some jobs of the cluster that
  ended without a hold), in the order of their latest news: what they share with the hold in
  question, how far they got, and how long ago;
* the query, a row of numbers about the hold itself, with counts of outcomes on every level: its
  job, cluster, reason, execution point, owner, program and so on.

Nothing counts that became known at or after the moment: an episode is as its events up to then
tell. Times are relative to how long a hold lasts at this site before it is released, so that a
pool whose owners react in seconds and one where they react in days look alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from condor_advice.gather.events import HoldCode
from condor_advice.gather.hashing import MIX
from condor_advice.preprocess.holds.facts import END, FACT, Ends, Facts, Moment
from condor_advice.preprocess.holds.job_numbers import cluster_of
from condor_advice.preprocess.holds.outcomes import OUTCOMES, Outcome

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Table = npt.NDArray[np.float32]

# The ways in which two holds can be related, closest first.
LEVELS = (
    "job",
    "cluster",
    "cluster_template",
    "program",
    "stem",
    "template",
    "point_template",
    "point",
    "family",
    "owner",
    "pool",
)
# On each of these levels the latest episodes are looked at: by decision, by release and by hold.
SEARCHED = ("cluster", "program", "stem", "template", "point", "family", "owner", "pool")
MOST_OF_A_KIND = 64
MOST_ENDS = 64


class State(IntEnum):
    """How far an episode had got at the moment of asking."""

    OPEN = 0  # still held
    PENDING = 1  # released, and nothing heard since
    GOOD = 2
    HELD_SAME = 3
    HELD_OTHER = 4
    FAILED = 5
    GONE = 6  # removed, before or after a release
    CHANGED = 7  # decided after a change
    ENDED_WELL = 8  # never held
    ENDED_BADLY = 9


_STATE_OF_OUTCOME = np.full(len(OUTCOMES), int(State.GONE), np.int64)
for _outcome, _state in (
    (Outcome.SUCCEEDED, State.GOOD),
    (Outcome.HELD_SAME, State.HELD_SAME),
    (Outcome.HELD_OTHER, State.HELD_OTHER),
    (Outcome.FAILED, State.FAILED),
):
    _STATE_OF_OUTCOME[OUTCOMES.index(_outcome)] = int(_state)

# How many tokens each relation may take, closest first; the rest goes to anything else.
QUOTAS = (
    ("job", 6),
    ("cluster", 18),
    ("program", 8),
    ("template", 14),
    ("family", 4),
    ("point", 6),
    ("pool", 2),
)
END_TOKENS = 6
MOST_TOKENS = sum(count for _, count in QUOTAS) + END_TOKENS
PER_CLUSTER_FIRST = 3  # of one cluster, before a second helping; outside of the hold's own
_SHARED = ("job", "cluster", "program", "stem", "template", "point", "family", "owner",
           "point_template")  # fmt: skip
TOKEN_COLUMNS = (
    *(f"same_{level}" for level in _SHARED),
    "same_code",
    *(f"state_{state.name.lower()}" for state in State),
    "held_ago",
    "wait",
    "released_ago",
    "return_time",
    "decided_ago",
    "number",
    "has_run",
    "run",
)
_OWN = (
    "number",
    "has_run",
    "run",
    "starts",
    "submit_known",
    "submitted_ago",
    "waiting",
    "point_known",
    "by_user",
    "released_before",
    "since_release",
    "site_wait",
    "site_wait_known",
)
_PER_LEVEL = ("good", "bad", "open", "pending", "changed", "last_good", "last_bad", "any_good",
              "any_bad")  # fmt: skip
_BY_CLUSTER = ("program", "template", "family", "pool")
QUERY_COLUMNS = (
    *_OWN,
    *(f"{level}_{name}" for level in LEVELS for name in _PER_LEVEL),
    *(f"{level}_clusters_{name}" for level in _BY_CLUSTER for name in ("good", "bad")),
    "ended_well",
    "ended_badly",
    "last_ended_well",
    "any_ended_well",
)
_LEVEL_PLACE = {level: place for place, level in enumerate(LEVELS)}
_TOKEN_PLACE = {name: place for place, name in enumerate(TOKEN_COLUMNS)}

DEFAULT_WAIT = 300.0  # seconds from hold to release, where the site has not shown its own
_MASK = np.uint64((1 << 62) - 1)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence about one hold at one moment."""

    tokens: Table  # axes: (token, TOKEN_COLUMNS), oldest news first
    query: Table  # QUERY_COLUMNS
    episodes: Ints  # of each token; -1 for a job that was never held

    def without(self, token: int) -> Evidence:
        """Return the evidence without one token."""
        return Evidence(
            np.delete(self.tokens, token, axis=0), self.query, np.delete(self.episodes, token)
        )


def level_keys(facts: Facts) -> Ints:
    """Return the key of each episode on each level; below zero where there is none.

    Axes: (level, episode).
    """
    template, point = facts["template"].astype(np.int64), facts["point"].astype(np.int64)
    cluster = cluster_of(facts["job"])
    keys = {
        "job": facts["job"],
        "cluster": cluster,
        "cluster_template": _mixed(cluster, template),
        "program": np.where(facts["program"] != 0, _mixed(facts["program"], 0), -1),
        "stem": np.where(facts["stem"] != 0, _mixed(facts["stem"], 0), -1),
        "template": template,
        "point_template": np.where(point >= 0, _mixed(point, template), -1),
        "point": point,
        "family": facts["family"].astype(np.int64),
        "owner": facts["owner"].astype(np.int64),
        "pool": np.zeros(len(facts), np.int64),
    }
    return np.stack([keys[level] for level in LEVELS]).astype(np.int64)


def _mixed(first: Ints, second: Ints | int) -> Ints:
    mixed = np.asarray(first, np.int64).astype(np.uint64) * MIX
    mixed ^= mixed >> np.uint64(29)
    mixed = (mixed ^ np.asarray(second, np.int64).astype(np.uint64)) * MIX
    mixed ^= mixed >> np.uint64(32)
    return (mixed & _MASK).astype(np.int64)


class EvidenceTable:
    """All episodes of an access point, indexed to give the evidence about any hold at any time."""

    def __init__(self, facts: Facts, ends: Ends | None = None) -> None:
        self.facts = facts
        self.ends = np.zeros(0, END) if ends is None else ends
        self._keys = level_keys(facts)
        self._job = _Index(self._keys[_LEVEL_PLACE["job"]], facts["sequence"])
        self._indexes = [
            (_LEVEL_PLACE[level], _Index(self._keys[_LEVEL_PLACE[level]], facts[when]))
            for level in SEARCHED
            for when in ("decided_sequence", "released_sequence", "sequence")
        ]
        self._ends = _Index(self.ends["cluster"], self.ends["sequence"])

    def evidence(self, rows: Sequence[int] | Ints, moments: Sequence[Moment]) -> list[Evidence]:
        """Return the evidence about holds in these rows, each at its moment."""
        chosen = np.asarray(rows, np.int64)
        before = np.array([moment.sequence for moment in moments], np.int64)
        keys = self._keys[:, chosen]
        spans = [
            (index, *index.span(keys[level], before, MOST_OF_A_KIND))
            for level, index in self._indexes
        ]
        own = self._job.span(keys[_LEVEL_PLACE["job"]], before, len(self.facts))
        clusters = keys[_LEVEL_PLACE["cluster"]]
        ends = self._ends.span(clusters, before, MOST_ENDS)
        result = []
        for place, (row, moment) in enumerate(zip(chosen.tolist(), moments, strict=True)):
            parts = [index.order[low[place] : high[place]] for index, low, high in spans]
            parts.append(self._job.order[own[0][place] : own[1][place]])
            seen = np.unique(np.concatenate(parts))
            seen = seen[seen != row]
            mates = self._ends.order[ends[0][place] : ends[1][place]]
            result.append(
                _encode(
                    self.facts[seen],
                    self._keys[:, seen],
                    self.ends[mates],
                    self.facts[row],
                    self._keys[:, row],
                    moment,
                )
            )
        return result


def evidence_about(hold: np.void, related: Facts, ends: Ends, moment: Moment) -> Evidence:
    """Return the evidence about a hold, from the related episodes that a store has looked up."""
    related = related[related["episode"] != hold["episode"]]
    row = np.array([hold], FACT)
    return _encode(related, level_keys(related), ends, hold, level_keys(row)[:, 0], moment)


class _Index:
    """Rows by key, in the order of what became known; those that never did are left out."""

    _BITS = 40

    def __init__(self, keys: Ints, sequence: Ints) -> None:
        known = np.flatnonzero((sequence >= 0) & (keys >= 0))
        self._distinct, dense = np.unique(keys[known], return_inverse=True)
        packed = (dense.astype(np.int64) << self._BITS) + sequence[known]
        order = np.argsort(packed, kind="stable")
        self._packed = packed[order]
        self.order = known[order]

    def span(self, keys: Ints, before: Ints, most: int) -> tuple[Ints, Ints]:
        """Return where in `order` the latest rows of each key stand that were known before."""
        if not len(self._distinct):
            nothing = np.zeros(len(keys), np.int64)
            return nothing, nothing
        place = np.minimum(np.searchsorted(self._distinct, keys), len(self._distinct) - 1)
        known = self._distinct[place] == keys
        base = place.astype(np.int64) << self._BITS
        low = np.searchsorted(self._packed, base)
        limit = base + np.minimum(before, (1 << self._BITS) - 1)
        high = np.searchsorted(self._packed, limit)
        high = np.where(known, high, low)
        return np.maximum(low, high - most), high


def _encode(
    facts: Facts, keys: Ints, ends: Ends, hold: np.void, hold_keys: Ints, moment: Moment
) -> Evidence:
    """Turn what is known into tokens and a query."""
    state, news = _present_state(facts, moment)
    seconds = _Seconds(facts, moment)
    same = (keys == hold_keys[:, None]) & (hold_keys[:, None] >= 0)
    query = _query(facts, keys, same, state, news, ends, hold, hold_keys, seconds)
    chosen = _choose(keys, same, news)
    ended = ends[-END_TOKENS:]
    tokens = np.zeros((len(chosen) + len(ended), len(TOKEN_COLUMNS)), np.float32)
    _fill_tokens(
        tokens[: len(chosen)], facts[chosen], same[:, chosen], state[chosen], hold, seconds
    )
    if len(ended):
        _fill_ends(tokens[len(chosen) :], ended, hold, seconds)
    order = np.argsort(np.concatenate((news[chosen], ended["sequence"])), kind="stable")
    episodes = np.concatenate((facts["episode"][chosen], np.full(len(ended), -1)))
    return Evidence(tokens[order], query, episodes[order])


def _present_state(facts: Facts, moment: Moment) -> tuple[Ints, Ints]:
    """Return the state of each episode at a moment, and the place of the latest news of it."""
    released = _known(facts["released_sequence"], facts["released"], moment)
    decided = _known(facts["decided_sequence"], facts["decided"], moment)
    outcome = _STATE_OF_OUTCOME[facts["outcome"]]
    outcome = np.where((facts["changed"] > 0) & (outcome != State.GONE), State.CHANGED, outcome)
    state = np.where(decided, outcome, np.where(released, State.PENDING, State.OPEN))
    news = np.where(
        decided,
        facts["decided_sequence"],
        np.where(released, facts["released_sequence"], facts["sequence"]),
    )
    return state, news


def _known(sequence: Ints, time: Ints, moment: Moment) -> Bools:
    known: Bools = (sequence >= 0) & (sequence < moment.sequence) & (time <= moment.time)
    return known


class _Seconds:
    """Times as numbers for a network: relative to the wait for a release that is usual here."""

    def __init__(self, facts: Facts, moment: Moment) -> None:
        self.moment = moment
        released = _known(facts["released_sequence"], facts["released"], moment)
        waits = (facts["released"][released] - facts["time"][released]) / 1e6
        self.site_known = len(waits) > 0
        self.site_wait = float(np.median(waits)) if self.site_known else DEFAULT_WAIT
        self._site = np.log1p(max(self.site_wait, 0.0))

    def scaled(self, seconds: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return lengths of time as numbers around zero."""
        values = np.log1p(np.maximum(np.asarray(seconds, np.float64), 0.0)) - self._site
        scaled: npt.NDArray[np.float64] = np.clip(values / 1.5, -5.0, 5.0)
        return scaled

    def ago(self, time: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return how long ago something was."""
        return self.scaled((self.moment.time - np.asarray(time)) / 1e6)

    def site(self) -> float:
        """Return the usual wait itself as a number around zero."""
        return float(np.clip((self._site - 6.0) / 2.5, -3.0, 3.0))


def _query(
    facts: Facts,
    keys: Ints,
    same: Bools,
    state: Ints,
    news: Ints,
    ends: Ends,
    hold: np.void,
    hold_keys: Ints,
    seconds: _Seconds,
) -> Table:
    good, bad = state == State.GOOD, (state >= State.HELD_SAME) & (state <= State.FAILED)
    kinds = np.stack(
        (good, bad, state == State.OPEN, state == State.PENDING, state == State.CHANGED)
    ).astype(np.float32)
    counts = same.astype(np.float32) @ kinds.T  # axes: (level, kind)
    when = facts["decided"].astype(np.float64)
    levels = np.zeros((len(LEVELS), len(_PER_LEVEL)), np.float32)
    levels[:, :5] = np.log1p(counts) / 2
    for place, which in enumerate((good, bad)):
        last = np.where(same & which, when, -np.inf).max(axis=1, initial=-np.inf)
        some = np.isfinite(last)
        levels[:, 5 + place] = np.where(some, seconds.ago(np.where(some, last, 0)), 0)
        levels[:, 7 + place] = some
    return np.concatenate(
        (
            _own_numbers(facts, same, hold, seconds),
            levels.ravel(),
            _by_cluster(keys, same, good, bad, news, hold_keys),
            _end_numbers(ends, seconds),
        )
    ).astype(np.float32)


def _own_numbers(facts: Facts, same: Bools, hold: np.void, seconds: _Seconds) -> Table:
    earlier = same[_LEVEL_PLACE["job"]] & (facts["released"] >= 0)
    earlier &= facts["sequence"] < hold["sequence"]
    released = int(facts["released"][earlier].max(initial=-1))
    run, submitted = float(hold["run"]), int(hold["submitted"])
    return np.array(
        [
            np.log1p(hold["number"]),
            run >= 0,
            seconds.scaled(run) if run >= 0 else 0,
            np.log1p(max(int(hold["starts"]), 0)),
            submitted >= 0,
            seconds.ago(submitted) if submitted >= 0 else 0,
            seconds.ago(hold["time"]),
            hold["point"] >= 0,
            hold["code"] == HoldCode.USER_REQUEST,
            released >= 0,
            seconds.scaled((int(hold["time"]) - released) / 1e6) if released >= 0 else 0,
            seconds.site(),
            seconds.site_known,
        ],
        np.float32,
    )


def _by_cluster(
    keys: Ints, same: Bools, good: Bools, bad: Bools, news: Ints, hold_keys: Ints
) -> Table:
    """Count other clusters by their latest outcome: one big cluster must not drown the rest."""
    result = np.zeros((len(_BY_CLUSTER), 2), np.float32)
    cluster = keys[_LEVEL_PLACE["cluster"]]
    decided = np.flatnonzero((good | bad) & (cluster != hold_keys[_LEVEL_PLACE["cluster"]]))
    if len(decided):
        decided = decided[np.lexsort((news[decided], cluster[decided]))]
        for place, level in enumerate(_BY_CLUSTER):
            rows = decided[same[_LEVEL_PLACE[level], decided]]
            if len(rows):
                last = rows[np.append(cluster[rows][1:] != cluster[rows][:-1], True)]
                well = int(good[last].sum())
                result[place] = np.log1p(well), np.log1p(len(last) - well)
    return result.ravel()


def _end_numbers(ends: Ends, seconds: _Seconds) -> Table:
    well = ends["good"] > 0
    last = int(ends["time"][well].max(initial=-1))
    return np.array(
        [
            np.log1p(well.sum()) / 2,
            np.log1p((~well).sum()) / 2,
            seconds.ago(last) if last >= 0 else 0,
            last >= 0,
        ],
        np.float32,
    )


def _choose(keys: Ints, same: Bools, news: Ints) -> Ints:
    """Choose the episodes that become tokens: of the closest relation first, latest news first."""
    order = np.argsort(-news, kind="stable")
    relation = _closest(same)[order]
    cluster = keys[_LEVEL_PLACE["cluster"]]
    chosen = []
    for place, (level, most) in enumerate(QUOTAS):
        rows = order[relation == place]
        if len(rows) > most and level not in ("job", "cluster"):
            rank = _rank_within(cluster[rows])
            rows = np.concatenate((rows[rank < PER_CLUSTER_FIRST], rows[rank >= PER_CLUSTER_FIRST]))
        chosen.append(rows[:most])
    return np.concatenate(chosen)


def _closest(same: Bools) -> Ints:
    """Return the closest relation of each episode, as its place in QUOTAS."""
    relation = np.full(same.shape[1], len(QUOTAS) - 1)
    for place in range(len(QUOTAS) - 2, -1, -1):
        relation[same[_LEVEL_PLACE[QUOTAS[place][0]]]] = place
    return relation


def _rank_within(groups: Ints) -> Ints:
    """Return how many of the same group come before each."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    index = np.arange(len(groups))
    begins = np.append(True, ordered[1:] != ordered[:-1])
    rank = np.empty(len(groups), np.int64)
    rank[order] = index - np.maximum.accumulate(np.where(begins, index, 0))
    return rank


def _fill_tokens(
    tokens: Table, facts: Facts, same: Bools, state: Ints, hold: np.void, seconds: _Seconds
) -> None:
    for place, level in enumerate(_SHARED):
        tokens[:, place] = same[_LEVEL_PLACE[level]]
    column = _TOKEN_PLACE
    tokens[:, column["same_code"]] = facts["code"] == hold["code"]
    tokens[np.arange(len(facts)), column["state_open"] + state] = 1
    released = _known(facts["released_sequence"], facts["released"], seconds.moment)
    decided = _known(facts["decided_sequence"], facts["decided"], seconds.moment)
    wait = (facts["released"] - facts["time"]) / 1e6
    back = (facts["decided"] - facts["released"]) / 1e6
    tokens[:, column["held_ago"]] = seconds.ago(facts["time"])
    tokens[:, column["wait"]] = np.where(released, seconds.scaled(wait), 0)
    tokens[:, column["released_ago"]] = np.where(released, seconds.ago(facts["released"]), 0)
    tokens[:, column["return_time"]] = np.where(released & decided, seconds.scaled(back), 0)
    tokens[:, column["decided_ago"]] = np.where(decided, seconds.ago(facts["decided"]), 0)
    tokens[:, column["number"]] = np.log1p(facts["number"])
    tokens[:, column["has_run"]] = facts["run"] >= 0
    tokens[:, column["run"]] = np.where(facts["run"] >= 0, seconds.scaled(facts["run"]), 0)


def _fill_ends(tokens: Table, ends: Ends, hold: np.void, seconds: _Seconds) -> None:
    column = _TOKEN_PLACE
    tokens[:, column["same_cluster"]] = tokens[:, column["same_owner"]] = 1
    tokens[:, column["same_point"]] = (ends["point"] == hold["point"]) & (hold["point"] >= 0)
    state = np.where(ends["good"] > 0, State.ENDED_WELL, State.ENDED_BADLY)
    tokens[np.arange(len(ends)), column["state_open"] + state] = 1
    tokens[:, column["decided_ago"]] = seconds.ago(ends["time"])


@dataclass(frozen=True, slots=True)
class Occlusion:
    """What would be known without a group of related episodes: shows what these contribute."""

    relation: str  # the closest level that they share with the hold
    state: State
    episodes: int
    jobs: int
    seconds_ago: float  # since the latest news of them
    evidence: Evidence


def occlusions(hold: np.void, related: Facts, ends: Ends, moment: Moment) -> list[Occlusion]:
    """Return the evidence without each group of episodes that share a relation and a state."""
    related = related[related["episode"] != hold["episode"]]
    keys = level_keys(related)
    hold_keys = level_keys(np.array([hold], FACT))[:, 0]
    state, _ = _present_state(related, moment)
    same = (keys == hold_keys[:, None]) & (hold_keys[:, None] >= 0)
    relation = _closest(same)
    times = np.stack((related["time"], related["released"], related["decided"]))
    latest = np.where(times <= moment.time, times, -1).max(axis=0, initial=-1)
    groups = []
    for place, (level, _) in enumerate(QUOTAS):
        for which in np.unique(state[relation == place]).tolist():
            group = (relation == place) & (state == which)
            rest = ~group
            groups.append(
                Occlusion(
                    level,
                    State(which),
                    int(group.sum()),
                    len(np.unique(related["job"][group])),
                    (moment.time - int(latest[group].max())) / 1e6,
                    _encode(related[rest], keys[:, rest], ends, hold, hold_keys, moment),
                )
            )
    if len(ends):
        none = ends[:0]
        well = bool(ends["good"][-1])
        groups.append(
            Occlusion(
                "cluster",
                State.ENDED_WELL if well else State.ENDED_BADLY,
                len(ends),
                len(ends),
                (moment.time - int(ends["time"].max())) / 1e6,
                _encode(related, keys, none, hold, hold_keys, moment),
            )
        )
    return groups
