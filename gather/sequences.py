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
    """The known events of one job, oldest first."""

    job: JobId
    events: tuple[JobEvent, ...]


def read_log(
    path: str | os.PathLike[str], clock: Clock, most_bytes: int | None = None
) -> EventColumns:
    """Read a whole log at once; dates without a year get theirs.

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
            f"{path}: cannot read the log ({error.strerror}); name an HTCondor job event log"
        ) from None
    columns, _ = read_block(data, state, base=0, clock=clock, final=True)
    if not len(columns):
        problem = "is empty" if not data else "holds no HTCondor job event"
        raise AdviceError(f"{path}: {problem}; name the file after `log =` in the submit file")
    return columns


def sequences(events: Iterable[JobEvent]) -> list[JobSequence]:
    """Group events by job, in the order in which the jobs first appear.

    An event counts once, even if it is in both a user log and the global log or was written
    twice. A job id that is submitted again, as after the queue was wiped, begins a new sequence.
    """
    jobs: dict[JobId, dict[tuple[JobEventType, datetime, str], JobEvent]] = {}
    for event in events:
        if event.job.cluster < 0:
            continue  # the header of a global log, or another event without a job
        second = event.time.replace(microsecond=0)
        key = (event.type, second, repr(sorted(event.ad.items(), key=str)))
        jobs.setdefault(event.job, {}).setdefault(key, event)
    grouped = []
    for job, unique in jobs.items():
        # The sort is stable: events of the same second stay in log order.
        ordered = sorted(unique.values(), key=lambda event: event.time.replace(microsecond=0))
        for life in _lives(ordered):
            grouped.append(JobSequence(job, tuple(life)))
    return grouped


def job_sequence(store: Store, cluster: int, proc: int) -> JobSequence | None:
    """Return the stored events of one job, since it was last submitted."""
    events = [
        event
        for piece in store.job_pieces(cluster, proc)
        for event in piece.columns.events(piece.access_point)
    ]
    lives = sequences(events)
    return max(lives, key=lambda sequence: sequence.events[0].time) if lives else None


def _lives(events: list[JobEvent]) -> list[list[JobEvent]]:
    """Split a job's events where its id was submitted again."""
    lives: list[list[JobEvent]] = [[]]
    for event in events:
        if event.type == JobEventType.SUBMIT and any(
            earlier.type == JobEventType.SUBMIT for earlier in lives[-1]
        ):
            lives.append([])
        lives[-1].append(event)
    return lives
