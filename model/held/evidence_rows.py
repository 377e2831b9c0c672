"""Evidence about many holds as arrays: what the sequence network and the trees read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_advice.preprocess.holds.evidence import QUERY_COLUMNS, TOKEN_COLUMNS, Evidence

Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class EvidenceTensors:
    """The evidence about some questions; tokens are without padding."""

    tokens: Table  # axes: (token of any question, TOKEN_COLUMNS)
    offsets: Ints  # where each question's tokens begin, with the end appended
    query: Table  # axes: (question, QUERY_COLUMNS)

    @classmethod
    def of(cls, evidence: Sequence[Evidence]) -> EvidenceTensors:
        """Join the evidence about questions; half precision is enough, and takes half the space."""
        lengths = [len(one.tokens) for one in evidence]
        return cls(
            np.concatenate([_NO_TOKENS, *(one.tokens for one in evidence)]).astype(np.float16),
            np.append(0, np.cumsum(lengths, dtype=np.int64)),
            np.array([one.query for one in evidence], np.float16).reshape(-1, len(QUERY_COLUMNS)),
        )

    @classmethod
    def nothing(cls, count: int) -> EvidenceTensors:
        """Return questions about which nothing is known."""
        query = np.zeros((count, len(QUERY_COLUMNS)), np.float16)
        return cls(_NO_TOKENS.astype(np.float16), np.zeros(count + 1, np.int64), query)

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: Ints) -> EvidenceTensors:
        """Return some of the questions."""
        lengths = np.diff(self.offsets)[rows]
        source = np.repeat(self.offsets[:-1][rows], lengths) + _count_up(lengths)
        offsets = np.append(0, np.cumsum(lengths))
        return EvidenceTensors(self.tokens[source], offsets, self.query[rows])

    def padded(
        self, rows: Ints, drop: float = 0.0, rng: np.random.Generator | None = None
    ) -> tuple[npt.NDArray[np.float32], Ints]:
        """Return the tokens of some questions, padded at the end, and how many each has.

        `drop` leaves out tokens at random, up to twice this share of a question's.
        """
        lengths = np.diff(self.offsets)[rows]
        source = np.repeat(self.offsets[:-1][rows], lengths) + _count_up(lengths)
        question = np.repeat(np.arange(len(rows)), lengths)
        if drop and rng is not None:
            share = 2 * drop * rng.random(len(rows))
            kept = rng.random(len(source)) >= share[question]
            source, question = source[kept], question[kept]
            lengths = np.bincount(question, minlength=len(rows))
        longest = int(lengths.max(initial=0)) + 1
        tokens = np.zeros((len(rows), longest, len(TOKEN_COLUMNS)), np.float32)
        tokens[question, _count_up(lengths)] = self.tokens[source]
        return tokens, lengths


_NO_TOKENS = np.zeros((0, len(TOKEN_COLUMNS)), np.float32)


@dataclass(frozen=True, slots=True)
class EvidenceRows:
    """Questions with known answers."""

    evidence: EvidenceTensors
    label: npt.NDArray[np.int8]
    group: Ints  # the world, or the recording, that each comes from

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: Ints) -> EvidenceRows:
        """Return some of the questions."""
        return EvidenceRows(self.evidence.take(rows), self.label[rows], self.group[rows])


def join_tensors(parts: Iterable[EvidenceTensors]) -> EvidenceTensors:
    """Join evidence."""
    some = list(parts)
    lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(part.offsets) for part in some)])
    return EvidenceTensors(
        np.concatenate([_NO_TOKENS.astype(np.float16), *(part.tokens for part in some)]),
        np.append(0, np.cumsum(lengths)).astype(np.int64),
        np.concatenate([part.query for part in some]),
    )


def join_rows(parts: Iterable[EvidenceRows]) -> EvidenceRows:
    """Join questions."""
    some = list(parts)
    return EvidenceRows(
        join_tensors(part.evidence for part in some),
        np.concatenate([part.label for part in some]),
        np.concatenate([part.group for part in some]),
    )


def _count_up(lengths: Ints) -> Ints:
    """Return 0, 1, 2, ... for each length in turn."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
