"""Find the holds to judge: live job ads, joined with the store, or event logs alone.

The live job ad says what the hold is now; the store says what led to it and what happened
around it. A job that was held after the store was last filled is looked up in its own log. What
cannot be had is left out, and said in one line: the best answer that remains is still given.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from condor_advice.advise.holds import Hold, hold_of_ad, hold_of_episode
from condor_advice.advise.jobids import WantedJobs
from condor_advice.advise.site import Site
from condor_advice.gather.errors import AdviceError, NoSuchJob, Unreachable, UsageError
from condor_advice.gather.events import HoldCode, JobId, JobStatus
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
# Of a longer range the schedd is asked for the whole cluster: a term for each proc keeps it busy.
LONGEST_LIST = 1000
# The event of a hold and the schedd's time of it may differ by some seconds.
SAME_HOLD_SECONDS = 5.0
# What is held while it is submitted gets its event when all of its cluster is in the queue.
SUBMITTING_SECONDS = 600.0
QUARTER = 900.0
MOST_ZONES_APART = 26 * 3600.0
# Jobs' own logs are read up to so much; beyond that the rules answer.
MOST_OWN_LOGS = 50
MOST_OWN_LOG_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked on the command line."""

    wanted: tuple[WantedJobs, ...] = ()
    logs: tuple[str, ...] = ()
    store: str | None = None
    number: int | None = None
    zone: str | None = None
    everybody: bool = False
    user: str | None = None
    constraint: str | None = None


@dataclass(slots=True)
class Found:
    """The holds to judge, and what could not be had."""

    holds: list[Hold] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # jobs asked for, and why there is no answer
    private: bool = False  # other people's jobs are not to be shown one by one
    closing: list[Store] = field(default_factory=list)

    def close(self) -> None:
        """Close what was opened; the holds' evidence cannot be asked for any more."""
        for store in self.closing:
            store.close()


def find_holds(question: Question, site: Site) -> Found:
    """Find what is asked for in the place that it is asked of.

    Of several jobs, those that can be answered are; with none of them it is an error.
    """
    if question.logs:
        found = _from_logs(question)
    elif question.store is not None:
        found = _from_store(question, site, question.store)
    else:
        found = _from_schedd(question, site)
    if found.missing and not found.holds:
        found.close()
        raise NoSuchJob("; ".join(found.missing))
    # Who names a cluster and one of its jobs means that job once.
    found.holds = list({(hold.job, hold.at): hold for hold in found.holds}.values())
    return found


# ---- event logs ------------------------------------------------------------------------------


def _from_logs(question: Question) -> Found:
    if question.constraint or question.user:
        option = "--constraint" if question.constraint else "--user"
        raise UsageError(f"{option} is for the schedd and the store; it means nothing with --log")
    kept = read_logs(question.logs, question.zone)
    if kept.last_us is None:
        _complain_of_empty(question.logs)
    found = Found()
    found.holds = _chosen(kept, question, found.missing, lambda jobs: _in_logs(question, jobs))
    return found


def read_logs(logs: Iterable[str], zone: str | None, access_point: str = "") -> KeptEpisodes:
    """Work off event logs; they are read once and kept nowhere."""
    from condor_advice.gather.clock import Clock, find_zone
    from condor_advice.preprocess.holds.timeline import log_timeline

    return KeptEpisodes.of_timeline(log_timeline(logs, Clock(find_zone(zone)), access_point))


def _complain_of_empty(logs: Sequence[str]) -> None:
    for log in logs:
        what = "is empty" if not os.path.getsize(log) else "holds no HTCondor job event"
        raise AdviceError(f"{log}: {what}; name the file after `log =` in the submit file")


def _in_logs(question: Question, jobs: WantedJobs) -> bool:
    """Tell whether a job is in the logs at all; only looked for where it has no hold."""
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
        raise UsageError("--constraint is for the schedd; leave --store out, or name job ids")
    found = Found()
    store = Store(path, readonly=True)
    found.closing.append(store)
    kept = KeptEpisodes(store)
    if not kept.ready:
        kept = _kept_of_pieces(store, question.wanted)
        found.notes.append(
            f"{path}: no hold episodes are kept in it yet; `condor-advice gather` keeps them, and "
            "advice is then faster and knows the pool around a hold"
        )
    else:
        _note_age(found, kept, site, store)
    owner = question.user
    if owner is None and not question.wanted and not question.everybody:
        owner = _own_name_if_known(kept)
    # Who names a job knows it; who asks for all gets others' jobs counted, not listed.
    named = bool(question.wanted) or site.show_others or _own_file(store.path)
    found.private = not named
    found.holds = _chosen(kept, question, found.missing, lambda jobs: _in_store(store, jobs), owner)
    return found


