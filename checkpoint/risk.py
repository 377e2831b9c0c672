"""How near a failure is: resources that run out, time that runs out, and learned trees.

There are two predictors. The first extends the trends of memory, disk, file system and open
files to their limits; it works from the first minute and needs no training. The second is a
set of gradient-boosted trees, trained elsewhere and evaluated here in plain Python. The trees
measure time in sampling intervals, so a model trained on samples taken every half second also
fits a job that is sampled every five seconds.
"""

from __future__ import annotations

import json
import math
import struct
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

from condor_checkpoint.policy import TIME, Alarm, Card
from condor_checkpoint.sample import Sample

SHORT, LONG = 12, 60  # samples in the two windows
HORIZON = 30  # the trees' question: does it fail within so many samples?
ENOUGH = 4  # samples below which there is no trend
# A trend is extended to this many times the span over which it was observed.
REACH = 10.0
# Residuals of usage are correlated in time, so the plain standard error is too small.
CAUTION = 2.0
# Over the limit and still running: the limit is not enforced at once, but the starter checks
# the usage every STARTER_UPDATE_INTERVAL, which is 300 s by default.
OVER = 0.9
OVERDUE = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0)
_QUANTILES = (-1.28, -0.52, 0.0, 0.52, 1.28)
# Assumed share of steady trends that reach the limit, unless the model has measured it.
CREDENCE = 0.5
# Probabilities at which an alarm is raised, for policies that follow any alarm, and dropped.
RAISED, GIVEN_UP = 0.5, 0.25

FEATURES = (
    "memory_log",
    "memory_share",
    "memory_peak_share",
    "memory_growth_short",
    "memory_growth_long",
    "memory_lead_log",
    "disk_log",
    "disk_share",
    "disk_growth_short",
    "disk_growth_long",
    "disk_lead_log",
    "file_system_share",
    "file_system_growth",
    "open_files_share",
    "open_files_growth",
    "cpu_cores_short",
    "cpu_cores_long",
    "read_log",
    "written_log",
    "received_log",
    "sent_log",
    "processes_log",
    "elapsed_log",
    "node_time_log",
    "time_left_share",
)


class Trend(NamedTuple):
    """A straight line through the samples of a window."""

    slope: float  # per second
    error: float  # standard error of the slope, with caution
    span: float  # seconds seen


def fit_trend(times: Sequence[float], values: Sequence[float]) -> Optional[Trend]:
    """Fit a line by least squares; None if there are too few samples."""
    n = len(times)
    if n < ENOUGH:
        return None
    mean_time, mean_value = sum(times) / n, sum(values) / n
    spread = sum((t - mean_time) ** 2 for t in times)
    span = times[-1] - times[0]
    if spread <= 0.0 or span <= 0.0:
        return None
    slope = sum((t - mean_time) * (v - mean_value) for t, v in zip(times, values)) / spread
    residual = sum((v - mean_value - slope * (t - mean_time)) ** 2 for t, v in zip(times, values))
    return Trend(slope, CAUTION * math.sqrt(residual / (n - 2) / spread), span)


def leads_to_limit(trends: Sequence[Optional[Trend]], room: float) -> List[float]:
    """Return equally likely times until `room` is used up; inf where a trend does not say so."""
    if room <= 0.0:
        return [0.0]
    leads = []
    for trend in trends:
        if trend is None:
            continue
        for quantile in _QUANTILES:
            slope = trend.slope + quantile * trend.error
            lead = room / slope if slope > 0.0 else math.inf
            leads.append(lead if lead <= REACH * trend.span else math.inf)
    return sorted(leads)


