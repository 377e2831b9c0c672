"""What one run of a job tells the next: how far it got, what a save costs, what failed."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Dict, List, Optional

from condor_checkpoint.condor import Job, number


class Journal:
    """A small JSON file next to the checkpoints; without a path it lives in memory only.

    A run that ends well, or ends in order to be restarted in place, closes its entry. One
    that is found open was cut off, and counts as a failure at the point it last noted.
    """

    def __init__(self, path: Optional[str], job: Job) -> None:
        self.path = path
        self.point = 0.0  # seconds of work that are saved
        self.cost: Optional[float] = None  # mean cost of a save
        self.saves = 0
        self.seconds = 0.0  # running time of all runs
        self.failures: List[Dict[str, Any]] = []  # point, and whether an alarm stood
        self.false_alarms = 0
        self.restart: Optional[float] = None  # mean time from an exit for a restart to the restart
        self._starts = number(job.ad, "NumShadowStarts")
        self._begun = time.monotonic()
        self._read()

    def _read(self) -> None:
        if self.path is None:
            return
        try:
            with open(self.path, encoding="utf-8") as file:
                old = json.load(file)
            self.point, self.cost = float(old["point"]), old["cost"]
            self.restart = old["restart"]
            self.saves, self.seconds = int(old["saves"]), float(old["seconds"])
            self.failures = list(old["failures"])
            self.false_alarms = int(old["false_alarms"])
            closed, starts = old["closed"], old["starts"]
            if closed == "checkpoint" and starts == self._starts:
                # Restarted in place: the time in between is part of the cost of the save.
                self.restart = blend(self.restart, max(0.0, time.time() - float(old["time"])))
            elif closed != "done":
                self.failures.append({"point": float(old["reached"]), "announced": old["alarm"]})
                self.failures = self.failures[-20:]
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError):
            pass  # half written by a full disk: start afresh

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
        beside = self.path + ".part"
        with contextlib.suppress(OSError):
            with open(beside, "w", encoding="utf-8") as file:
                json.dump(state, file)
            os.replace(beside, self.path)


def blend(mean: Optional[float], seconds: float) -> float:
    """Return a mean in which the last values count most: a state may grow."""
    return seconds if mean is None else 0.7 * mean + 0.3 * seconds
