"""Find the holds to judge: live job ads, joined with the store, or event logs alone.

The live job ad describes the current hold; the store has what led to it and what happened around
it. A job that was held after the last gathering is looked up in its own log. A source that is
missing is left out and named in a note: the best answer from the others is still given.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from condor_advice.advise.holds import Hold, hold_of_ad, hold_of_episode
from condor_advice.advise.jobids import WantedJobs
from condor_advice.advise.site import Site
from condor_advice.gather.errors import AdviceError, NoSuchJob, Unreachable, UsageError
from condor_advice.gather.events import (
    SAME_HOLD_SECONDS,
    SUBMITTING_SECONDS,
    HoldCode,
    JobId,
    JobStatus,
)
from condor_advice.gather.regular import MOST_OWN_LOG_BYTES, size_of_regular
from condor_advice.gather.store import (
    NoStoreYet,
    Store,
    StoreUnreachable,
    default_store_path,
    job_key,
)
from condor_advice.preprocess.holds.episode_store import KeptEpisode, KeptEpisodes
from condor_advice.preprocess.holds.job_numbers import MOST_PROCS

if TYPE_CHECKING:
    from condor_advice.gather.live import AccessPoint, LiveJob
    from condor_advice.gather.reader import EventColumns

STATUS_WORDS: dict[int, str] = {
    JobStatus.IDLE: "idle",
    JobStatus.RUNNING: "running",
    JobStatus.REMOVED: "removed",
    JobStatus.COMPLETED: "completed",
    JobStatus.TRANSFERRING_OUTPUT: "transferring its output",
    JobStatus.SUSPENDED: "suspended",
}
# For a longer range the schedd is asked for the whole cluster: a term per proc keeps it busy.
LONGEST_LIST = 1000
MOST_IDLE = 1000  # jobs of one cluster that are asked about
QUARTER = 900.0
MOST_ZONES_APART = 26 * 3600.0
# How many of the jobs' own logs are read; for jobs in further ones the rules answer.
MOST_OWN_LOGS = 50
MOST_OWN_LOG_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: which jobs, and from which source."""

    wanted: tuple[WantedJobs, ...] = ()
    logs: tuple[str, ...] = ()
    store: str | None = None
    number: int | None = None
    at: datetime | None = None  # ask as of right before this moment
    zone: str | None = None
    everybody: bool = False
    user: str | None = None
    constraint: str | None = None
    bare_word: bool = False  # `user` was given without --user, and may be a typing error

    @property
    def is_of_the_past(self) -> bool:
        """Tell whether it asks about an earlier hold or an earlier moment."""
        return self.number is not None or self.at is not None

    @property
    def at_us(self) -> int | None:
        """The moment to ask as of, in microseconds since the epoch."""
        return None if self.at is None else round(self.at.timestamp() * 1e6)

    def means(self, episode: KeptEpisode) -> bool:
        """Tell whether an episode is the hold of its job that the question is about."""
        if self.at_us is not None:
            return episode.is_held_before(self.at_us)
        return episode.is_open if self.number is None else episode.number == self.number

    def without_hold(self) -> str:
        """Say that a job does not have the hold that the question is about."""
        if self.at is not None:
            return f"was not on hold at {self.at.isoformat(' ')}"
        return "is not on hold" if self.number is None else f"has no hold number {self.number}"


@dataclass(slots=True)
class Found:
    """The holds to judge, and which jobs and sources are missing."""

    holds: list[Hold] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # named jobs without an answer, and why
    unjudged: list[str] = field(default_factory=list)  # held jobs that cannot be judged, and why
    idle: list[LiveJob] = field(default_factory=list)  # named jobs that wait for a slot
    private: bool = False  # other people's jobs are counted, not listed
    closing: list[Store] = field(default_factory=list)

    def close(self) -> None:
        """Close the stores; evidence for the holds can no longer be looked up."""
        for store in self.closing:
            store.close()


