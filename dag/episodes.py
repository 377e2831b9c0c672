"""Hold episodes in a sweep: from a shard of the data to the splits that trials read.

A shard is one access point's events at the time the sweep was planned. The features of a hold
depend on everything that happened on that access point before it, so shards are never divided.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.dag.sweepfile import SplitShares
from condor_advice.gather.errors import AdviceError
from condor_advice.model.held.data import HeldData, join
from condor_advice.model.held.load import EpisodeLogs, load_export, load_logs, load_store
from condor_advice.preprocess.holds.splits import split_by_time
from condor_advice.preprocess.holds.tensors import TensorSpec

SHARD_FILE = "source.json"  # describes a shard
SPLITS = ("train", "validation", "test")


def read_shard(directory: Path, parameters: Mapping[str, Any]) -> HeldData:
    """Read one shard's episodes with these preprocessing parameters."""
    shard = json.loads((directory / SHARD_FILE).read_text())
    spec = TensorSpec(**parameters)
    match shard["kind"]:
        case "export":
            data = load_export(directory / "export", spec, shard["name"])
        case "store":
            data = load_store(directory / "store.sqlite", spec, shard["name"])
        case _:
            data = load_logs(_logs_of(shard, directory), spec)
    if not len(data):
        raise AdviceError(f"{data.sources[0]}: no hold episodes; name other data")
    return data


def _logs_of(shard: dict[str, Any], directory: Path) -> EpisodeLogs:
    """Return a shard's event logs; refuse a shard that another version wrote."""
    try:
        return EpisodeLogs.from_dict(shard, directory)
    except KeyError as error:
        raise AdviceError(
            f"{directory / SHARD_FILE}: has no {error}: another version of condor-advice planned "
            "this sweep; plan the sweep again with `condor-advice sweep init`"
        ) from None


def merge_shards(
    shards: list[HeldData], shares: SplitShares
) -> tuple[HeldData, dict[str, npt.NDArray[np.int64]]]:
    """Join shards; return the episodes and the rows of each split.

    Each access point is split at its own times, because each has its own clock and history.
    """
    data = join(shards)
    data.check()
    parts: dict[str, list[npt.NDArray[np.int64]]] = {name: [] for name in SPLITS}
    for index, source in enumerate(data.sources):
        rows = np.flatnonzero(data.source == index)
        try:
            split = split_by_time(
                data.take(rows).moments(),
                train=shares.train,
                validation=shares.validation,
                gap_seconds=shares.gap_seconds,
            )
        except AdviceError as error:
            raise AdviceError(f"{source}: {error}") from error
        for name in SPLITS:
            parts[name].append(rows[getattr(split, name)])
    joined = {name: np.concatenate(rows) for name, rows in parts.items()}
    for name, rows in joined.items():
        if len(np.unique(data.label[rows])) < 2:
            raise AdviceError(
                f"the {name} split has {len(rows)} labelled episodes, and they do not have both "
                "labels; gather more logs, or change split (for less than a day of logs, lower "
                "gap_seconds)"
            )
    return data, joined


def load_split(path: Path) -> dict[str, HeldData]:
    """Read merged episodes, by split."""
    data, parts = HeldData.load_with_parts(path)
    return {name: data.take(parts[name]) for name in SPLITS}
