"""Blocks of events that were just stored, held in memory for whoever reads them next.

The store stays the truth: a block says which position in the store it follows, and a reader
at any other position reads the store instead. So nothing depends on a block being here.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from condor_advice.gather.reader import EventColumns

# How far a log has been read from a store: the id of the piece before the last one read, and
# how many events of that last one. The last piece of a log may still grow.
StorePosition = tuple[int, int]
START: StorePosition = (0, 0)

MAX_FRESH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class FreshBlock:
    """Events as they were read from a log, and their place in the store."""

    before: StorePosition
    after: StorePosition
    columns: EventColumns


class FreshBlocks:
    """The blocks stored since the last reader came, as many as fit."""

    def __init__(self, max_bytes: int = MAX_FRESH_BYTES) -> None:
        self._max_bytes = max_bytes
        self._blocks: defaultdict[str, deque[FreshBlock]] = defaultdict(deque)
        self.bytes = 0

    def add(self, log: str, block: FreshBlock) -> None:
        """Hold a block, unless there are too many already: it is in the store, too."""
        if self.bytes + block.columns.size <= self._max_bytes:
            self._blocks[log].append(block)
            self.bytes += block.columns.size

    def take(self, log: str, position: StorePosition) -> FreshBlock | None:
        """Remove and return the block that follows a position; None where it is not here.

        Blocks of the log that stand before it are dropped: the reader has passed them.
        """
        blocks = self._blocks[log]
        while blocks:
            block = blocks.popleft()
            self.bytes -= block.columns.size
            if block.before == position:
                return block
        return None
