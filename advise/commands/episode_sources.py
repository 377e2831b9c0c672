"""The options that name sources of hold episodes: stores, logs, recordings, exports.

`train`, `evaluate` and `model` share them. Several sources are joined; to a model, each counts as
an access point of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from condor_advice.advise.commands.options import zone_option
from condor_advice.gather.errors import UsageError

if TYPE_CHECKING:
    from condor_advice.model.held.data import HeldData


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources that the options name."""

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
        """Read all named sources; without any, the shipped recordings in `otherwise`."""
        begin = moment(self.since) if self.since else None  # check these before the slow part
        end = moment(self.until) if self.until else None
        from condor_advice.lab.training_data import recorded
        from condor_advice.model.held.data import join
        from condor_advice.model.held.load import EpisodeLogs, load_export, load_logs, load_store

        parts = [load_store(path) for path in self.stores]
        if self.logs:
            name = self.access_point or self.logs[0].name
            parts.append(load_logs(EpisodeLogs(self.logs, name, self.access_point, self.zone)))
        names = self.recordings if self.named else tuple(otherwise)
        parts += [recorded(name).data for name in names]
        parts += [load_export(path) for path in self.exports]
        return _in_time(join(parts), begin, end)


def _in_time(data: HeldData, begin: int | None, end: int | None) -> HeldData:
    import numpy as np

    keep = np.ones(len(data), np.bool_)
    if begin is not None:
        keep &= data.time >= begin
    if end is not None:
        keep &= data.time < end
    return data if keep.all() else data.take(np.flatnonzero(keep))


def moment(text: str, zone: tzinfo = UTC) -> int:
    """Convert a date, a time, or how long ago ("30d") to microseconds since the epoch.

    A time that names no zone is in `zone`.
    """
    if text[:-1].isdigit() and text[-1] in "mhdw":
        seconds = int(text[:-1]) * {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}[text[-1]]
        return int((datetime.now(UTC).timestamp() - seconds) * 1e6)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time; write a date (2026-11-16), a time (2026-11-16T08:00), or how "
            "long ago (20m, 12h, 30d, 2w)"
        ) from None
    when = when if when.tzinfo else when.replace(tzinfo=zone)
    return int(when.timestamp() * 1e6)


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name sources; the command gets them as one argument, `sources`."""
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
    decorated: Callable[..., None] = called
    for option in reversed(
        (
            click.option(
                "--store",
                type=path,
                multiple=True,
                metavar="FILE",
                help="A store written by `condor-advice gather`.",
            ),
            click.option(
                "--log", type=path, multiple=True, metavar="FILE", help="A job event log."
            ),
            click.option(
                "--recording",
                multiple=True,
                metavar="NAME",
                help="A recording that comes with condor-advice.",
            ),
            click.option(
                "--export",
                type=path,
                multiple=True,
                metavar="DIR",
                help="A directory written by `condor-advice export`.",
            ),
            click.option(
                "--access-point", default="", metavar="NAME", help="Access point of the logs."
            ),
            zone_option,
            click.option(
                "--since",
                metavar="WHEN",
                help="Use only holds since then: a date, or 30d, 12h, 2w.",
            ),
            click.option("--until", metavar="WHEN", help="Use only holds before then."),
        )
    ):
        decorated = option(decorated)
    return decorated