class Trees:
    """Boosted trees as exported, and their measured quality."""

    def __init__(self, exported: Dict[str, Any]) -> None:
        if exported.get("format") != 1:
            raise ValueError("the model file has an unknown format; train it again")
        if tuple(exported["features"]) != FEATURES:
            raise ValueError("the model was trained on other features; train it again")
        self.base: float = exported["base"]
        self.trees: List[Any] = exported["trees"]
        self.calibration: Tuple[float, float] = tuple(exported["calibration"])
        card = exported["card"]
        # Lead times are stored in sampling intervals.
        self.leads: Tuple[float, ...] = tuple(card["leads"])
        self.threshold: float = card["threshold"]
        # Share of trends towards a limit that did reach it, where the model was trained.
        self.trend_precision: float = card.get("trend_precision", CREDENCE)
        self.card = Card(recall=card["recall"], precision=card["precision"])

    def probability(self, features: Sequence[float]) -> float:
        """Return the calibrated probability that the job fails within the horizon."""
        margin = self.margin(features)
        scale, shift = self.calibration
        return _sigmoid(scale * margin + shift)

    def margin(self, features: Sequence[float]) -> float:
        """Return the sum of the trees, as xgboost gives it with output_margin=True.

        The trees compare 32-bit numbers, so the features are rounded to that first.
        """
        rounded = struct.unpack(f"<{len(features)}f", struct.pack(f"<{len(features)}f", *features))
        total = self.base
        for node in self.trees:
            while isinstance(node, list):
                # [feature, threshold, below, not below, where a missing value goes]
                value = rounded[node[0]]
                if value != value:
                    node = node[2 + node[4]]
                else:
                    node = node[2] if value < node[1] else node[3]
            total += node
        return total


def load_trees(text: str) -> Trees:
    """Read exported trees from JSON."""
    return Trees(json.loads(text))


def _sigmoid(margin: float) -> float:
    if margin < -700.0:
        return 0.0
    return 1.0 / (1.0 + math.exp(-margin))


