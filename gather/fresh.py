"""Keep blocks of events that were just stored in memory for the next reader.

This is only a cache. A block records the store position that it follows; a reader at any other
position reads the store instead.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from condor_advice.gather.reader import EventColumns

# How far a reader has read a log in the store: the id of the piece before the last one read, and
# the number of events read from that last piece, which may still grow.
StorePosition = tuple[int, int]
STORE_START: StorePosition = (0, 0)

MAX_FRESH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class FreshBlock:
    """Events just read from a log, and the store positions before and after them."""

    before: StorePosition
    after: StorePosition
    columns: EventColumns


class FreshBlocks:
    """The blocks stored since the last reader took them, up to a total size."""

    def __init__(self, max_bytes: int = MAX_FRESH_BYTES) -> None:
        self._max_bytes = max_bytes
        self._blocks: defaultdict[str, deque[FreshBlock]] = defaultdict(deque)
        self.bytes = 0

    def add(self, log: str, block: FreshBlock) -> None:
        """Keep a block, unless the cache is full: the store has it too."""
        if self.bytes + block.columns.size <= self._max_bytes:
            self._blocks[log].append(block)
            self.bytes += block.columns.size

    def take(self, log: str, position: StorePosition) -> FreshBlock | None:
        """Remove and return the block that follows a position, or None.

        Earlier blocks of the log are dropped: the reader is past them.
        """
        blocks = self._blocks[log]
        while blocks:
            block = blocks.popleft()
            self.bytes -= block.columns.size
            if block.before == position:
                return block
        return None
