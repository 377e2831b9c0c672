"""Hold episodes on their way through a sweep: from a shard of the data to a split for trials.

A shard is one access point's events as they were when the sweep was planned. The features of a
hold depend on everything that happened on that access point before it, so a shard is never cut
further.
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

SHARD_FILE = "source.json"  # says what a shard is
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
            data = load_logs(EpisodeLogs.from_dict(shard, directory), spec)
    if not len(data):
        raise AdviceError(f"{data.sources[0]}: no hold episode in it; name other data")
    return data


def merge_shards(
    shards: list[HeldData], shares: SplitShares
) -> tuple[HeldData, dict[str, npt.NDArray[np.int64]]]:
    """Join shards; return the episodes and, for each part of the split, its rows.

    Each access point is split at its own times, since each has its own clock and history.
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
                f"the {name} part has {len(rows)} labelled episodes, all of one kind; gather more "
                "logs, or change split (for logs of less than a day lower its gap_seconds)"
            )
    return data, joined


def load_split(path: Path) -> dict[str, HeldData]:
    """Read merged episodes as the parts of their split."""
    data, parts = HeldData.load_with_parts(path)
    return {name: data.take(parts[name]) for name in SPLITS}