def find_holds(question: Question, site: Site) -> Found:
    """Find the holds in the source that the question names.

    If only some of the named jobs are found, these are returned; if none is, NoSuchJob is raised.
    """
    if question.logs:
        found = _from_logs(question)
    elif question.store is not None:
        found = _from_store(question, site, question.store)
    else:
        found = _from_schedd(question, site)
    if found.missing and not found.holds and not found.idle:
        found.close()
        raise NoSuchJob("; ".join(found.missing))
    # A job named twice, by its id and by its cluster, is answered once.
    found.holds = list({(hold.job, hold.at): hold for hold in found.holds}.values())
    return found


# ---- event logs ------------------------------------------------------------------------------


def _from_logs(question: Question) -> Found:
    if question.constraint or question.user:
        option = "--constraint" if question.constraint else "--user"
        raise UsageError(f"{option} applies to the schedd and the store, not to --log")
    kept = read_logs(question.logs, question.zone)
    if kept.last_us is None:
        _complain_of_empty(question.logs)
    found = Found()
    found.holds = _chosen(kept, question, found.missing, lambda jobs: _in_logs(question, jobs))
    return found


def read_logs(logs: Iterable[str], zone: str | None, access_point: str = "") -> KeptEpisodes:
    """Read event logs into hold episodes, in memory only."""
    from condor_advice.gather.clock import Clock, find_zone
    from condor_advice.preprocess.holds.timeline import log_timeline

    return KeptEpisodes.of_timeline(log_timeline(logs, Clock(find_zone(zone)), access_point))


def _complain_of_empty(logs: Sequence[str]) -> None:
    for log in logs:
        problem = "is empty" if not os.path.getsize(log) else "contains no HTCondor job events"
        raise AdviceError(f"{log}: {problem}; name the file after `log =` in the submit file")


def _in_logs(question: Question, jobs: WantedJobs) -> bool:
    """Tell whether a job without a hold is in the logs at all."""
    from condor_advice.gather.clock import Clock, find_zone
    from condor_advice.preprocess.holds.timeline import log_blocks

    clock = Clock(find_zone(question.zone))
    for log in question.logs:
        for columns in log_blocks(Path(log), clock):
            rows = columns.cluster == jobs.cluster
            if jobs.first is not None:
                rows &= (columns.proc >= jobs.first) & (columns.proc <= (jobs.last or jobs.first))
            if rows.any():
                return True
    return False


# ---- a store ---------------------------------------------------------------------------------


def _from_store(question: Question, site: Site, path: str | os.PathLike[str]) -> Found:
    if question.constraint is not None:
        raise UsageError("--constraint applies to the schedd; leave out --store, or name job ids")
    found = Found()
    store = Store(path, readonly=True)
    found.closing.append(store)
    kept = KeptEpisodes(store)
    if not kept.ready:
        kept = _kept_of_pieces(store, question.wanted)
        found.notes.append(
            f"{path}: has no hold episodes yet; `condor-advice gather` adds them, which makes "
            "advice faster and lets it take the rest of the pool into account"
        )
    else:
        _note_age(found, kept, site, store)
    owner = question.user
    if owner is None and not question.wanted and not question.everybody:
        owner = _own_name_if_known(kept)
    # A caller who names a job knows it; one who asks for all gets others' jobs counted only,
    # unless the site's own file (never the caller's) or the ownership of the store allows more.
    named = bool(question.wanted) or site.show_others or _own_file(store.path)
    found.private = not named
    found.holds = _chosen(kept, question, found.missing, lambda jobs: _in_store(store, jobs), owner)
    return found


def _kept_of_pieces(store: Store, wanted: Sequence[WantedJobs]) -> KeptEpisodes:
    """Make the episodes of a store that has none: of the wanted clusters, or of all of it."""
    from condor_advice.preprocess.holds.timeline import LogSource, Timeline, store_timeline

    if not wanted:
        return KeptEpisodes.of_timeline(store_timeline(store))
    sources: dict[tuple[str, str], list[EventColumns]] = {}
    for cluster in dict.fromkeys(jobs.cluster for jobs in wanted):
        for piece in store.job_pieces(cluster):
            sources.setdefault((piece.log, piece.access_point), []).append(piece.columns)
    return KeptEpisodes.of_timeline(
        Timeline([LogSource(log, point, iter(blocks)) for (log, point), blocks in sources.items()])
    )


