"""Plan a sweep: check everything, take a snapshot of the data, and write the DAG.

The directory is filled under another name and renamed at the end, so that a sweep directory is
complete or is not there.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from condor_advice import __version__
from condor_advice.dag.bundle import bundle_bytes, write_bundle, write_package
from condor_advice.dag.episodes import SOURCE
from condor_advice.dag.generate import BUNDLE, PACKAGE, write_dag
from condor_advice.dag.nodes import METRICS, trial_parameters
from condor_advice.dag.plan import PREPROCESSING, Plan, preparations, trial_name
from condor_advice.dag.scripts import write_whole
from condor_advice.dag.space import Parameter, combinations
from condor_advice.dag.state import SweepState
from condor_advice.dag.sweepfile import Source, SweepFile, read_sweep_file
from condor_advice.gather.errors import AdviceError, UsageError

MOST_TRIALS = 100_000
# What is needed beside the data: states and models of trials, logs, the report.
TRIAL_BYTES = 2_000_000
RESERVE_BYTES = 200_000_000


@dataclass(frozen=True)
class Recording:
    """Events that come along with the package."""

    bytes: int
    unpack: Callable[[Path], Path]  # below a directory; returns the event log
    # Where it is known: when which job was repaired, given the event log that was unpacked.
    repaired: Callable[[Path], dict[str, float]] = lambda _log: {}


class NoSpace(AdviceError):
    """The sweep does not fit where it is to be."""


def plan_sweep(
    sweep_file: Path,
    directory: Path,
    trials: int | None = None,
    recordings: Mapping[str, Recording] | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Plan:
    """Make a sweep directory; nothing is submitted."""
    recordings = recordings or {}
    sweep = read_sweep_file(sweep_file, trial_parameters(), METRICS, list(recordings))
    count = _count(sweep, trials)
    prepared = preparations(sweep)
    _check_sources(sweep, prepared)
    directory = directory.absolute()
    _check_directory(directory)
    _check_space(sweep, directory, len(prepared), count, recordings)
    # HTCondor's tools split submit descriptions and DAG files at spaces.
    for path in (str(directory), sys.executable):
        if any(c.isspace() or c in "\"'," for c in path):
            raise UsageError(f"{path}: DAGMan needs a path without spaces, quotes and commas")
    parameters = sweep.parameters
    if "epochs" not in {p.name for p in parameters}:
        default = {"value": trial_parameters()["epochs"]}
        parameters = (*parameters, Parameter("epochs", "constant", default))
    part = directory.with_name(f".{directory.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True, mode=0o755)
        say("taking a snapshot of the data")
        for number, source in enumerate(sweep.sources):
            _take_shard(source, part / "shards" / str(number), recordings)
        say("packing what execution points need")
        write_package(part / PACKAGE)
        if sweep.environment.kind == "bundle":
            write_bundle(part / BUNDLE, needed_packages(sweep), say)
        shutil.copyfile(sweep.path, part / "sweep.yaml")
        plan = Plan(
            directory,
            _plain(sweep.name),
            count,
            sweep.method,
            sweep.metric,
            parameters,
            sweep.hyperband,
            sweep.sources,
            sweep.split,
            sweep.seeds,
            sweep.search_seed,
            sweep.engine,
            sweep.resources,
            sweep.environment,
            sweep.tracking,
            sweep.candidates,
            prepared,
            sys.executable,
            dict(sweep.texts),
            dict(sweep.config),
            datetime.now(UTC).isoformat(timespec="seconds"),
            __version__,
        )
        _make_directories(plan, part)
        SweepState.create(part, count).close()
        plan.save(part)
        write_dag(plan, part)
        os.rename(part, directory)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise AdviceError(
            f"{directory}: the sweep cannot be written ({error}); name another directory, or "
            "make room"
        ) from error
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return plan


def needed_packages(sweep: SweepFile) -> list[str]:
    """Return the distributions that nodes import, beside our own."""
    kinds = {source.kind for source in sweep.sources}
    found = ["numpy", "torch", "tzdata", "zstandard", "xgboost-cpu"]
    found += ["pyarrow"] if "export" in kinds else []
    found += ["wandb"] if sweep.tracking != "off" else []
    return found


def _count(sweep: SweepFile, trials: int | None) -> int:
    """Return how many trials there will be."""
    caps = [cap for cap in (trials, sweep.run_cap) if cap is not None]
    if sweep.method == "grid":
        caps.append(len(combinations(sweep.parameters)))
    if not caps:
        raise UsageError(f"{sweep.path}: say how many trials: --trials N, or run_cap in the file")
    if not 1 <= min(caps) <= MOST_TRIALS:
        raise UsageError(f"--trials must be from 1 to {MOST_TRIALS}, not {min(caps)}")
    return min(caps)


def _check_sources(sweep: SweepFile, prepared: dict[str, dict[str, object]]) -> None:
    for source in sweep.sources:
        if source.kind == "export":
            from condor_advice.preprocess.holds.export import ExportedEpisodes

            spec = ExportedEpisodes(Path(source.value)).spec
            for parameters in prepared.values():
                for name in PREPROCESSING:
                    wanted, has = parameters[name], getattr(spec, name)
                    fits = wanted <= has if name == "max_steps" else wanted == has
                    if name in ("neighbour_steps", "frame_seconds") or fits:
                        continue
                    raise UsageError(
                        f"{sweep.path}:{source.line}: the export was made with {name} {has}, and "
                        f"the sweep asks for {wanted}; export again, or name its store or logs"
                    )


def _check_directory(directory: Path) -> None:
    if directory.exists():
        raise UsageError(f"{directory}: exists already; name a new directory with --out")
    if not directory.parent.is_dir():
        raise UsageError(f"{directory.parent}: no such directory; make it first")
    if not os.access(directory.parent, os.W_OK):
        raise UsageError(f"{directory.parent}: not writable; name another directory with --out")


def _check_space(
    sweep: SweepFile,
    directory: Path,
    prepared: int,
    trials: int,
    recordings: Mapping[str, Recording],
) -> None:
    data = sum(_size(source, recordings) for source in sweep.sources)
    # The snapshot, the episodes of each preprocessing twice (parts, merged), and the trials.
    needed = data + 2 * prepared * data + trials * TRIAL_BYTES + RESERVE_BYTES
    if sweep.environment.kind == "bundle":
        needed += bundle_bytes(needed_packages(sweep))
    free = shutil.disk_usage(directory.parent).free
    if free < needed:
        raise NoSpace(
            f"{directory.parent}: {free / 1e9:.1f} GB are free, and this sweep may need "
            f"{needed / 1e9:.1f} GB; make room, or name another place with --out"
        )


def _size(source: Source, recordings: Mapping[str, Recording]) -> int:
    if source.kind == "recording":
        return recordings[source.value].bytes
    path = Path(source.value)
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in _rotations(path))


def _rotations(log: Path) -> list[Path]:
    """Return a log's files, oldest first, or those of a directory by age."""
    if log.is_dir():
        files = [file for file in log.iterdir() if file.is_file() and file.stat().st_size]
        return sorted(files, key=lambda file: (file.stat().st_mtime, file.name))
    numbered = [file for file in log.parent.glob(f"{log.name}.*") if file.suffix[1:].isdigit()]
    numbered.sort(key=lambda file: -int(file.suffix[1:]))
    old = log.with_name(f"{log.name}.old")
    return [*numbered, *([old] if old.exists() else []), log]


