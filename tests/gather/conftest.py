"""Helpers of the reader's tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.reader import EventColumns, ReaderState, read_block

Reader = Callable[..., EventColumns]


@pytest.fixture
def read() -> Reader:
    """Read a whole log from bytes, as a file that is complete."""

    def whole(data: bytes, zone: str = "UTC", final: bool = True, year: int = 2026) -> EventColumns:
        state = ReaderState(year=year)
        clock = Clock(find_zone(zone))
        return read_block(data, state, base=0, clock=clock, final=final)[0]

    return whole