def _note_age(found: Found, kept: KeptEpisodes, site: Site, store: Store) -> None:
    _, taken_up_at = kept.taken_up()
    age = time.time() - taken_up_at
    if age > 60 * site.stale_minutes:
        shown = f"{age / 3600:.0f} hours" if age < 48 * 3600 else f"{age / 86400:.0f} days"
        found.notes.append(
            f"{store.path}: last updated {shown} ago; `condor-advice gather` brings it up to date"
        )


def _own_name_if_known(kept: KeptEpisodes) -> str | None:
    """Return the caller's name if the store knows the owners of jobs."""
    from condor_advice.advise.advice import caller

    return caller() if kept.knows_owners() else None


def _own_file(path: os.PathLike[str]) -> bool:
    user = os.geteuid()
    return user == 0 or os.stat(path).st_uid == user


def _in_store(store: Store, jobs: WantedJobs) -> bool:
    first, last = jobs.first or 0, MOST_PROCS if jobs.first is None else jobs.last or jobs.first
    return bool(
        store.rows(
            "SELECT 1 FROM jobs WHERE job BETWEEN ? AND ? LIMIT 1",
            (job_key(jobs.cluster, first), job_key(jobs.cluster, last)),
        )
    )


def _chosen(
    kept: KeptEpisodes,
    question: Question,
    missing: list[str],
    is_known: Callable[[WantedJobs], bool],
    owner: str | None = None,
) -> list[Hold]:
    """Return the hold to judge for each wanted job, in the order of the question."""
    past = question.is_of_the_past
    if not question.wanted:
        if question.at_us is not None:
            every = kept.holds_before(question.at_us, owner)
        elif question.number is not None:
            every = kept.numbered_holds(question.number, owner)
        else:
            every = kept.open_holds(owner)
        return [hold_of_episode(episode, kept, past) for episode in every]
    holds: list[Hold] = []
    for jobs in question.wanted:
        last = MOST_PROCS if jobs.first is None else jobs.last or jobs.first
        every = kept.holds_of(jobs.cluster, jobs.first or 0, last, jobs.access_point)
        meant = [episode for episode in every if question.means(episode)]
        chosen = list({episode.job: episode for episode in meant}.values())
        if not chosen:
            problem = question.without_hold()
            if not every and not is_known(jobs):
                problem = "not found; check the id, or name its --log"
            missing.append(f"job {jobs}: {problem}")
        holds += [hold_of_episode(episode, kept, past) for episode in chosen]
    return holds


# ---- the schedd ------------------------------------------------------------------------------


def _from_schedd(question: Question, site: Site) -> Found:
    names = {jobs.access_point for jobs in question.wanted if jobs.access_point is not None}
    if len(names) > 1:
        raise UsageError("the job ids name several access points; name one at a time")
    found = Found()
    try:
        point = _find_point(names)
        live = _live_jobs(point, question, found)
    except Unreachable as error:
        return _without_schedd(question, site, error)
    kept = _default_store(found, site)
    if question.is_of_the_past:
        for job in live:
            earlier = _earlier(job, question, kept)
            if earlier is not None:
                found.holds.append(earlier)
            else:
                found.missing.append(
                    f"job {job.job}: {question.without_hold()}, as far as the store and its log "
                    "tell"
                )
    else:
        found.holds = _join(live, kept, found.unjudged)
    return found


def _find_point(names: set[str]) -> AccessPoint:
    """Find the schedd; the local one is found without asking the collector."""
    from condor_advice.gather.live import AccessPoint

    local = AccessPoint.find()
    for name in names:
        if name not in (local.name, local.name.split("@")[-1]):
            return AccessPoint.find(name)
    return local