class Risk:
    """Watches samples and raises alarms."""

    def __init__(
        self, interval: float, trees: Optional[Trees] = None, credence: Optional[float] = None
    ) -> None:
        self.interval = interval
        self.trees = trees
        if credence is None:
            credence = trees.trend_precision if trees is not None else CREDENCE
        self.credence = credence
        self.samples: Deque[Sample] = deque(maxlen=LONG)
        self._since: Dict[str, float] = {}
        self._episodes: Dict[str, float] = {}
        self.ended_alarms = 0  # alarms that passed without a failure

    def add(self, sample: Sample, now: float) -> Tuple[Alarm, ...]:
        """Add a sample; return the current alarms. `now` is on the caller's clock."""
        self.samples.append(sample)
        alarms = []
        for cause, leads in self.exhaustion():
            over = cause + " over"
            if leads == [0.0]:
                begun = self._begun(over, OVERDUE, now)
                alarms.append(self._alarm(cause, OVER, OVERDUE, begun, now))
                continue
            self._episodes.pop(over, None)
            finite = tuple(lead for lead in leads if lead < math.inf)
            if finite:
                probability = self.credence * len(finite) / len(leads)
                alarms.append(self._alarm(cause, probability, finite, now, now))
        if sample.end is not None:
            alarms.append(
                Alarm(
                    1.0,
                    (max(0.0, sample.end - sample.time),),
                    now,
                    self._since.setdefault(TIME, now),
                    TIME,
                )
            )
        if self.trees is not None and self.trees.leads and len(self.samples) >= ENOUGH:
            probability = self.trees.probability(self.features())
            if probability >= self.trees.threshold:
                seconds = tuple(lead * self.interval for lead in self.trees.leads)
                begun = self._begun("usage", seconds, now)
                alarms.append(self._alarm("usage", probability, seconds, begun, now))
            elif probability < self.trees.threshold / 2.0:
                self._episodes.pop("usage", None)
        standing = {alarm.cause for alarm in alarms if alarm.probability >= GIVEN_UP}
        for cause in [cause for cause in self._since if cause not in standing]:
            del self._since[cause]
            self.ended_alarms += 1
        return tuple(alarms)

    def _begun(self, cause: str, leads: Sequence[float], now: float) -> float:
        """Return when the alarm began, from which its lead times count.

        Counting them from each new sample would postpone the failure for ever, and the save
        with it. When all of them have passed, the alarm begins again.
        """
        begun = self._episodes.setdefault(cause, now)
        if now - begun >= leads[-1]:
            begun = self._episodes[cause] = now
        return begun

    def _alarm(
        self, cause: str, probability: float, leads: Tuple[float, ...], at: float, now: float
    ) -> Alarm:
        if probability >= RAISED:
            self._since.setdefault(cause, now)
        return Alarm(probability, leads, at, self._since.get(cause, now), cause)

    def exhaustion(self) -> List[Tuple[str, List[float]]]:
        """Return, for each resource with a limit, equally likely times until it is reached."""
        return [
            (cause, leads_to_limit(self._trends(used), limit - used[-1][1]))
            for cause, used, limit in self._resources()
        ]

    def _resources(self) -> List[Tuple[str, List[Tuple[float, float]], float]]:
        last = self.samples[-1]
        resources = []
        for cause, name, limit in (
            ("memory", "memory", last.memory_limit),
            ("disk", "disk", last.disk_limit),
            ("open files", "open_files", last.open_files_limit),
        ):
            used = self._series(name)
            if limit and used and getattr(last, name) is not None:
                resources.append((cause, used, limit))
        size = last.file_system_size
        free = self._series("file_system_free")
        if size and free and last.file_system_free is not None:
            resources.append(("file system", [(t, size - value) for t, value in free], size))
        return resources

    def _series(self, name: str) -> List[Tuple[float, float]]:
        return [
            (sample.elapsed, value)
            for sample in self.samples
            for value in (getattr(sample, name),)
            if value is not None
        ]

    def _trends(self, series: Sequence[Tuple[float, float]]) -> List[Optional[Trend]]:
        windows = [series[-SHORT:], series] if len(series) > SHORT else [series]
        return [fit_trend(*zip(*window)) for window in windows]

    def features(self) -> List[float]:
        """Describe the samples so far for the trees; NaN where nothing is known."""
        last = self.samples[-1]
        horizon = HORIZON * self.interval
        intervals = last.elapsed / self.interval
        resources = {cause: (used, limit) for cause, used, limit in self._resources()}

        def share(cause: str) -> float:
            if cause not in resources:
                return math.nan
            used, limit = resources[cause]
            return used[-1][1] / limit

        def growth(cause: str, window: int) -> float:
            """Share of the limit that is gained within the horizon."""
            if cause not in resources:
                return math.nan
            used, limit = resources[cause]
            trend = fit_trend(*zip(*used[-window:]))
            return trend.slope * horizon / limit if trend else math.nan

        def lead(cause: str) -> float:
            """The median time to the limit according to the trends."""
            if cause not in resources:
                return math.nan
            used, limit = resources[cause]
            leads = leads_to_limit(self._trends(used), limit - used[-1][1])
            if not leads:
                return math.nan
            middle = leads[len(leads) // 2] / self.interval
            return math.log10(1.0 + min(middle, 1e6))

        def rate(name: str, window: int) -> float:
            series = self._series(name)[-window:]
            if len(series) < 2 or series[-1][0] <= series[0][0]:
                return math.nan
            return max(0.0, series[-1][1] - series[0][1]) / (series[-1][0] - series[0][0])

        peak = (
            last.memory_peak / last.memory_limit
            if last.memory_peak and last.memory_limit
            else math.nan
        )
        left = math.nan
        if last.end is not None:
            remaining = max(0.0, last.end - last.time)
            left = remaining / max(1e-9, remaining + last.elapsed)
        return [
            _log(last.memory),
            share("memory"),
            peak,
            growth("memory", SHORT),
            growth("memory", LONG),
            lead("memory"),
            _log(last.disk),
            share("disk"),
            growth("disk", SHORT),
            growth("disk", LONG),
            lead("disk"),
            share("file system"),
            growth("file system", LONG),
            share("open files"),
            growth("open files", LONG),
            rate("cpu", SHORT),
            rate("cpu", LONG),
            _log(rate("read", SHORT)),
            _log(rate("written", SHORT)),
            _log(rate("received", SHORT)),
            _log(rate("sent", SHORT)),
            _log(last.processes),
            _log(intervals),
            _log(intervals * last.cpus),
            left,
        ]


def _log(value: Optional[float]) -> float:
    return math.nan if value is None or value != value else math.log10(1.0 + max(0.0, value))
