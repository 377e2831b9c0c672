"""Keep the hold episodes of a store up to date while its logs are read."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from condor_advice.gather.fresh import FreshBlocks
from condor_advice.gather.memory import give_back_memory
from condor_advice.gather.store import Store
from condor_advice.preprocess.holds.episode_store import KeptEpisodes

# While logs are followed, the pass over hold episodes runs this often, and takes at most this
# share of the time.
KEEP_SECONDS = 2.0
KEEP_SHARE = 0.05
# The longest that followed logs wait for the pass, and that it goes on after a stop signal.
TURN_SECONDS = 3.0
GRACE_SECONDS = 1.0
MANY_EVENTS = 50_000
# Of one log that is read from beginning to end, this much is taken up at a time.
TURN_BYTES = 8 << 20


class EpisodeKeeper:
    """Run the pass over hold episodes as events arrive, in a small share of the time."""

    def __init__(self, store: Store) -> None:
        self._episodes = KeptEpisodes(store)
        self.stop_signals: Sequence[int] = ()  # those received so far
        self._events = -1
        self._store = store
        self._next = 0.0
        self._fresh = store.fresh = FreshBlocks()

    def stored(self) -> None:
        """Take up the blocks just stored, once there are enough, while they are in memory."""
        if self._fresh.bytes >= TURN_BYTES:
            self._take_up(final=False, seconds=math.inf)

    def settle(self, final: bool) -> float | None:
        """Take up new events, unless the pass ran a moment ago.

        Return after how many seconds to call again even if no event arrives.
        """
        began = time.monotonic()
        events = self._store.events_added
        if not final and (events == self._events or began < self._next):
            return None if events == self._events else self._next - began
        if events - self._events > MANY_EVENTS:
            give_back_memory()  # the blocks that were read; the pass needs other arrays
        # Logs need not wait for a long pass: they are read in between, before they rotate away.
        if not self._take_up(final, math.inf if final else TURN_SECONDS):
            return 0.0
        ended = time.monotonic()
        self._next = ended + max(KEEP_SECONDS, (ended - began) / KEEP_SHARE)
        return None

    def _take_up(self, final: bool, seconds: float) -> bool:
        """Run the pass; return whether it took up everything."""
        began = time.monotonic()
        events = self._store.events_added
        self._episodes.take_up(
            final=final,
            # A stop signal need not wait for a long pass: the next process goes on with it.
            stop=lambda: bool(self.stop_signals) and time.monotonic() > began + GRACE_SECONDS,
            seconds=seconds,
        )
        if not self._episodes.behind:
            self._events = events
        return not self._episodes.behind