def _live_jobs(point: AccessPoint, question: Question, found: Found) -> list[LiveJob]:
    """Ask the schedd once; tell jobs that are gone from jobs that are not held.

    Named jobs that are idle are asked for once more, with all their attributes.
    """
    if not question.wanted:
        constraint = question.constraint
        if question.user is not None:
            owner = f'Owner == "{_quoted(question.user)}"'
            constraint = owner if constraint is None else f"({constraint}) && {owner}"
        mine = not (question.everybody or constraint)
        return point.held_jobs(constraint=constraint, mine=mine)
    named: list[tuple[int, int | None]] = []
    for jobs in question.wanted:
        last = MOST_PROCS if jobs.first is None else jobs.last or jobs.first
        procs = range(jobs.first or 0, last + 1)
        some = procs if len(procs) <= LONGEST_LIST else [None]
        named += [(jobs.cluster, proc) for proc in some]
    everything = point.jobs(named)
    chosen = []
    idle: list[tuple[int, int | None]] = []
    for jobs in question.wanted:
        queued = [live for live in everything if jobs.includes(live.job.cluster, live.job.proc)]
        if not queued:
            found.missing.append(
                f"job {jobs}: not in the queue of {point.name}; "
                "if it has ended, its log may tell: --log FILE"
            )
            continue
        held = [
            live
            for live in queued
            if live.ad.get("JobStatus") == JobStatus.HELD or question.is_of_the_past
        ]
        waiting = [live for live in queued if live.ad.get("JobStatus") == JobStatus.IDLE]
        if not held and waiting:
            idle += [(live.job.cluster, live.job.proc) for live in waiting[:MOST_IDLE]]
        elif not held:
            status = STATUS_WORDS.get(int(queued[0].ad.get("JobStatus", 0)), "in another state")
            state = f"it is {status}" if len(queued) == 1 else f"none of its {len(queued)} jobs is"
            found.missing.append(f"job {jobs}: is not on hold; {state}")
        chosen += held
    found.idle = point.jobs(idle, attributes=())
    return chosen


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _default_store(found: Found, site: Site) -> KeptEpisodes | None:
    """Open the default store, if there is one."""
    path = default_store_path()
    try:
        store = Store(path, readonly=True)
    except StoreUnreachable as error:
        why = "there is no store yet" if isinstance(error, NoStoreYet) else str(error)
        found.notes.append(
            f"{why}, so there is no evidence from similar holds on this access point; "
            "`condor-advice gather` makes one"
        )
        return None
    kept = KeptEpisodes(store)
    if not kept.ready:
        store.close()
        found.notes.append(f"{path}: has no hold episodes yet; run `condor-advice gather` once")
        return None
    found.closing.append(store)
    _note_age(found, kept, site, store)
    return kept


def cannot_judge(job: JobId, error: Exception) -> str:
    """Say that one job cannot be judged; the log keeps the details.

    A user can write almost anything into a job's ad and log. One such job must not cost everybody
    else the answer.
    """
    _log_error(f"job {job} cannot be judged", error)
    return f"job {job}: cannot be judged ({type(error).__name__}: {error})"


def _log_error(message: str, error: Exception) -> None:
    import logging  # not above: most answers meet no error, and start sooner without it

    logging.getLogger("condor_advice").debug("%s", message, exc_info=error)


def _join(live: Sequence[LiveJob], kept: KeptEpisodes | None, unjudged: list[str]) -> list[Hold]:
    """Give each live job its episode: from the store, or else from its own log."""
    known = kept.latest_of([held.job for held in live]) if kept is not None else {}
    without = [held for held in live if not _is_this_hold(known.get(held.job), held)]
    own = _own_episodes(without)
    holds = []
    for held in live:
        try:
            holds.append(_hold_of(held, known.get(held.job), own.get(held.job), kept))
        except Exception as error:  # a stranger wrote the ad
            unjudged.append(cannot_judge(held.job, error))
    return holds


def _hold_of(
    live: LiveJob,
    episode: KeptEpisode | None,
    own: tuple[KeptEpisode, KeptEpisodes] | None,
    kept: KeptEpisodes | None,
) -> Hold:
    if _is_this_hold(episode, live):
        return hold_of_ad(live.job, live.ad, episode, kept)
    if own is not None:
        episode, own_log = own
        note = "held after the store was last updated; only its own log was read"
        return hold_of_ad(live.job, live.ad, episode, own_log, note if kept else "")
    note = "its events are unknown: neither the store nor its log has this hold"
    if live.ad.get("HoldReasonCode") == HoldCode.SUBMITTED_ON_HOLD:
        note = ""  # such a hold has no event, so nothing is missing
    return hold_of_ad(live.job, live.ad, missing=note)


