"""Cut a log right behind a hold, compute from scratch, compare bit by bit.

What a sample contains must be a function of what was known at its hold. So the proof runs the
whole pipeline twice: on the logs as they are, and on the logs as they were at the hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

import numpy as np

from condor_advice.gather.clock import Clock
from condor_advice.gather.reader import EventColumns
from condor_advice.preprocess.holds import timeline
from condor_advice.preprocess.holds.stream import EpisodeStream
from condor_advice.preprocess.holds.tensors import TensorSpec
from condor_advice.preprocess.holds.timeline import LogClock, log_blocks, log_timeline

SPEC = TensorSpec(max_steps=24, neighbours=2, neighbour_steps=6, seed=5)
CLOCK = Clock(UTC)


@dataclass(frozen=True)
class Sample:
    """All that is known of one hold, as bytes: NaNs are compared too."""

    episode: bytes
    features: bytes
    steps: bytes
    neighbours: bytes


@dataclass(frozen=True)
class Cut:
    """Where each log ends, in bytes, when one hold has just been written."""

    sequence: int
    ends: tuple[int, ...]


def make_stream() -> EpisodeStream:
    return EpisodeStream(SPEC)


def samples(
    paths: Sequence[Path], make: Callable[[], EpisodeStream] = make_stream
) -> dict[int, Sample]:
    """Run the pipeline from scratch; return the samples by the place of their hold."""
    stream = make()
    found = {}
    for batch in stream.run(log_timeline(paths, CLOCK, names=stream.names)):
        for index, episode in enumerate(batch.episodes):
            rows = batch.steps[batch.offsets[index] : batch.offsets[index + 1]]
            # The numbers of points and owners are names, given as the logs are read.
            named = episode.copy()
            named["point"] = named["owner"] = 0
            found[int(episode["sequence"])] = Sample(
                named.tobytes(),
                batch.features[index].tobytes(),
                rows.tobytes(),
                batch.neighbours[index].tobytes(),
            )
    return found


def cuts(paths: Sequence[Path]) -> list[Cut]:
    """Find where the logs end at each hold: in log order, and between logs by their clocks."""
    logs = [_positions(path) for path in paths]
    log = np.concatenate([np.full(len(clock), index) for index, (clock, _, _) in enumerate(logs)])
    clock = np.concatenate([clock for clock, _, _ in logs])
    end = np.concatenate([end for _, end, _ in logs])
    kind = np.concatenate([kind for _, _, kind in logs])
    order = np.argsort(clock, kind="stable")
    ends = [0] * len(paths)
    found = []
    for sequence, row in enumerate(order.tolist()):
        ends[log[row]] = int(end[row])
        if kind[row] == 12:
            found.append(Cut(sequence, tuple(ends)))
    return found


def _positions(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clock, end in the file and kind of each event that becomes a step."""
    follow, clocks, ends, kinds = LogClock(), [], [], []
    size = path.stat().st_size
    blocks = list(log_blocks(path, CLOCK))
    starts = np.concatenate([block.base + block.start for block in blocks])
    following = np.append(starts[1:], size)
    at = 0
    for block in blocks:
        chosen = _steps_of(block)
        clocks.append(follow.follow(block.time_us[chosen]))
        ends.append(following[at : at + len(block)][chosen])
        kinds.append(block.type[chosen])
        at += len(block)
    return np.concatenate(clocks), np.concatenate(ends), np.concatenate(kinds)


def _steps_of(block: EventColumns) -> np.ndarray:
    from condor_advice.preprocess.holds.steps import _SKIPPED

    return (block.cluster >= 0) & (block.proc >= 0) & ~np.isin(block.type, _SKIPPED)


def truncate(paths: Sequence[Path], ends: Sequence[int], directory: Path) -> list[Path]:
    """Write the logs as they were; files keep their dates, from which years are found."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for index, (path, end) in enumerate(zip(paths, ends, strict=True)):
        copy = directory / f"{index:05d}.log"
        copy.write_bytes(path.read_bytes()[:end])
        status = path.stat()
        os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
        written.append(copy)
    return written


def leaks(
    paths: Sequence[Path],
    directory: Path,
    *,
    cuts_wanted: int,
    seed: int = 0,
    make: Callable[[], EpisodeStream] = make_stream,
) -> list[str]:
    """Return what differs between the samples of the whole logs and of the logs as cut."""
    whole = samples(paths, make)
    candidates = cuts(paths)
    assert candidates, "there is no hold to cut at"
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(candidates), min(cuts_wanted, len(candidates)), replace=False)
    found = []
    for index in sorted(chosen.tolist()):
        cut = candidates[index]
        then = samples(truncate(paths, cut.ends, directory), make)
        known = {sequence: sample for sequence, sample in whole.items() if sequence <= cut.sequence}
        if then.keys() != known.keys():
            found.append(f"cut at {cut.sequence}: {len(then)} holds instead of {len(known)}")
            continue
        found += [
            difference
            for sequence in known
            for difference in _differences(sequence, known[sequence], then[sequence], make)
        ]
    return found


def _differences(
    sequence: int, ours: Sample, theirs: Sample, make: Callable[[], EpisodeStream]
) -> list[str]:
    if ours == theirs:
        return []
    found = []
    if ours.features != theirs.features:
        names = [feature.name for feature in make().features]
        a, b = (np.frombuffer(s.features, np.float32) for s in (ours, theirs))
        differs = (a != b) & ~(np.isnan(a) & np.isnan(b))
        found += [
            f"hold {sequence}: {names[column]} {a[column]} then {b[column]}"
            for column in np.flatnonzero(differs).tolist()
        ]
    if ours.steps != theirs.steps:
        width = SPEC.num_features
        a, b = (np.frombuffer(s.steps, np.float32).reshape(-1, width) for s in (ours, theirs))
        columns = (
            ("rows",)
            if a.shape != b.shape
            else tuple(SPEC.columns[c] for c in np.unique(np.argwhere(a != b)[:, 1]))
        )
        found.append(f"hold {sequence}: steps differ in {columns}")
    if ours.neighbours != theirs.neighbours:
        shape = (SPEC.neighbours, SPEC.neighbour_steps, SPEC.num_features)
        a, b = (np.frombuffer(s.neighbours, np.float32).reshape(shape) for s in (ours, theirs))
        columns = [SPEC.columns[c] for c in np.unique(np.argwhere(a != b)[:, 2])]
        found.append(f"hold {sequence}: neighbours differ in {columns}")
    if ours.episode != theirs.episode:
        found.append(f"hold {sequence}: the episode differs")
    return found


@contextmanager
def small_blocks(size: int) -> Iterator[None]:
    """Read logs in blocks of another size: the samples must not notice."""
    before = timeline.BLOCK_BYTES, timeline.BATCH_STEPS
    timeline.BLOCK_BYTES, timeline.BATCH_STEPS = size, 1
    try:
        yield
    finally:
        timeline.BLOCK_BYTES, timeline.BATCH_STEPS = before
