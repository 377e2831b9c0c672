"""Load hold episodes: the one way from logs, stores and exports to `HeldData`.

`train`, `evaluate`, sweeps and the shipped model all read their episodes here, so that the same
events give the same features, steps and labels everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.store import Store
from condor_advice.model.held.data import CannotTrain, HeldData, from_export, from_samples
from condor_advice.model.held.repairs import Repairs, released_after_repair, without_repairs
from condor_advice.preprocess.holds.episode_store import KeptEpisodes
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.samples import Samples, collect
from condor_advice.preprocess.holds.tensors import TensorSpec
from condor_advice.preprocess.holds.timeline import LogSource, Timeline, log_blocks, store_timeline


@dataclass(frozen=True, slots=True)
class EpisodeLogs:
    """Event logs of one access point, and known repairs."""

    files: tuple[Path, ...]  # rotations of one log are joined; see `log_chains`
    name: str
    access_point: str = ""
    zone: str | None = None  # time zone of logs not in UTC; None: this machine's
    repairs: Repairs = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return a form for JSON; files have no directory, so they can be moved together."""
        return {
            "files": [file.name for file in self.files],
            "name": self.name,
            "access_point": self.access_point,
            "zone": self.zone,
            "repairs": dict(self.repairs),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any], directory: Path) -> EpisodeLogs:
        """Read what `as_dict` returned; the files are in `directory`."""
        files = tuple(directory / name for name in content["files"])
        others = {key: content[key] for key in ("name", "access_point", "zone", "repairs")}
        return cls(files, **others)


def load_logs(logs: EpisodeLogs, spec: TensorSpec | None = None) -> HeldData:
    """Load the episodes of event logs."""
    return with_repairs(read_logs(logs, spec), logs)


def read_logs(logs: EpisodeLogs, spec: TensorSpec | None = None) -> Samples:
    """Read the episodes of event logs, without known repairs."""
    clock = Clock(find_zone(logs.zone))
    sources = [
        LogSource(
            str(files[-1]),
            logs.access_point,
            chain.from_iterable(log_blocks(file, clock) for file in files),
        )
        for files in log_chains(logs.files)
    ]
    return collect(Timeline(sources), spec)


def with_repairs(samples: Samples, logs: EpisodeLogs) -> HeldData:
    """Label episodes; a release after a repair gets no label and counts in no success rate."""
    changed = released_after_repair(samples, logs.repairs)
    data = from_samples(samples, logs.name, changed)
    if not logs.repairs:  # what events tell of changes is not counted in the features anyway
        return data
    return replace(data, features=without_repairs(samples, changed))


def load_store(path: Path, spec: TensorSpec | None = None, name: str = "") -> HeldData:
    """Load the episodes of a store: the kept ones if they fit, else from its events."""
    with Store(path, readonly=True) as store:
        kept = KeptEpisodes(store)
        as_kept = spec is None or spec == TensorSpec()
        if as_kept and kept.ready and kept.feature_names == FEATURE_NAMES:
            samples = kept.samples()
        else:
            samples = collect(store_timeline(store), spec)
    return from_samples(samples, name or path.name)


def load_export(directory: Path, spec: TensorSpec | None = None, name: str = "") -> HeldData:
    """Load an export. It has no steps of neighbouring jobs."""
    from condor_advice.preprocess.holds.export import ExportedEpisodes

    if spec is not None and spec.neighbours:
        raise CannotTrain(
            f"{name or directory}: an export has no steps of neighbouring jobs; use its store or "
            "its logs"
        )
    return from_export(ExportedEpisodes(directory), name)


def log_chains(files: Iterable[Path]) -> list[list[Path]]:
    """Group files into logs, each with its rotations (`LOG.2`, `LOG.1`, `LOG.old`) oldest first.

    Rotations are read as one log, so that the clock runs on from one to the next.
    """
    chains: dict[Path, list[Path]] = {}
    files = list(files)
    for file in files:
        rotated = file.suffix == ".old" or file.suffix[1:].isdigit()
        log = file.with_suffix("") if rotated else file
        chains.setdefault(log if log in files else file, []).append(file)
    return [sorted(chain_, key=_age, reverse=True) for chain_ in chains.values()]


def _age(file: Path) -> tuple[int, int]:
    """Return a sort key: the age of a rotation among those of its log."""
    number = file.suffix[1:]
    if number.isdigit():
        return 2, int(number)
    return (1, 0) if file.suffix == ".old" else (0, 0)


def rotations(log: Path) -> Sequence[Path]:
    """Return a log's files, oldest first."""
    numbered = [file for file in log.parent.glob(f"{log.name}.*") if file.suffix[1:].isdigit()]
    old = log.with_name(f"{log.name}.old")
    files = [*numbered, *([old] if old.exists() else []), log]
    return sorted(files, key=_age, reverse=True)