def _is_this_hold(episode: KeptEpisode | None, live: LiveJob) -> bool:
    """Tell whether an episode is the hold that the job is in now."""
    if episode is None or not episode.is_open:
        return False
    later = episode.time_us / 1e6 - float(live.ad.get("EnteredCurrentStatus", 0))
    apart = abs(later)
    if apart <= SAME_HOLD_SECONDS:
        return True
    same = episode.reason.strip() == str(live.ad.get("HoldReason", "")).strip()
    if same and episode.number == 1 and 0 < later <= SUBMITTING_SECONDS:
        return True  # an earlier hold has no later event
    # A log in another time zone is off by whole quarters of an hour; the reason must then be the
    # same. Another hold with the same reason would be off by some other time.
    off = min(apart % QUARTER, QUARTER - apart % QUARTER)
    return same and off <= SAME_HOLD_SECONDS and apart <= MOST_ZONES_APART


def _own_episodes(
    live: Sequence[LiveJob],
) -> dict[JobId, tuple[KeptEpisode, KeptEpisodes]]:
    """Read the jobs' own logs, as far as they are readable."""
    by_log: dict[str, list[LiveJob]] = {}
    for held in live:
        if path := held.ad.get("UserLog"):
            full = os.path.join(str(held.ad.get("Iwd", "")), str(path))
            by_log.setdefault(full, []).append(held)
    episodes: dict[JobId, tuple[KeptEpisode, KeptEpisodes]] = {}
    budget = MOST_OWN_LOG_BYTES
    deadline = time.monotonic() + MOST_OWN_LOG_SECONDS
    for path, jobs in list(by_log.items())[:MOST_OWN_LOGS]:
        if time.monotonic() > deadline:
            break
        size = size_of_regular(path)
        if size is None or size > budget:
            continue  # the next one may be smaller
        budget -= size
        own = _own_log(path, jobs[0].job.access_point)
        if own is None:
            continue
        for job, episode in own.latest_of([held.job for held in jobs]).items():
            episodes[job] = (episode, own)
        for held in jobs:
            if held.job in episodes and not _is_this_hold(episodes[held.job][0], held):
                del episodes[held.job]
    return episodes


def _own_log(path: str, access_point: str) -> KeptEpisodes | None:
    """Read a job's own log; None if it cannot be read or has no events."""
    size = size_of_regular(path)
    if size is None or size > MOST_OWN_LOG_BYTES:
        return None
    try:
        kept = read_logs([path], None, access_point)
    except Exception as error:  # a stranger wrote the log, or put something else in its place
        _log_error(f"{path} cannot be read", error)
        return None
    return kept if kept.last_us is not None else None


def _earlier(live: LiveJob, question: Question, kept: KeptEpisodes | None) -> Hold | None:
    """Return an earlier hold of a live job; None if neither store nor log has it."""
    job = live.job
    if kept is not None:
        for episode in kept.holds_of(job.cluster, job.proc, job.proc, job.access_point):
            if question.means(episode):
                return hold_of_episode(episode, kept, past=True)
    path = live.ad.get("UserLog")
    if path:
        full = os.path.join(str(live.ad.get("Iwd", "")), str(path))
        own = _own_log(full, job.access_point)
        if own is not None:
            for episode in own.holds_of(job.cluster, job.proc, job.proc):
                if question.means(episode):
                    return hold_of_episode(episode, own, past=True)
    return None


def _without_schedd(question: Question, site: Site, error: Unreachable) -> Found:
    """Find the holds in the default store when no schedd answers."""
    path = default_store_path()
    if question.constraint is not None or not os.path.exists(path):
        raise error
    found = _from_store(question, site, path)
    found.notes.insert(0, f"no schedd answered, so this is from {path} ({error})")
    return found