def _take_shard(source: Source, directory: Path, recordings: Mapping[str, Recording]) -> None:
    """Copy one source: logs and stores go on growing while a sweep runs."""
    directory.mkdir(parents=True)
    about: dict[str, object] = {"kind": source.kind, "name": source.value}
    if source.kind == "export":
        shutil.copytree(source.value, directory / "export", ignore=_no_events)
    elif source.kind == "store":
        reader = sqlite3.connect(f"file:{source.value}?mode=ro", uri=True)
        writer = sqlite3.connect(directory / "store.sqlite")
        with writer:
            reader.backup(writer)
        writer.close()
        reader.close()
    else:
        about["zone"] = _zone()
        if source.kind == "recording":
            recording = recordings[source.value]
            log = recording.unpack(directory / "unpacked")
            files = _rotations(log)
            about["repaired"] = recording.repaired(log)
            about["zone"] = "UTC"
        else:
            files = _rotations(Path(source.value))
        about["files"] = [file.name for file in files]
        for file in files:
            shutil.copy2(file, directory / file.name)  # a log without years is dated by its mtime
        shutil.rmtree(directory / "unpacked", ignore_errors=True)
    write_whole(directory / SOURCE, json.dumps(about))


def _no_events(_directory: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "events.parquet"]


def _zone() -> str | None:
    """Return the name of this machine's time zone, for execution points elsewhere."""
    if zone := os.environ.get("TZ"):
        return zone.lstrip(":")
    link = os.path.realpath("/etc/localtime")
    if "zoneinfo/" in link:
        return link.split("zoneinfo/")[1]
    return "UTC" if time.timezone == 0 and not time.daylight else None


def _make_directories(plan: Plan, root: Path) -> None:
    places = ["check", "evaluate/in", "logs", "prepared"]
    for key in plan.prepared:
        places.append(f"prepared/{key}")
        places += [f"prepared/{key}-{shard}" for shard in range(len(plan.sources))]
    places += [f"trials/{trial_name(number)}/in" for number in range(plan.trials)]
    for place in places:
        (root / place).mkdir(parents=True, exist_ok=True)


def _plain(name: str) -> str:
    """Return a name fit for DAG files, batch names and W&B groups."""
    kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip("-.")
    return kept[:60] or "sweep"
