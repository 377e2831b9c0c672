"""Hold episodes in memory, from logs or from what is new in a store.

For logs that fit in memory. For training on more data, see export.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from condor_advice.gather.store import Store
from condor_advice.preprocess.holds.facts import END
from condor_advice.preprocess.holds.job_numbers import job_number
from condor_advice.preprocess.holds.outcomes import OUTCOMES, Outcome
from condor_advice.preprocess.holds.steps import Names
from condor_advice.preprocess.holds.stream import (
    EPISODE,
    OUTCOME,
    EpisodeBatch,
    EpisodeStream,
)
from condor_advice.preprocess.holds.tensors import EpisodeTensor, TensorSpec
from condor_advice.preprocess.holds.timeline import Timeline, store_timeline

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Samples:
    """Hold episodes in the order of their holds, with features, steps and outcomes."""

    episodes: npt.NDArray[np.void]  # of dtype EPISODE
    features: npt.NDArray[np.float32]  # axes: (episode, feature)
    steps: EpisodeTensor
    offsets: Ints
    outcomes: npt.NDArray[np.void]  # of dtype OUTCOME; one row per episode
    names: Names
    ends: npt.NDArray[np.void]  # of dtype END, in order

    def __len__(self) -> int:
        return len(self.episodes)

    def find(
        self, cluster: int, proc: int, number: int | None = None, access_point: str | None = None
    ) -> int | None:
        """Return the row of a job's hold by number, or of its last hold; None if it has none."""
        points = self.names.access_points
        chosen = points.values() if access_point is None else [points.get(access_point, -1)]
        jobs = [int(job_number(point, cluster, proc)) for point in chosen if point >= 0]
        rows = np.flatnonzero(np.isin(self.episodes["job"], jobs))
        if number is not None:
            rows = rows[self.episodes["number"][rows] == number]
        return int(rows[-1]) if len(rows) else None

    def tensor(self, row: int) -> EpisodeTensor:
        """Return one episode's steps, without padding; the last row is the hold."""
        return self.steps[self.offsets[row] : self.offsets[row + 1]]

    def outcome(self, row: int) -> Outcome:
        """Return the outcome of one hold, as far as known."""
        return OUTCOMES[int(self.outcomes["outcome"][row])]


def collect(timeline: Timeline, spec: TensorSpec | None = None) -> Samples:
    """Read all hold episodes of a timeline; neighbours' steps come before the job's own."""
    stream = EpisodeStream(spec, names=timeline.names)
    return _joined([_neighbours_first(batch) for batch in stream.run(timeline)], stream)


def _neighbours_first(batch: EpisodeBatch) -> EpisodeBatch:
    """Put the steps of each hold's neighbours, if the spec asks for them, before its own."""
    if not len(batch.episodes) or not batch.neighbours.shape[1]:
        return batch
    rows, lengths = [], []
    for index, (begin, end) in enumerate(pairwise(batch.offsets.tolist())):
        context = batch.neighbours[index].reshape(-1, batch.steps.shape[1])
        context = context[context.any(axis=1)]  # a step is never all zero; padding is
        rows += [context, batch.steps[begin:end]]
        lengths.append(len(context) + end - begin)
    return replace(batch, steps=np.concatenate(rows), offsets=np.append(0, np.cumsum(lengths)))


def collect_new(store: Store, state: Path, spec: TensorSpec | None = None) -> Samples:
    """Read the hold episodes that a store gained since the last call.

    The file `state` keeps the state of the pass; if it does not exist, all events are read.
    Outcomes of episodes from earlier calls are not returned.
    """
    after: dict[str, tuple[int, int]] = {}
    stream = EpisodeStream(spec)
    if state.exists():
        stream, after = EpisodeStream.load(state, spec)
    first = stream.episodes
    batches = list(stream.run(store_timeline(store, after, stream.names, stream.clocks)))
    stream.save(state, after)
    return _joined(batches, stream, first)


def _joined(batches: list[EpisodeBatch], stream: EpisodeStream, first: int = 0) -> Samples:
    outcomes = np.zeros(stream.episodes - first, OUTCOME)
    for batch in batches:
        new = batch.outcomes[batch.outcomes["episode"] >= first]
        outcomes[new["episode"] - first] = new
    lengths = [np.diff(batch.offsets) for batch in batches]
    width = stream.spec.num_features
    return Samples(
        np.concatenate([b.episodes for b in batches] or [np.zeros(0, EPISODE)]),
        np.concatenate(
            [b.features for b in batches] or [np.zeros((0, len(stream.features)), np.float32)]
        ),
        np.concatenate([b.steps for b in batches] or [np.zeros((0, width), np.float32)]),
        np.append(0, np.cumsum(np.concatenate(lengths or [np.zeros(0, np.int64)]))),
        outcomes,
        stream.names,
        np.concatenate([b.ends for b in batches] or [np.zeros(0, END)]),
    )
