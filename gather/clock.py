"""Convert an event log's local times to UTC; log order resolves the repeated autumn hour."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import UsageError

Int64s = npt.NDArray[np.int64]

# Events in a log may be slightly out of order, because each daemon writes its own time stamps.
# Within the repeated hour, a larger step back than this is the clock change.
DISORDER_SECONDS = 60
# No event log has dates outside this range.
FIRST_YEAR, LAST_YEAR = 1900, 2199


def find_zone(name: str | None = None) -> tzinfo:
    """Return the time zone called `name`, or the machine's own if `name` is None."""
    if name is None:
        name = os.environ.get("TZ", "").removeprefix(":") or "/etc/localtime"
    if name.startswith("/"):  # as in TZ=:/etc/localtime, which many machines set
        try:
            with open(name, "rb") as file:
                return ZoneInfo.from_file(file, key=name)
        except (OSError, ValueError):
            if name == "/etc/localtime":
                return UTC
    if name.upper() in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"unknown time zone {name!r}; give a name such as America/Chicago or UTC"
        ) from None


class Clock:
    """Converts columns of local times, in seconds, to UTC."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self._years: dict[int, list[tuple[int, int, int]]] = {}

    def to_utc(self, local: Int64s, last_utc: int | None) -> Int64s:
        """Convert `local`, in log order; `last_utc` is the time of the event before these.

        A local time that occurs twice means its first occurrence, unless that would put it
        well before the preceding event: then the clock has been set back.
        """
        if len(local) == 0 or self.zone is UTC:
            return local
        years = range(_year_of(int(local.min())) - 1, _year_of(int(local.max())) + 2)
        changes = [change for year in years for change in self._changes(year)]
        if not changes:
            return local - self._offset_at(int(local[0]))
        day = 86400
        near = (c for c in changes if local.min() - day <= c[0] <= local.max() + day)
        if not any(near):  # the usual case: one offset for the whole block
            return local - self._offset_at(int(local[0]))
        moments = np.array([moment for moment, _, _ in changes], dtype=np.int64)
        before = np.array([offset for _, offset, _ in changes], dtype=np.int64)
        after = np.array([offset for _, _, offset in changes], dtype=np.int64)
        # In local time, a clock change takes effect at the later of its two readings.
        walls = moments + np.maximum(before, after)
        offsets = np.append(before, after[-1])
        index = np.searchsorted(walls, local, side="right")
        utc: Int64s = local - offsets[index]
        # The repeated hour lies just before the local time of a change that sets the clock back.
        upcoming = np.minimum(index, len(walls) - 1)
        repeated = (index < len(walls)) & (
            local >= walls[upcoming] - np.maximum(before - after, 0)[upcoming]
        )
        repeated &= (before > after)[upcoming]
        for row in np.flatnonzero(repeated):
            previous = int(utc[row - 1]) if row else last_utc
            if previous is not None and utc[row] < previous - DISORDER_SECONDS:
                utc[row] = local[row] - after[upcoming[row]]
        return utc

    def _offset_at(self, utc: int) -> int:
        moment = datetime.fromtimestamp(utc, UTC).astimezone(self.zone)
        offset = moment.utcoffset()
        assert offset is not None
        return int(offset.total_seconds())

    def _changes(self, year: int) -> list[tuple[int, int, int]]:
        """Return the clock changes of one UTC year: (UTC second, offset before, after).

        zoneinfo does not list its transitions, so search each week by bisection: no zone
        changes its clock twice within a week.
        """
        if year not in self._years:
            changes = []
            step = int(timedelta(days=7).total_seconds())
            start = int(datetime(max(year, 1970), 1, 1, tzinfo=UTC).timestamp())
            end = int(datetime(max(year, 1970) + 1, 1, 1, tzinfo=UTC).timestamp())
            offset = self._offset_at(start)
            for low in range(start, end, step):
                high = min(low + step, end)
                next_offset = self._offset_at(high)
                if next_offset != offset:
                    early, late = low, high
                    while late - early > 1:
                        middle = (early + late) // 2
                        if self._offset_at(middle) == offset:
                            early = middle
                        else:
                            late = middle
                    changes.append((late, offset, next_offset))
                    offset = next_offset
            self._years[year] = changes if year >= 1970 else []
        return self._years[year]


def days_since_1970(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Return the number of days from 1970-01-01 to Gregorian dates."""
    # Years that begin in March have their leap day at the end, so month lengths are regular.
    shifted = (month + 9) % 12
    year = year - (month <= 2)
    leaps = year // 4 - year // 100 + year // 400
    return year * 365 + leaps + (shifted * 153 + 2) // 5 + day - 1 - 719468


def _year_of(seconds: int) -> int:
    """Return the calendar year of a local time given as seconds since 1970."""
    return (datetime(1970, 1, 1) + timedelta(seconds=seconds)).year
