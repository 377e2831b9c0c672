"""Plan a sweep: check everything, take a snapshot of the data, and write the DAG.

The directory is filled under another name and renamed at the end, so a sweep directory is
complete or does not exist.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from condor_advice import __version__
from condor_advice.dag.bundle import bundle_bytes, write_bundle, write_package
from condor_advice.dag.episodes import SHARD_FILE
from condor_advice.dag.generate import BUNDLE, PACKAGE, write_dag
from condor_advice.dag.nodes import METRICS, trial_parameters
from condor_advice.dag.plan import SweepPlan, preparations, trial_name
from condor_advice.dag.space import Parameter, combinations
from condor_advice.dag.state import SweepState
from condor_advice.dag.sweepfile import SweepFile, SweepSource, read_sweep_file
from condor_advice.gather.errors import AdviceError, UsageError
from condor_advice.gather.files import make_private, private_files, replace_file
from condor_advice.model.held.load import EpisodeLogs, rotations

MOST_TRIALS = 100_000
# Disk space beside the data: states and models of trials, logs, the report.
TRIAL_BYTES = 2_000_000
RESERVE_BYTES = 200_000_000


@dataclass(frozen=True)
class ShippedLogs:
    """Event logs that come with the package."""

    bytes: int
    unpack: Callable[[Path], EpisodeLogs]  # into a directory


class NoSpace(AdviceError):
    """The sweep needs more disk space."""


def plan_sweep(
    sweep_file: Path,
    directory: Path,
    trials: int | None = None,
    recordings: Mapping[str, ShippedLogs] | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> SweepPlan:
    """Make a sweep directory; submit nothing."""
    recordings = recordings or {}
    sweep = read_sweep_file(sweep_file, trial_parameters(), METRICS, list(recordings))
    plan = _make_plan(sweep, directory.absolute(), trials)
    _check_exports(sweep, plan.prepared)
    _check_directory(plan.directory)
    _check_space(sweep, plan, recordings)
    _check_paths(plan)
    with private_files(), _filled_directory(plan.directory) as part:
        say("taking a snapshot of the data")
        for number, source in enumerate(sweep.sources):
            _take_shard(source, part / "shards" / str(number), recordings)
        say("packing what execution points need")
        _pack_environment(sweep, part, say)
        shutil.copyfile(sweep.path, part / "sweep.yaml")
        _make_directories(plan, part)
        SweepState.create(part, plan.trials).close()
        plan.save(part)
        write_dag(plan, part)
    return plan


def _make_plan(sweep: SweepFile, directory: Path, trials: int | None) -> SweepPlan:
    """Return the plan that a sweep file describes."""
    return SweepPlan(
        directory=directory,
        name=_plain(sweep.name),
        trials=_count_trials(sweep, trials),
        method=sweep.method,
        metric=sweep.metric,
        parameters=_with_epochs(sweep.parameters),
        hyperband=sweep.hyperband,
        sources=sweep.sources,
        split=sweep.split,
        seeds=sweep.seeds,
        search_seed=sweep.search_seed,
        engine=sweep.engine,
        resources=sweep.resources,
        environment=sweep.environment,
        tracking=sweep.tracking,
        candidates=sweep.candidates,
        prepared=preparations(sweep),
        python=sys.executable,
        texts=dict(sweep.texts),
        config=dict(sweep.config),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )


def _with_epochs(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """Add the default number of epochs if the file names none."""
    if any(parameter.name == "epochs" for parameter in parameters):
        return parameters
    default = {"value": trial_parameters()["epochs"]}
    return (*parameters, Parameter("epochs", "constant", default))


@contextmanager
def _filled_directory(directory: Path) -> Iterator[Path]:
    """Provide a directory to fill, then rename it; leave nothing behind on failure."""
    part = directory.with_name(f".{directory.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        # The snapshot names other users' jobs. DAGMan and file transfers run as the user.
        part.mkdir(parents=True, mode=0o700)
        yield part
        make_private(part)  # copies have their originals' modes
        os.rename(part, directory)
    except OSError as error:
        raise AdviceError(
            f"{directory}: cannot write the sweep ({error}); name another directory, or make room"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _pack_environment(sweep: SweepFile, directory: Path, say: Callable[[str], None]) -> None:
    """Write our own package and, if the file asks for it, the bundle."""
    write_package(directory / PACKAGE)
    if sweep.environment.kind == "bundle":
        write_bundle(directory / BUNDLE, needed_packages(sweep), say)


def needed_packages(sweep: SweepFile) -> list[str]:
    """Return the distributions that nodes import, except our own."""
    kinds = {source.kind for source in sweep.sources}
    names = ["numpy", "torch", "tzdata", "zstandard", "xgboost-cpu"]
    names += ["pyarrow"] if "export" in kinds else []
    names += ["wandb"] if sweep.tracking != "off" else []
    return names


def _count_trials(sweep: SweepFile, trials: int | None) -> int:
    """Return the number of trials."""
    caps = [cap for cap in (trials, sweep.run_cap) if cap is not None]
    if sweep.method == "grid":
        caps.append(len(combinations(sweep.parameters)))
    if not caps:
        raise UsageError(
            f"{sweep.path}: give the number of trials with --trials N, or run_cap in the file"
        )
    if not 1 <= min(caps) <= MOST_TRIALS:
        raise UsageError(f"--trials must be from 1 to {MOST_TRIALS}, not {min(caps)}")
    return min(caps)


def _check_exports(sweep: SweepFile, prepared: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse exports made with other preprocessing than trials may ask for."""
    for source in sweep.sources:
        if source.kind != "export":
            continue
        from condor_advice.preprocess.holds.export import ExportedEpisodes

        spec = ExportedEpisodes(Path(source.value)).spec
        for parameters in prepared.values():
            for name in ("max_steps", "neighbours"):
                wanted, made_with = parameters[name], getattr(spec, name)
                fits = wanted <= made_with if name == "max_steps" else wanted == made_with
                if not fits:
                    raise UsageError(
                        f"{sweep.path}:{source.line}: the export was made with {name} "
                        f"{made_with}, but the sweep asks for {wanted}; export again, or name "
                        "its store or logs"
                    )


