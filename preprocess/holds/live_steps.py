"""The steps of jobs that are not over, kept so that only those with news are moved.

Most jobs have no news most of the time, above all those that stay on hold for weeks. Copying
the steps of all for every batch would cost memory several times over. Chunks that had no news
for the longest time are compressed, to less than a tenth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.hashing import MIX
from condor_advice.gather.words import distinct, stable_order
from condor_advice.preprocess.holds.steps import STEP, Steps, join_steps, take_steps

Ints = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int16]
Bools = npt.NDArray[np.bool_]

CHUNK_STEPS = 1 << 15  # smaller chunks are joined; a large one is never copied as a whole
PLAIN_BYTES = 32 << 20  # of steps that are not compressed
PORTION_STEPS = 1 << 16  # that are looked at together, where jobs are gone through in turn


class _Chunk:
    """Steps that were put at once, or joined; some may have been taken out since."""

    __slots__ = ("_dtype", "_packed", "_steps", "jobs", "kinds", "latest", "present")

    def __init__(self, steps: Steps, present: Bools | None = None) -> None:
        self._dtype = steps.dtype
        self._steps: Steps | None = steps
        self._packed = b""
        # Fields by themselves are faster to read, and there when the steps are compressed.
        self.jobs: Ints = np.ascontiguousarray(steps["job"])
        self.kinds: Kinds = np.ascontiguousarray(steps["kind"])
        self.latest = int(steps["time"].max())
        self.present: Bools = np.ones(len(steps), np.bool_) if present is None else present

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def plain_bytes(self) -> int:
        return 0 if self._steps is None else self._steps.nbytes

    @property
    def steps(self) -> Steps:
        """The steps, those taken out among them."""
        if self._steps is not None:
            return self._steps
        import zstandard

        raw = zstandard.ZstdDecompressor().decompress(self._packed)
        return np.frombuffer(raw, self._dtype)

    def pack(self) -> None:
        """Compress the steps."""
        if self._steps is not None:
            import zstandard

            raw = np.ascontiguousarray(self._steps).view(np.uint8).data
            self._packed = zstandard.ZstdCompressor(level=1).compress(raw)
            self._steps = None


class LiveSteps:
    """Steps of many jobs; those of one job are in order, the jobs are in none.

    Where each job's steps are put at once, they stay together.
    """

    def __init__(self, chunks: Iterable[Steps] = (), dtype: np.dtype[np.void] = STEP) -> None:
        self._dtype = dtype
        self._chunks: list[_Chunk] = []
        self._news: list[_Chunk] = []  # those that are not compressed, by their last news
        for steps in chunks:
            self.put(steps)

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(chunk.present)) for chunk in self._chunks)

    def put(self, steps: Steps, present: Bools | None = None) -> None:
        """Add steps, or those of them that are to be present; the array is kept."""
        if not len(steps):
            return
        self._insert(len(self._chunks), _Chunk(steps, None if present is None else present.copy()))
        for place in reversed(range(len(self._chunks) - 1)):
            if len(self._chunks[place]) + len(self._chunks[place + 1]) <= CHUNK_STEPS:
                second, first = self._pop(place + 1), self._pop(place)
                joined = join_steps(first, second)
                if len(joined):
                    self._insert(place, _Chunk(joined))
        self._pack_some()

    def take_out(self, jobs: Ints) -> Steps:
        """Remove and return the steps of these jobs."""
        found = [np.empty(0, self._dtype)]
        jobs = np.ascontiguousarray(jobs)
        for chunk in self._chunks:
            wanted = among(chunk.jobs, jobs) & chunk.present
            if wanted.any():
                found.append(take_steps(chunk.steps, wanted))
                chunk.present &= ~wanted
        self._compact()
        return join_steps(*found)

    def _compact(self) -> None:
        """Move the steps of chunks that are mostly empty."""
        for place in reversed(range(len(self._chunks))):
            chunk = self._chunks[place]
            if 2 * int(np.count_nonzero(chunk.present)) < len(chunk):
                self._keep(place, chunk.present)
        self._pack_some()

    def keep_jobs(self, jobs: Ints) -> None:
        """Drop the steps of all other jobs."""
        for chunk in self._chunks:
            chunk.present &= among(chunk.jobs, jobs)
        self._compact()

    def keep(self, wanted: Callable[[Steps], Bools]) -> None:
        """Drop all steps but the wanted; they are asked about chunk by chunk."""
        for place in reversed(range(len(self._chunks))):
            chunk = self._chunks[place]
            present = np.flatnonzero(chunk.present)
            if len(present):
                chosen = np.zeros(len(chunk), np.bool_)
                chosen[present[wanted(take_steps(chunk.steps, present))]] = True
                self._keep(place, chosen)
            else:
                self._pop(place)
            self._pack_some()

    def chunks(self) -> Iterator[Steps]:
        """Yield all steps, as they lie."""
        for chunk in self._chunks:
            if chunk.present.all():
                yield chunk.steps
            elif chunk.present.any():
                yield take_steps(chunk.steps, chunk.present)

    def everything(self) -> Steps:
        """Return a copy of all steps."""
        return join_steps(np.empty(0, self._dtype), *self.chunks())

    def since(self, time: int) -> Iterator[Steps]:
        """Yield the steps that are not earlier than a time."""
        for chunk in self._chunks:
            if chunk.latest >= time:
                steps = chunk.steps
                late = np.flatnonzero((steps["time"] >= time) & chunk.present)
                if len(late):
                    yield take_steps(steps, late)

    def by_job(self) -> Iterator[Steps]:
        """Yield all steps, those of some jobs at a time, sorted by job."""
        present = [chunk.jobs[chunk.present] for chunk in self._chunks]
        jobs, counts = np.unique(
            np.concatenate([np.zeros(0, np.int64), *present]), return_counts=True
        )
        portion = (np.cumsum(counts) - counts) // PORTION_STEPS
        for some in np.split(jobs, np.flatnonzero(np.diff(portion)) + 1):
            parts = [np.empty(0, self._dtype)]
            for chunk in self._chunks:
                wanted = among(chunk.jobs, some) & chunk.present
                if wanted.any():
                    parts.append(take_steps(chunk.steps, wanted))
            steps = join_steps(*parts)
            yield take_steps(steps, stable_order(steps["job"])) if len(steps) else steps

    def count(self, jobs: Ints) -> int:
        """Return how many steps of these jobs are here."""
        jobs = np.ascontiguousarray(jobs)
        return sum(
            int(np.count_nonzero(among(chunk.jobs, jobs) & chunk.present)) for chunk in self._chunks
        )

    def count_kinds(self, kinds: Iterable[int]) -> int:
        """Return how many steps are of these kinds."""
        wanted = np.array(list(kinds))
        return sum(
            int(np.count_nonzero(np.isin(chunk.kinds, wanted) & chunk.present))
            for chunk in self._chunks
        )

    def has(self, jobs: Ints) -> Bools:
        """Tell which of these jobs have steps here."""
        found = np.zeros(len(jobs), np.bool_)
        for chunk in self._chunks:
            found |= among(jobs, chunk.jobs[chunk.present])
        return found

    def jobs(self) -> Ints:
        """Return the jobs that have steps here."""
        found = [distinct(chunk.jobs[chunk.present]) for chunk in self._chunks]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _insert(self, place: int, chunk: _Chunk) -> None:
        self._chunks.insert(place, chunk)
        self._news.append(chunk)

    def _pop(self, place: int) -> Steps:
        """Remove a chunk; return what is left in it."""
        chunk = self._chunks.pop(place)
        self._news = [other for other in self._news if other is not chunk]
        return chunk.steps if chunk.present.all() else take_steps(chunk.steps, chunk.present)

    def _keep(self, place: int, chosen: Bools) -> None:
        if not chosen.all():
            self._chunks[place].present = chosen
            kept = self._pop(place)
            if len(kept):
                self._insert(place, _Chunk(kept))

    def _pack_some(self) -> None:
        """Compress the chunks that have been without news for longest."""
        plain = sum(chunk.plain_bytes for chunk in self._news)
        while plain > PLAIN_BYTES:
            oldest = self._news.pop(0)
            plain -= oldest.plain_bytes
            oldest.pack()


_TABLE_BITS = 18


def among(values: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Bools:
    """Tell which values are among the wanted ones."""
    if not len(wanted) or not len(values):
        return np.zeros(len(values), np.bool_)
    # A table by hash has one wanted value for each place; the few others are searched for.
    table = np.full(1 << _TABLE_BITS, -1, np.int32)
    table[_places(wanted)] = np.arange(len(wanted))
    candidate = table[_places(values)]
    found: Bools = (candidate >= 0) & (wanted[candidate] == values)
    left = np.flatnonzero((candidate >= 0) & ~found)
    if len(left):
        ordered = np.sort(wanted)
        place = np.minimum(np.searchsorted(ordered, values[left]), len(ordered) - 1)
        found[left] = ordered[place] == values[left]
    return found


def _places(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    mixed = values.astype(np.uint64) * MIX
    return (mixed >> np.uint64(64 - _TABLE_BITS)).view(np.int64)
