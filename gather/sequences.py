"""Group events into one JobSequence per job."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from condor_advice.gather.clock import Clock
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.events import JobEvent, JobEventType, JobId
from condor_advice.gather.reader import EventColumns, ReaderState, first_year, read_block
from condor_advice.gather.regular import open_regular
from condor_advice.gather.store import Store


@dataclass(frozen=True, slots=True)
class JobSequence:
    """All that is known to have happened to one job, oldest first."""

    job: JobId
    events: tuple[JobEvent, ...]


def read_log(
    path: str | os.PathLike[str], clock: Clock, most_bytes: int | None = None
) -> EventColumns:
    """Read a whole log that nobody follows; the year of dates without one is found.

    Raises AdviceError for a log of more than `most_bytes`, and for what is no regular file.
    """
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            if most_bytes is not None and status.st_size > most_bytes:
                raise AdviceError(f"{path}: larger than {most_bytes:,} bytes")
            data = file.read(status.st_size)
            modified = datetime.fromtimestamp(status.st_mtime, UTC)
            state = ReaderState(year=first_year(file.fileno(), len(data), modified))
    except OSError as error:
        raise AdviceError(
            f"{path}: cannot be read ({error.strerror}); name an HTCondor job event log"
        ) from None
    columns, _ = read_block(data, state, base=0, clock=clock, final=True)
    if not len(columns):
        what = "is empty" if not data else "holds no HTCondor job event"
        raise AdviceError(f"{path}: {what}; name the file after `log =` in the submit file")
    return columns


def sequences(events: Iterable[JobEvent]) -> list[JobSequence]:
    """Group events by job, in the order in which the jobs first appear.

    The same event may come from a user log and from the global log, or be written twice:
    it counts once. A cluster id that is submitted again, as after a queue was wiped, begins
    a new sequence.
    """
    jobs: dict[JobId, dict[tuple[JobEventType, datetime, str], JobEvent]] = {}
    for event in events:
        if event.job.cluster < 0:
            continue  # the header of a global log, and events of no job
        second = event.time.replace(microsecond=0)
        key = (event.type, second, repr(sorted(event.ad.items(), key=str)))
        jobs.setdefault(event.job, {}).setdefault(key, event)
    found = []
    for job, unique in jobs.items():
        # Sorting is stable: events of one second stay in log order.
        ordered = sorted(unique.values(), key=lambda event: event.time.replace(microsecond=0))
        for life in _lives(ordered):
            found.append(JobSequence(job, tuple(life)))
    return found


def job_sequence(store: Store, cluster: int, proc: int) -> JobSequence | None:
    """Return what the store has of one job, in its latest life."""
    events = [
        event
        for piece in store.job_pieces(cluster, proc)
        for event in piece.columns.events(piece.access_point)
    ]
    found = sequences(events)
    return max(found, key=lambda sequence: sequence.events[0].time) if found else None


def _lives(events: list[JobEvent]) -> list[list[JobEvent]]:
    lives: list[list[JobEvent]] = [[]]
    for event in events:
        if event.type == JobEventType.SUBMIT and any(
            earlier.type == JobEventType.SUBMIT for earlier in lives[-1]
        ):
            lives.append([])
        lives[-1].append(event)
    return lives