def _kept_of_pieces(store: Store, wanted: Sequence[WantedJobs]) -> KeptEpisodes:
    """Work off a store that keeps no episodes: whole clusters, or all of it."""
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
            f"{store.path}: last filled {shown} ago; `condor-advice gather` brings it up to date"
        )


def _own_name_if_known(kept: KeptEpisodes) -> str | None:
    """Return the caller's name where the store knows whose jobs are whose."""
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
    """Return the hold to judge of each job that is asked for, in the order of asking."""
    number = question.number
    if not question.wanted:
        every = kept.open_holds(owner) if number is None else kept.numbered_holds(number, owner)
        return [hold_of_episode(episode, kept, number is not None) for episode in every]
    holds: list[Hold] = []
    for jobs in question.wanted:
        last = MOST_PROCS if jobs.first is None else jobs.last or jobs.first
        every = kept.holds_of(jobs.cluster, jobs.first or 0, last, jobs.access_point)
        if number is None:
            latest: dict[JobId, KeptEpisode] = {one.job: one for one in every}
            chosen = [one for one in latest.values() if one.is_open]
        else:
            chosen = [one for one in every if one.number == number]
        if not chosen:
            which = f"has no hold number {number}" if number else "is not on hold"
            if not every and not is_known(jobs):
                which = "not in what was read; check the id, or name its --log"
            missing.append(f"job {jobs}: {which}")
        holds += [hold_of_episode(episode, kept, number is not None) for episode in chosen]
    return holds


# ---- the schedd ------------------------------------------------------------------------------


def _from_schedd(question: Question, site: Site) -> Found:
    names = {jobs.access_point for jobs in question.wanted if jobs.access_point is not None}
    if len(names) > 1:
        raise UsageError("jobs of several access points are asked for; name one at a time")
    found = Found()
    try:
        point = _find_point(names)
        live = _live_jobs(point, question, found.missing)
    except Unreachable as error:
        return _without_schedd(question, site, error)
    kept = _default_store(found, site)
    if question.number is not None:
        for job in live:
            earlier = _earlier(job, question.number, kept)
            if earlier is not None:
                found.holds.append(earlier)
            else:
                found.missing.append(
                    f"job {job.job}: has no hold number {question.number}, as far as store "
                    "and log tell"
                )
    else:
        found.holds = _join(live, kept)
    return found


def _find_point(names: set[str]) -> AccessPoint:
    """Find the schedd; the local one needs no look into the collector."""
    from condor_advice.gather.live import AccessPoint

    local = AccessPoint.find()
    for name in names:
        if name not in (local.name, local.name.split("@")[-1]):
            return AccessPoint.find(name)
    return local


def _live_jobs(point: AccessPoint, question: Question, missing: list[str]) -> list[LiveJob]:
    """Ask once; tell apart what is not there and what is not held."""
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
    for jobs in question.wanted:
        there = [one for one in everything if jobs.includes(one.job.cluster, one.job.proc)]
        if not there:
            missing.append(
                f"job {jobs}: not in the queue of {point.name}; "
                "has it ended? Its log may tell: --log FILE"
            )
            continue
        held = [
            live for live in there if live.ad.get("JobStatus") == JobStatus.HELD or question.number
        ]
        if not held:
            status = STATUS_WORDS.get(int(there[0].ad.get("JobStatus", 0)), "in another state")
            what = f"it is {status}" if len(there) == 1 else f"none of its {len(there)} jobs is"
            missing.append(f"job {jobs}: is not on hold; {what}")
        chosen += held
    return chosen


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _default_store(found: Found, site: Site) -> KeptEpisodes | None:
    """Open the store that is kept for everybody, if there is one."""
    path = default_store_path()
    try:
        store = Store(path, readonly=True)
    except StoreUnreachable as error:
        why = "there is no store yet" if isinstance(error, NoStoreYet) else str(error)
        found.notes.append(
            f"{why}, so nothing is known of like cases on this access point; "
            "`condor-advice gather` makes one"
        )
        return None
    kept = KeptEpisodes(store)
    if not kept.ready:
        store.close()
        found.notes.append(
            f"{path}: no hold episodes are kept in it yet; run `condor-advice gather` once"
        )
        return None
    found.closing.append(store)
    _note_age(found, kept, site, store)
    return kept


