"""Hold episodes from wherever a command names them: stores, logs, recordings, exports.

What `train`, `evaluate` and `model` have in common. Several sources are joined; each is an
access point of its own to whoever learns from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from condor_advice.gather.errors import UsageError

if TYPE_CHECKING:
    from condor_advice.model.held.data import HeldData


@dataclass(frozen=True, slots=True)
class Sources:
    """What the options named."""

    stores: tuple[Path, ...] = ()
    logs: tuple[Path, ...] = ()
    recordings: tuple[str, ...] = ()
    exports: tuple[Path, ...] = ()
    access_point: str = ""
    zone: str | None = None
    since: str | None = None
    until: str | None = None

    @property
    def named(self) -> bool:
        """Tell whether any source was named."""
        return bool(self.stores or self.logs or self.recordings or self.exports)

    def read(self, otherwise: Sequence[str]) -> HeldData:
        """Read all that was named, or the shipped recordings of these names."""
        begin = moment(self.since) if self.since else None  # before the long work begins
        end = moment(self.until) if self.until else None
        from condor_advice.lab.training_data import recorded
        from condor_advice.model.held.data import from_export, from_samples, join
        from condor_advice.preprocess.holds.export import ExportedEpisodes

        found = [_of_store(path) for path in self.stores]
        if self.logs:
            found.append(from_samples(*self._of_logs()))
        names = self.recordings if self.named else tuple(otherwise)
        found += [recorded(name).data for name in names]
        found += [from_export(ExportedEpisodes(path)) for path in self.exports]
        return _in_time(join(found), begin, end)

    def _of_logs(self) -> tuple[Any, str]:
        from condor_advice.gather.clock import Clock, find_zone
        from condor_advice.preprocess.holds.samples import collect
        from condor_advice.preprocess.holds.timeline import log_timeline

        timeline = log_timeline(self.logs, Clock(find_zone(self.zone)), self.access_point)
        return collect(timeline), self.access_point or self.logs[0].name


def _in_time(data: HeldData, begin: int | None, end: int | None) -> HeldData:
    import numpy as np

    keep = np.ones(len(data), np.bool_)
    if begin is not None:
        keep &= data.time >= begin
    if end is not None:
        keep &= data.time < end
    return data if keep.all() else data.take(np.flatnonzero(keep))


def _of_store(path: Path) -> HeldData:
    """Read a store: the episodes kept ready in it, or all of its events."""
    from condor_advice.gather.store import Store
    from condor_advice.model.held.data import from_samples
    from condor_advice.preprocess.holds.episode_store import KeptEpisodes
    from condor_advice.preprocess.holds.samples import collect
    from condor_advice.preprocess.holds.timeline import store_timeline

    with Store(path, readonly=True) as store:
        kept = KeptEpisodes(store)
        samples = kept.samples() if kept.ready else collect(store_timeline(store))
    return from_samples(samples, path.name)


def moment(text: str) -> int:
    """Return microseconds of a date, a time, or a length of time back from now ("30d")."""
    if text[:-1].isdigit() and text[-1] in "dhw":
        seconds = int(text[:-1]) * {"h": 3600, "d": 86400, "w": 7 * 86400}[text[-1]]
        return int((datetime.now(UTC).timestamp() - seconds) * 1e6)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is no time; write a date (2026-11-16), a time (2026-11-16T08:00), or how "
            "long ago (30d, 12h, 2w)"
        ) from None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return int(when.timestamp() * 1e6)


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name sources; the command gets them as one `sources`."""
    import functools

    @functools.wraps(command)
    def called(
        store: tuple[Path, ...],
        log: tuple[Path, ...],
        recording: tuple[str, ...],
        export: tuple[Path, ...],
        access_point: str,
        zone: str | None,
        since: str | None,
        until: str | None,
        **others: Any,
    ) -> None:
        sources = Sources(store, log, recording, export, access_point, zone, since, until)
        command(sources=sources, **others)

    path = click.Path(path_type=Path)
    found: Callable[..., None] = called
    for option in reversed(
        (
            click.option(
                "--store",
                type=path,
                multiple=True,
                metavar="FILE",
                help="A store of gathered logs.",
            ),
            click.option(
                "--log", type=path, multiple=True, metavar="FILE", help="A job event log."
            ),
            click.option(
                "--recording", multiple=True, metavar="NAME", help="A shipped recording of the lab."
            ),
            click.option(
                "--export",
                type=path,
                multiple=True,
                metavar="DIR",
                help="What `condor-advice export` wrote.",
            ),
            click.option("--access-point", default="", metavar="NAME", help="Whose the logs are."),
            click.option(
                "--zone",
                metavar="ZONE",
                help="Time zone of logs that are not in UTC. [default: this machine's]",
            ),
            click.option(
                "--since", metavar="WHEN", help="Only holds since then: a date, or 30d, 12h, 2w."
            ),
            click.option("--until", metavar="WHEN", help="Only holds before then."),
        )
    ):
        found = option(found)
    return found
