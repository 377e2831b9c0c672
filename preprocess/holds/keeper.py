"""Keep the hold episodes of a store up to date while its logs are read."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from condor_advice.gather.memory import give_back_memory
from condor_advice.gather.store import Store
from condor_advice.preprocess.holds.episode_store import KeptEpisodes

# While logs are followed, the pass over hold episodes runs this often, and takes at most this
# share of the time.
KEEP_SECONDS = 2.0
KEEP_SHARE = 0.05
# Grace period after a stop signal, and the longest that followed logs wait for the pass.
GRACE_SECONDS = 3.0
MANY_EVENTS = 50_000


class EpisodeKeeper:
    """Run the pass over hold episodes as events arrive, in a small share of the time."""

    def __init__(self, store: Store) -> None:
        self._episodes = KeptEpisodes(store)
        self.stop_signals: Sequence[int] = ()  # those received so far
        self._events = -1
        self._store = store
        self._next = 0.0

    def settle(self, final: bool) -> float | None:
        """Take up new events, unless the pass ran a moment ago.

        Return after how many seconds to call again even if no event arrives.
        """
        began = time.monotonic()
        events = sum(self._store.counts_by_type().values())
        if not final and (events == self._events or began < self._next):
            return None if events == self._events else self._next - began
        if events - self._events > MANY_EVENTS:
            give_back_memory()  # the blocks that were read; the pass needs other arrays
        self._episodes.take_up(
            final=final,
            # A stop signal need not wait for a long pass: the next process goes on with it.
            stop=lambda: bool(self.stop_signals) and time.monotonic() > began + GRACE_SECONDS,
            # Nor need the logs: they are read in between, and must not rotate away unread.
            seconds=math.inf if final else GRACE_SECONDS,
        )
        if self._episodes.behind:
            return 0.0
        self._events = events
        ended = time.monotonic()
        self._next = ended + max(KEEP_SECONDS, (ended - began) / KEEP_SHARE)
        return None
