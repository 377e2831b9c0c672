"""Local times of an event log to UTC, with the repeated autumn hour resolved by order."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import UsageError

Int64s = npt.NDArray[np.int64]

# Events of one log may be out of order by a little: each daemon stamps its own. Within
# the repeated hour a step back of more than this is the clock change, not disorder.
DISORDER_SECONDS = 60
# No event log has dates outside these.
FIRST_YEAR, LAST_YEAR = 1900, 2199


def find_zone(name: str | None = None) -> tzinfo:
    """Return the zone called `name`, or the machine's own when there is no name."""
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
            f"time zone {name!r} is not known on this machine; "
            "give a name such as America/Chicago or UTC"
        ) from None


class Clock:
    """Turns seconds of local wall time into seconds of UTC, whole columns at a time."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self._years: dict[int, list[tuple[int, int, int]]] = {}

    def to_utc(self, local: Int64s, last_utc: int | None) -> Int64s:
        """Convert `local`, in log order; `last_utc` is the last event before these.

        A wall time that occurs twice takes its first meaning, unless that would put it
        well before its predecessor in the log: then the clock has been set back.
        """
        if len(local) == 0 or self.zone is UTC:
            return local
        years = range(_year_of(int(local.min())) - 1, _year_of(int(local.max())) + 2)
        changes = [change for year in years for change in self._changes(year)]
        if not changes:
            return local - self._offset_at(int(local[0]))
        day = 86400
        near = (c for c in changes if local.min() - day <= c[0] <= local.max() + day)
        if not any(near):  # nearly always: one offset for the whole block
            return local - self._offset_at(int(local[0]))
        moments = np.array([moment for moment, _, _ in changes], dtype=np.int64)
        before = np.array([offset for _, offset, _ in changes], dtype=np.int64)
        after = np.array([offset for _, _, offset in changes], dtype=np.int64)
        # A change of the clock takes hold, on the wall, at the later of its two readings.
        walls = moments + np.maximum(before, after)
        offsets = np.append(before, after[-1])
        index = np.searchsorted(walls, local, side="right")
        utc: Int64s = local - offsets[index]
        # The repeated hour lies just before the wall time of a change that sets back.
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

        zoneinfo does not tell its transitions, so they are found by halving, week by
        week: no zone changes its clock and changes it back within one.
        """
        if year not in self._years:
            found = []
            step = int(timedelta(days=7).total_seconds())
            start = int(datetime(max(year, 1970), 1, 1, tzinfo=UTC).timestamp())
            end = int(datetime(max(year, 1970) + 1, 1, 1, tzinfo=UTC).timestamp())
            offset = self._offset_at(start)
            for low in range(start, end, step):
                high = min(low + step, end)
                then = self._offset_at(high)
                if then != offset:
                    early, late = low, high
                    while late - early > 1:
                        middle = (early + late) // 2
                        if self._offset_at(middle) == offset:
                            early = middle
                        else:
                            late = middle
                    found.append((late, offset, then))
                    offset = then
            self._years[year] = found if year >= 1970 else []
        return self._years[year]


def days_since_1970(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Return the days from 1970-01-01 to dates of the Gregorian calendar."""
    # Years that begin in March have their leap day at the end, so months are regular.
    shifted = (month + 9) % 12
    year = year - (month <= 2)
    leaps = year // 4 - year // 100 + year // 400
    return year * 365 + leaps + (shifted * 153 + 2) // 5 + day - 1 - 719468


def _year_of(seconds: int) -> int:
    """Return the calendar year of a wall time given as seconds since 1970."""
    return (datetime(1970, 1, 1) + timedelta(seconds=seconds)).year
