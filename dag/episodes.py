"""Hold episodes on their way through a sweep: from a shard of the data to a split for trials.

A shard is one access point's events as they were when the sweep was planned. What a hold's
features and context are depends on everything that happened on that access point before, so a
shard is never cut further.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.dag.sweepfile import Split
from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.errors import AdviceError
from condor_advice.model.arrays import load_arrays, save_arrays
from condor_advice.model.held.data import HeldData, from_export, from_samples, join
from condor_advice.preprocess.holds.job_numbers import job_parts
from condor_advice.preprocess.holds.samples import Samples
from condor_advice.preprocess.holds.splits import split_by_time
from condor_advice.preprocess.holds.stream import OUTCOME, EpisodeStream
from condor_advice.preprocess.holds.tensors import TensorSpec
from condor_advice.preprocess.holds.timeline import Timeline, log_timeline, store_timeline

SOURCE = "source.json"  # what a shard is
PARTS = ("train", "validation", "test")


def read_shard(directory: Path, parameters: Mapping[str, Any]) -> HeldData:
    """Read one shard's episodes with these preprocessing parameters."""
    source = json.loads((directory / SOURCE).read_text())
    spec = TensorSpec(**parameters)
    if source["kind"] == "export":
        from condor_advice.preprocess.holds.export import ExportedEpisodes

        if spec.neighbours:
            raise AdviceError(
                f"{source['name']}: an export holds no neighbours' steps; use its store or logs"
            )
        return from_export(ExportedEpisodes(directory / "export"))
    if source["kind"] == "store":
        from condor_advice.gather.store import Store

        with Store(directory / "store.sqlite", readonly=True) as store:
            return _collect(store_timeline(store), spec, source["name"])
    logs = [directory / name for name in source["files"]]
    clock = Clock(find_zone(source["zone"]))
    timeline = log_timeline(logs, clock, source["name"])
    return _collect(timeline, spec, source["name"], source.get("repaired", {}))


def _collect(
    timeline: Timeline, spec: TensorSpec, name: str, repaired: Mapping[str, float] | None = None
) -> HeldData:
    """Read a timeline's episodes; the steps of neighbours stand before those of the job."""
    stream = EpisodeStream(spec, names=timeline.names)
    batches = list(stream.run(timeline))
    if not batches:
        raise AdviceError(f"{name}: no event in it; name other data")
    outcomes = np.zeros(stream.episodes, OUTCOME)
    for batch in batches:
        outcomes[batch.outcomes["episode"]] = batch.outcomes
    steps, lengths = [], []
    for batch in batches:
        rows, counts = _with_neighbours(batch.steps, batch.offsets, batch.neighbours)
        steps.append(rows)
        lengths.append(counts)
    samples = Samples(
        np.concatenate([batch.episodes for batch in batches]),
        np.concatenate([batch.features for batch in batches]),
        np.concatenate(steps),
        np.append(0, np.cumsum(np.concatenate(lengths))),
        outcomes,
        stream.names,
    )
    return from_samples(samples, name, _changed(samples, repaired or {}))


def _changed(samples: Samples, repaired: Mapping[str, float]) -> npt.NDArray[np.bool_]:
    """Tell which holds were released after somebody repaired the job, where that is known."""
    changed = np.zeros(len(samples), np.bool_)
    if not repaired:
        return changed
    for row, job in enumerate(samples.episodes["job"].tolist()):
        _, cluster, proc = job_parts(job)
        at = repaired.get(f"{cluster}.{proc}")
        if at is not None:
            held = int(samples.episodes["time"][row]) / 1e6
            released = int(samples.outcomes["released"][row]) / 1e6
            # The time of a repair is known to the second.
            changed[row] = released > 0 and held <= at + 1 and released >= at - 1
    return changed


def _with_neighbours(
    steps: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
    neighbours: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return the rows with those of neighbours in front, and how many each episode has."""
    if not len(offsets) - 1 or not neighbours.shape[1]:
        return steps, np.diff(offsets)
    rows, lengths = [], []
    for index, (begin, end) in enumerate(pairwise(offsets.tolist())):
        context = neighbours[index].reshape(-1, steps.shape[1])
        context = context[context.any(axis=1)]  # a step is never all zero; padding is
        rows += [context, steps[begin:end]]
        lengths.append(len(context) + end - begin)
    return np.concatenate(rows), np.array(lengths)


def save_episodes(path: Path, data: HeldData, **more: npt.NDArray[Any]) -> None:
    """Write episodes as plain arrays, whole or not at all."""
    arrays = {one.name: np.asarray(getattr(data, one.name)) for one in fields(HeldData)}
    save_arrays(path, arrays | more)


def load_episodes(path: Path) -> tuple[HeldData, dict[str, npt.NDArray[Any]]]:
    """Read episodes, and what was kept with them."""
    arrays = load_arrays(path)
    names = {one.name for one in fields(HeldData)}
    data: dict[str, Any] = {name: arrays[name] for name in names}
    data["sources"] = tuple(str(name) for name in arrays["sources"])
    return HeldData(**data), {k: v for k, v in arrays.items() if k not in names}


def merge_shards(parts: list[HeldData], split: Split) -> tuple[HeldData, dict[str, Any]]:
    """Join shards; return the episodes and, for each part of the split, its rows.

    Each access point is cut at its own times: their clocks and their lives differ.
    """
    data = join(parts)
    data.check()
    # As `condor-advice train` has it: what had to be repaired would have failed as it was.
    data = replace(data, label=np.where(data.changed, 0, data.label).astype(np.int8))
    sides: dict[str, list[npt.NDArray[np.int64]]] = {name: [] for name in PARTS}
    for index, name in enumerate(data.sources):
        rows = np.flatnonzero(data.source == index)
        try:
            found = split_by_time(
                data.take(rows).moments(),
                train=split.train,
                validation=split.validation,
                gap_seconds=split.gap_seconds,
            )
        except AdviceError as error:
            raise AdviceError(f"{name}: {error}") from error
        for side in PARTS:
            sides[side].append(rows[getattr(found, side)])
    joined = {name: np.concatenate(rows) for name, rows in sides.items()}
    for name, rows in joined.items():
        kinds = np.unique(data.label[rows])
        if len(kinds) < 2:
            raise AdviceError(
                f"the {name} part has {len(rows)} labelled episodes, all of one kind; gather more "
                "logs, or change split (for logs of less than a day lower its gap_seconds)"
            )
    return data, joined


def load_split(path: Path) -> dict[str, HeldData]:
    """Read merged episodes as the parts of their split."""
    data, more = load_episodes(path)
    return {name: data.take(more[f"rows_{name}"]) for name in PARTS}
