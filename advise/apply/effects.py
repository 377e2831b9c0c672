"""Find outcomes of releases in the queue, the schedd's history, the store or the job's log."""

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
from condor_advice.preprocess.holds.episodes import HoldEpisode, hold_episodes, outcome_of
from condor_advice.preprocess.holds.outcomes import Outcome

_EFFECTS = {
    Outcome.SUCCEEDED: Effect.SUCCEEDED,
    Outcome.HELD_SAME: Effect.HELD_AGAIN,
    Outcome.HELD_OTHER: Effect.HELD_AGAIN,
    Outcome.FAILED: Effect.FAILED,
    Outcome.REMOVED: Effect.REMOVED,
}


@dataclass(frozen=True, slots=True)
class OutcomeSources:
    """Where to look for the outcomes of actions; any of them may be missing."""

    access_point: AccessPoint | None
    store: Path | None
    margin_seconds: (
        float  # a run must outlast the earlier one by this much to count as past the hold
    )

    def update(self, actions: Sequence[Action], now: float) -> list[Action]:
        """Return the actions, with the outcome so far of those that were open."""
        ads = self._ads([action for action in actions if is_open(action)])
        logs: dict[str, list[JobSequence]] = {}  # by path: the jobs of a cluster usually share one
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
        """Judge an action by the store, then by the job's own log.

        With `gone`, the job has left the queue; if no event says how, the effect is unknown.
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


def reachable_sources(store: Path | None, margin_seconds: float = 60.0) -> OutcomeSources:
    """Return the local schedd, if it answers, and the files on disk."""
    try:
        point = AccessPoint.find()
        point.jobs([(0, 0)], ("ClusterId", "ProcId"))  # a schedd can be found and still not answer
    except AdviceError:
        return OutcomeSources(None, store, margin_seconds)
    return OutcomeSources(point, store, margin_seconds)


def is_open(action: Action) -> bool:
    """Tell whether the outcome of an action may still change."""
    return (
        action.action == "release"
        and action.result is Result.DONE
        and action.effect in OPEN_EFFECTS
    )


def past_with_effects(
    sources: OutcomeSources, store: Path | None, now: float, *, since: float = 0.0
) -> list[Action]:
    """Return all actions with their outcomes, and record new outcomes in their ledgers."""
    recorded = past_actions(store, since=since)
    after = sources.update([action for _, action in recorded], now)
    for ledger_file in {path for path, _ in recorded}:
        changed = [
            new
            for (path, old), new in zip(recorded, after, strict=True)
            if path == ledger_file and new != old
        ]
        if changed:
            # Without write permission the outcomes are still returned.
            with contextlib.suppress(AdviceError), Ledger(ledger_file) as ledger:
                ledger.finish(changed)
    return after


def by_ad(action: Action, ad: Mapping[str, Any], now: float, margin_seconds: float) -> Action:
    """Judge a release by the job's ad, in the queue or in the schedd's history."""
    status, entered = ad.get("JobStatus"), float(ad.get("EnteredCurrentStatus", now))
    if status == JobStatus.HELD:
        return _with_effect(
            action, Effect.HELD_AGAIN, entered
        )  # the release is known to have been done
    if status == JobStatus.REMOVED:
        return _with_effect(action, Effect.REMOVED, entered)
    if status == JobStatus.COMPLETED:
        well = not ad.get("ExitBySignal") and ad.get("ExitCode") == 0
        return _with_effect(action, Effect.SUCCEEDED if well else Effect.FAILED, entered)
    began = ad.get("JobCurrentStartExecutingDate")
    if (
        status == JobStatus.RUNNING
        and isinstance(began, int | float)
        and began >= int(action.at)
        and action.advice.code not in AT_THE_END
        and now - began > 1.1 * (action.run_seconds or 0.0) + margin_seconds
    ):
        return _with_effect(action, Effect.PAST, now)
    return action


def by_episode(action: Action, episode: HoldEpisode) -> Action:
    """Judge a release by the events after the hold."""
    effect = _EFFECTS.get(outcome_of(episode))
    if effect is None:
        return action
    return _with_effect(action, effect, episode.aftermath[-1].time.timestamp())


def _with_effect(action: Action, effect: Effect, at: float) -> Action:
    """Return the action with a new effect; an effect already known keeps its time."""
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
