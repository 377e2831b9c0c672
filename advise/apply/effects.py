"""Outcomes of releases: from the queue, the schedd's history, the store, or the job's own log."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from condor_advice.advise.apply.plan import AT_THE_END, UNCHANGED_HOLD_SECONDS
from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.events import JobId, JobStatus
from condor_advice.gather.ledger import OPEN_EFFECTS, Action, Effect, Ledger, Result, past_actions
from condor_advice.gather.live import AccessPoint
from condor_advice.gather.regular import MOST_OWN_LOG_BYTES
from condor_advice.gather.sequences import JobSequence, read_log, sequences
from condor_advice.gather.store import Store, default_store_path
from condor_advice.preprocess.holds.episodes import HoldEpisode, Outcome, hold_episodes, outcome_of

_EFFECTS = {
    Outcome.SUCCEEDED: Effect.SUCCEEDED,
    Outcome.HELD_SAME: Effect.HELD_AGAIN,
    Outcome.HELD_OTHER: Effect.HELD_AGAIN,
    Outcome.FAILED: Effect.FAILED,
    Outcome.REMOVED: Effect.REMOVED,
}


@dataclass(frozen=True, slots=True)
class Look:
    """Where to look for the outcomes of actions; any of the places may be missing."""

    access_point: AccessPoint | None
    store: Path | None
    margin_seconds: float  # a run this much longer than before its hold got past it

    def at(self, actions: Sequence[Action], now: float) -> list[Action]:
        """Return the actions, those that were open with their outcome so far."""
        wanted = [action for action in actions if is_open(action)]
        ads = self._ads(wanted)
        logs: dict[str, list[JobSequence]] = {}  # jobs of a cluster mostly share one
        updated = []
        for action in actions:
            if is_open(action):
                ad = ads.get(action.advice.job)
                if ad is not None:
                    action = by_ad(action, ad, now, self.margin_seconds)
                elif self.access_point is None or _is_local(action, self.access_point):
                    gone = self.access_point is not None
                    action = self._by_events(action, logs, gone=gone)
            updated.append(action)
        return updated

    def _ads(self, actions: Sequence[Action]) -> dict[JobId, Mapping[str, Any]]:
        point = self.access_point
        if point is None or not actions:
            return {}
        jobs = [action.advice.job for action in actions if _is_local(action, point)]
        ids = [(job.cluster, job.proc) for job in jobs]
        ads = {live.job: live.ad for live in point.jobs(ids)}
        missing = [pair for job, pair in zip(jobs, ids, strict=True) if job not in ads]
        since = min(action.at for action in actions)
        return ads | {live.job: live.ad for live in point.finished_jobs(missing, since)}

    def _by_events(
        self, action: Action, logs: dict[str, list[JobSequence]], *, gone: bool
    ) -> Action:
        """Look into the store, then into the job's own log.

        With `gone`, the job has left the queue; if nothing tells how, the effect is unknown.
        """
        job = action.advice.job
        for sequence in (*self._stored(job), *_logged(action, logs)):
            for episode in hold_episodes(sequence):
                off = abs(episode.hold.time.timestamp() - action.advice.held_at)
                if off <= UNCHANGED_HOLD_SECONDS:
                    decided = by_episode(action, episode)
                    if decided.effect is not Effect.WAITING:
                        return decided
        return replace(action, effect=Effect.UNKNOWN, effect_at=action.at) if gone else action

    def _stored(self, job: JobId) -> list[JobSequence]:
        path = self.store or default_store_path()
        if not path.exists():
            return []
        with contextlib.suppress(AdviceError), Store(path, readonly=True) as store:
            return [
                sequence
                for sequence in sequences(
                    event
                    for piece in store.job_pieces(job.cluster, job.proc)
                    for event in piece.columns.events(piece.access_point)
                )
                if sequence.job.access_point == job.access_point
            ]
        return []


def wherever_possible(store: Path | None, margin_seconds: float = 60.0) -> Look:
    """Return a look at the schedd of this machine if it answers, and at what is on disk."""
    try:
        point = AccessPoint.find()
        point.jobs([(0, 0)], ("ClusterId", "ProcId"))  # finding it does not say that it answers
    except AdviceError:
        return Look(None, store, margin_seconds)
    return Look(point, store, margin_seconds)


def is_open(action: Action) -> bool:
    """Tell whether the outcome of an action may still change."""
    return (
        action.action == "release"
        and action.result is Result.DONE
        and action.effect in OPEN_EFFECTS
    )


def past_with_effects(
    look: Look, store: Path | None, now: float, *, since: float = 0.0
) -> list[Action]:
    """Return all actions with their outcomes, and record new outcomes in their ledgers."""
    recorded = past_actions(store, since=since)
    after = look.at([action for _, action in recorded], now)
    for place in {path for path, _ in recorded}:
        changed = [
            new
            for (path, old), new in zip(recorded, after, strict=True)
            if path == place and new != old
        ]
        if changed:
            # Without write permission the outcomes are still returned.
            with contextlib.suppress(AdviceError), Ledger(place) as ledger:
                ledger.finish(changed)
    return after


def by_ad(action: Action, ad: Mapping[str, Any], now: float, margin_seconds: float) -> Action:
    """Judge a release by the job's ad, in the queue or in the schedd's history."""
    status, entered = ad.get("JobStatus"), float(ad.get("EnteredCurrentStatus", now))
    if status == JobStatus.HELD:
        return _with(action, Effect.HELD_AGAIN, entered)  # the release was seen to be done
    if status == JobStatus.REMOVED:
        return _with(action, Effect.REMOVED, entered)
    if status == JobStatus.COMPLETED:
        well = not ad.get("ExitBySignal") and ad.get("ExitCode") == 0
        return _with(action, Effect.SUCCEEDED if well else Effect.FAILED, entered)
    began = ad.get("JobCurrentStartExecutingDate")
    if (
        status == JobStatus.RUNNING
        and isinstance(began, int | float)
        and began >= int(action.at)
        and action.advice.code not in AT_THE_END
        and now - began > 1.1 * (action.run_seconds or 0.0) + margin_seconds
    ):
        return _with(action, Effect.PAST, now)
    return action


def by_episode(action: Action, episode: HoldEpisode) -> Action:
    """Judge a release by the events after the hold."""
    effect = _EFFECTS.get(outcome_of(episode))
    if effect is None:
        return action
    return _with(action, effect, episode.aftermath[-1].time.timestamp())


def _with(action: Action, effect: Effect, at: float) -> Action:
    """Return the action with a new effect; the time of an effect already known stays."""
    if action.effect is effect:
        return action
    return replace(action, effect=effect, effect_at=at)


def _is_local(action: Action, point: AccessPoint) -> bool:
    return action.advice.access_point in ("", point.name)


def _logged(action: Action, logs: dict[str, list[JobSequence]]) -> list[JobSequence]:
    path, job = action.user_log, action.advice.job
    if not path:
        return []
    if path not in logs:
        logs[path] = []
        with contextlib.suppress(AdviceError, OSError):
            logs[path] = sequences(
                read_log(path, Clock(find_zone(None)), MOST_OWN_LOG_BYTES).events()
            )
    return [
        sequence
        for sequence in logs[path]
        if (sequence.job.cluster, sequence.job.proc) == (job.cluster, job.proc)
    ]