def _check_directory(directory: Path) -> None:
    if directory.exists():
        raise UsageError(f"{directory}: exists already; name a new directory with --out")
    if not directory.parent.is_dir():
        raise UsageError(f"{directory.parent}: no such directory; create it first")
    if not os.access(directory.parent, os.W_OK):
        raise UsageError(f"{directory.parent}: not writable; name another directory with --out")


def _check_paths(plan: SweepPlan) -> None:
    """Refuse paths that submit descriptions and DAG files cannot hold unquoted."""
    for path in (str(plan.directory), plan.python):
        if any(c.isspace() or c in "\"'," for c in path):
            raise UsageError(f"{path}: DAGMan needs a path without spaces, quotes or commas")


def _check_space(sweep: SweepFile, plan: SweepPlan, recordings: Mapping[str, ShippedLogs]) -> None:
    data = sum(_size(source, recordings) for source in sweep.sources)
    # The snapshot, the episodes of each preprocessing twice (parts, merged), and the trials.
    needed = data + 2 * len(plan.prepared) * data + plan.trials * TRIAL_BYTES + RESERVE_BYTES
    if sweep.environment.kind == "bundle":
        needed += bundle_bytes(needed_packages(sweep))
    parent = plan.directory.parent
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise NoSpace(
            f"{parent}: {free / 1e9:.1f} GB free, but this sweep may need "
            f"{needed / 1e9:.1f} GB; make room, or name another directory with --out"
        )


def _size(source: SweepSource, recordings: Mapping[str, ShippedLogs]) -> int:
    if source.kind == "recording":
        return recordings[source.value].bytes
    path = Path(source.value)
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in _files_of(path))


def _files_of(log: Path) -> Sequence[Path]:
    """Return the files of a log or of a directory, oldest first."""
    if log.is_dir():
        files = [file for file in log.iterdir() if file.is_file() and file.stat().st_size]
        return sorted(files, key=lambda file: (file.stat().st_mtime, file.name))
    return rotations(log)


def _take_shard(
    source: SweepSource, directory: Path, recordings: Mapping[str, ShippedLogs]
) -> None:
    """Copy one source, because logs and stores keep growing while a sweep runs."""
    directory.mkdir(parents=True)
    shard: dict[str, object] = {"kind": source.kind, "name": Path(source.value).name}
    if source.kind == "export":
        shutil.copytree(source.value, directory / "export", ignore=_no_events)
    elif source.kind == "store":
        _copy_store(Path(source.value), directory / "store.sqlite")
    else:
        unpacked = directory / "unpacked"
        if source.kind == "recording":
            logs = recordings[source.value].unpack(unpacked)
        else:
            path = Path(source.value)
            logs = EpisodeLogs(tuple(_files_of(path)), path.name, zone=_zone())
        for file in logs.files:
            shutil.copy2(file, directory / file.name)  # mtime dates a log without years
        shutil.rmtree(unpacked, ignore_errors=True)
        shard |= logs.as_dict()
    replace_file(directory / SHARD_FILE, json.dumps(shard))


def _copy_store(source: Path, target: Path) -> None:
    reader = sqlite3.connect(f"file:{source}?mode=ro", uri=True)
    writer = sqlite3.connect(target)
    with writer:
        reader.backup(writer)
    writer.close()
    reader.close()


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


def _make_directories(plan: SweepPlan, root: Path) -> None:
    places = ["check", "evaluate/in", "logs", "prepared"]
    for key in plan.prepared:
        places.append(f"prepared/{key}")
        places += [f"prepared/{key}-{shard}" for shard in range(len(plan.sources))]
    places += [f"trials/{trial_name(number)}/in" for number in range(plan.trials)]
    for place in places:
        (root / place).mkdir(parents=True, exist_ok=True)


def _plain(name: str) -> str:
    """Return a name that DAG files, batch names and W&B groups accept."""
    kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip("-.")
    return kept[:60] or "sweep"