def _join(live: Sequence[LiveJob], kept: KeptEpisodes | None) -> list[Hold]:
    """Give each live job its episode: from the store, or else from its own log."""
    known = kept.latest_of([one.job for one in live]) if kept is not None else {}
    without = [one for one in live if not _is_this_hold(known.get(one.job), one)]
    own = _own_episodes(without)
    holds = []
    for one in live:
        episode = known.get(one.job)
        if _is_this_hold(episode, one):
            holds.append(hold_of_ad(one.job, one.ad, episode, kept))
        elif one.job in own:
            episode, own_log = own[one.job]
            said = "held after the store was last filled; from its own log, which knows no others"
            holds.append(hold_of_ad(one.job, one.ad, episode, own_log, said if kept else ""))
        else:
            said = "its events are not known: neither the store nor its log has this hold"
            if one.ad.get("HoldReasonCode") == HoldCode.SUBMITTED_ON_HOLD:
                said = ""  # no event tells of it, and nothing is missing
            holds.append(hold_of_ad(one.job, one.ad, missing=said))
    return holds


def _is_this_hold(episode: KeptEpisode | None, live: LiveJob) -> bool:
    """Tell whether what is kept is the hold that the job is in."""
    if episode is None or not episode.is_open:
        return False
    later = episode.time_us / 1e6 - float(live.ad.get("EnteredCurrentStatus", 0))
    apart = abs(later)
    if apart <= SAME_HOLD_SECONDS:
        return True
    same = episode.reason.strip() == str(live.ad.get("HoldReason", "")).strip()
    if same and episode.number == 1 and 0 < later <= SUBMITTING_SECONDS:
        return True  # an earlier hold has no later event
    # A log in another zone's time is off by that zone, in whole quarters of an hour; the words
    # must then be the same. Another hold with the same words came at some other time.
    off = min(apart % QUARTER, QUARTER - apart % QUARTER)
    return same and off <= SAME_HOLD_SECONDS and apart <= MOST_ZONES_APART


def _own_episodes(
    live: Sequence[LiveJob],
) -> dict[JobId, tuple[KeptEpisode, KeptEpisodes]]:
    """Read jobs' own logs, as far as they can be read."""
    by_log: dict[str, list[LiveJob]] = {}
    for one in live:
        if path := one.ad.get("UserLog"):
            full = os.path.join(str(one.ad.get("Iwd", "")), str(path))
            by_log.setdefault(full, []).append(one)
    found = {}
    budget = MOST_OWN_LOG_BYTES
    for path, jobs in list(by_log.items())[:MOST_OWN_LOGS]:
        try:
            budget -= os.path.getsize(path)
            if budget < 0:
                break
            kept = read_logs([path], None, jobs[0].job.access_point)
        except (OSError, AdviceError):
            continue
        if kept.last_us is None:
            continue
        for job, episode in kept.latest_of([one.job for one in jobs]).items():
            found[job] = (episode, kept)
        for one in jobs:
            if one.job in found and not _is_this_hold(found[one.job][0], one):
                del found[one.job]
    return found


def _earlier(live: LiveJob, number: int, kept: KeptEpisodes | None) -> Hold | None:
    """Return an earlier hold of a live job; None where nothing tells of it."""
    job = live.job
    if kept is not None:
        episode = kept.find(job.cluster, job.proc, number, job.access_point)
        if episode is not None:
            return hold_of_episode(episode, kept, past=True)
    path = live.ad.get("UserLog")
    if path:
        full = os.path.join(str(live.ad.get("Iwd", "")), str(path))
        try:
            own = read_logs([full], None, job.access_point)
        except AdviceError:
            own = None
        episode = own.find(job.cluster, job.proc, number) if own and own.last_us else None
        if own and episode is not None:
            return hold_of_episode(episode, own, past=True)
    return None


def _without_schedd(question: Question, site: Site, error: Unreachable) -> Found:
    """Answer from the store when no schedd does."""
    path = default_store_path()
    if question.constraint is not None or not os.path.exists(path):
        raise error
    found = _from_store(question, site, path)
    found.notes.insert(0, f"no schedd answered, so this is what {path} knows ({error})")
    return found
