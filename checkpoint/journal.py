"""What one run of a job tells the next: how far it got, what a save costs, what failed."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Dict, List, Optional

from condor_checkpoint.condor import Job, number
from condor_checkpoint.robust import finite, read_text

# Earlier failures and false alarms beyond these counts change no decision.
MOST_FAILURES = 20
MOST_FALSE_ALARMS = 1000
# Figures beyond these are damage, or clocks that disagree: a century, and a day, in seconds.
LONGEST = 100 * 365 * 86400.0
LONGEST_SAVE = 86400.0
JOURNAL_LIMIT = 1 << 20


class Journal:
    """A small JSON file next to the checkpoints; without a path it lives in memory only.

    A run that succeeds, or that exits to be restarted in place, closes its entry. An entry
    that is still open at the next start belongs to a run that was cut off, and counts as a
    failure at the point that it last noted. A value that is missing or damaged is ignored.
    """

    def __init__(self, path: Optional[str], job: Job) -> None:
        self.path = path
        self.point = 0.0  # seconds of work that are saved
        self.cost: Optional[float] = None  # mean cost of a save
        self.saves = 0
        self.seconds = 0.0  # running time of all runs
        self.failures: List[Dict[str, Any]] = []  # point, and whether an alarm was raised
        self.false_alarms = 0
        self.restart: Optional[float] = None  # mean time from exit to restart in place
        self._starts = number(job.ad, "NumShadowStarts")
        self._begun = time.monotonic()
        with contextlib.suppress(Exception):
            self._read()

    def _read(self) -> None:
        old = json.loads(read_text(self.path, JOURNAL_LIMIT) or "null")
        if not isinstance(old, dict) or "closed" not in old:
            return
        self.point = finite(old.get("point"), 0.0, LONGEST) or 0.0
        self.cost = finite(old.get("cost"), 0.0, LONGEST_SAVE)
        self.restart = finite(old.get("restart"), 0.0, LONGEST_SAVE)
        self.saves = int(finite(old.get("saves"), 0.0, LONGEST) or 0)
        self.seconds = finite(old.get("seconds"), 0.0, LONGEST) or 0.0
        alarms = finite(old.get("false_alarms"), 0.0) or 0.0
        self.false_alarms = int(min(alarms, MOST_FALSE_ALARMS))
        earlier = old.get("failures")
        for failure in earlier if isinstance(earlier, list) else []:
            if isinstance(failure, dict):
                self._add_failure(failure.get("point"), failure.get("announced"))
        if old["closed"] == "checkpoint" and old.get("starts") == self._starts:
            # Restarted in place: the time in between is part of the cost of the save.
            waited = time.time() - (finite(old.get("time"), 0.0) or 0.0)
            if waited <= LONGEST_SAVE:
                self.restart = blend(self.restart, max(0.0, waited))
        elif old["closed"] != "done":
            self._add_failure(old.get("reached"), old.get("alarm"))

    def _add_failure(self, point: Any, announced: Any) -> None:
        seconds = finite(point, 0.0, LONGEST)
        if seconds is not None:
            self.failures.append({"point": seconds, "announced": announced is True})
            del self.failures[:-MOST_FAILURES]

    def note(self, unsaved: float, alarm: bool, closed: str = "") -> None:
        """Write down where the run is; best effort, as the disk may be full."""
        if self.path is None:
            return
        now = time.monotonic()
        self.seconds += now - self._begun
        self._begun = now
        state = {
            "point": self.point,
            "reached": self.point + unsaved,
            "alarm": alarm,
            "cost": self.cost,
            "restart": self.restart,
            "saves": self.saves,
            "seconds": self.seconds,
            "failures": self.failures,
            "false_alarms": self.false_alarms,
            "starts": self._starts,
            "closed": closed,
            "time": time.time(),
        }
        part = self.path + ".part"
        with contextlib.suppress(Exception):
            with open(part, "w", encoding="utf-8") as file:
                file.write(json.dumps(state, indent=2) + "\n")
            os.replace(part, self.path)


def blend(mean: Optional[float], seconds: float) -> float:
    """Return a mean in which the last values count most: a state may grow."""
    return seconds if mean is None else 0.7 * mean + 0.3 * seconds
