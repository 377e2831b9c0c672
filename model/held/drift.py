"""Drift: do a pool's holds, or their outcomes, still look like those of a model's training?

A model keeps a small reference of the hold episodes it was trained on: how often each hold
reason occurred, the distribution of each feature, and how much both varied between windows of
time. Newer episodes are compared with it window by window. There are three signals:

- `hold_reasons`: the population stability index (PSI) of the mix of reason templates;
- `features`: the mean PSI of the features that were steady in training;
- `calibration`: predictions against outcomes, where these are known.

Jobs of one cluster share their fate, so a cluster counts once per window, however many of its
jobs were held. A window is a number of clusters, not of days: a quiet pool has fewer windows, not
noisier ones. Windows slide by a quarter of their size. A signal has drifted when the newest
window, and most of the newest five, exceed a limit taken from training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from textwrap import shorten
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.arrays import Arrays, UnusableModel
from condor_advice.model.held.data import HeldData
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.labels import NO_LABEL
from condor_advice.preprocess.holds.templates import FAMILIES

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

REFERENCE_FILE = "drift.npz"  # in a model's directory
FEATURE_BINS = 10  # quantiles; one more bin holds missing values
_COMMON_REASONS = 15  # the most common have a bin each; all others share one
WINDOW_CLUSTERS = 200  # a full window; at this size PSI varies by about 0.1 by chance
MIN_WINDOW_CLUSTERS = 25
BLOCKS = 8  # windows to aim for in training, to measure the usual variation
_WINDOW_PARTS = 4  # parts of a window; it slides by one
PSI_FLOOR = 0.2  # a smaller PSI is commonly considered a small change
STEADY_PSI = 0.15  # features that moved more than this in training are ignored
# A calibration gap must be large enough to matter, and unlikely to be chance.
GAP_FLOOR = 0.1
GAP_SIGMAS = 4.0
BANDS = (0.0, 1 / 3, 2 / 3, 1.0)
MIN_BAND_CLUSTERS = 15
MATURE_QUANTILE = 0.9
TEXT_SHOWN = 70  # characters of a hold reason


@dataclass(frozen=True, slots=True)
class Observed:
    """The part of hold episodes that drift is measured on."""

    features: npt.NDArray[np.float32]  # axes: (episode, feature)
    template: Ints  # embedding index of the reason, as in the features
    family: Ints
    cluster: Ints  # or a larger group of related jobs
    time: Ints  # of the hold, microseconds
    label: npt.NDArray[np.int8]  # NO_LABEL where the outcome is not known
    decided: Ints  # microseconds; -1 while the outcome is open
    p: Floats  # predicted success; NaN where none was predicted

    @classmethod
    def of(cls, data: HeldData, p: Floats | None = None) -> Observed:
        """Select the needed columns; `p` must come from a model not trained on these episodes."""
        return cls(
            data.features,
            _whole(data.features[:, FEATURE_NAMES.index("hold_template")]),
            _whole(data.features[:, FEATURE_NAMES.index("hold_family")]),
            data.kin,
            data.time,
            data.label,
            data.decided,
            np.full(len(data), np.nan) if p is None else np.asarray(p, np.float64),
        )

    def __len__(self) -> int:
        return len(self.time)

    def take(self, rows: npt.NDArray[Any]) -> Observed:
        """Return some of the rows."""
        return Observed(*(getattr(self, name)[rows] for name in self.__slots__))

    def in_order(self) -> Observed:
        """Return the episodes in the order of their holds."""
        return self.take(np.argsort(self.time, kind="stable"))


@dataclass(frozen=True, slots=True)
class SignalPoint:
    """One window's value of a signal."""

    begins: datetime
    ends: datetime
    value: float


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal of drift: its newest value, its limit, and when it went beyond that."""

    name: str
    value: float | None  # of the newest window; None without enough episodes
    limit: float
    drifted: bool
    began: datetime | None  # None unless it drifted
    from_the_start: bool  # beyond the limit from the first episode on: another pool
    details: Sequence[str]
    series: Sequence[SignalPoint]

    def as_dict(self) -> dict[str, Any]:
        """Return the signal as `status --json` prints it."""
        return {
            "signal": self.name,
            "value": self.value,
            "limit": self.limit if np.isfinite(self.limit) else None,
            "drifted": self.drifted,
            "began": self.began.isoformat() if self.began else None,
            "from_the_start": self.from_the_start,
            "details": list(self.details),
            "series": [
                {"from": p.begins.isoformat(), "until": p.ends.isoformat(), "value": p.value}
                for p in self.series
            ],
        }


# ---- the reference -------------------------------------------------------------------------


def reference(observed: Observed, names: Sequence[str] = FEATURE_NAMES) -> Arrays:
    """Return the reference that a model keeps of its training episodes, as small arrays.

    Pass all episodes of the training period, labelled or not: they define what is usual. `names`
    are the columns of the features.
    """
    observed = observed.in_order()
    clusters = len(np.unique(observed.cluster))
    size = int(np.clip(clusters // BLOCKS, MIN_WINDOW_CLUSTERS, WINDOW_CLUSTERS))
    slices = _Slices(observed.cluster, size)
    weight, blocks = slices.weight, -(-slices.parts // _WINDOW_PARTS)
    block = blocks - 1 - (slices.parts - 1 - slices.part) // _WINDOW_PARTS
    whole = slice(1 if clusters % size else 0, None)  # the first block may have few clusters
    common = _commonest(observed.template, weight)
    family = dict(zip(observed.template.tolist(), observed.family.tolist(), strict=True))
    mix = _histograms(_codes(observed.template, common), len(common) + 1, block, weight, blocks)
    edges = np.full((len(names), FEATURE_BINS - 1), np.inf, np.float32)
    spread = np.zeros((len(names), FEATURE_BINS + 1), np.float32)
    moved = np.zeros((len(names), blocks))[:, whole]
    for column in range(len(names)):
        values = observed.features[:, column]
        cuts = _quantiles(values, weight)
        edges[column, : len(cuts)] = cuts
        bins = _bins(values, edges[column])
        counts = _histograms(bins, FEATURE_BINS + 1, block, weight, blocks)
        spread[column] = counts.sum(0)
        moved[column] = _movement(counts)[whole]
    steady = moved.max(1, initial=0.0) < STEADY_PSI * WINDOW_CLUSTERS / size
    labelled = observed.take(observed.label != NO_LABEL)
    lag = labelled.decided - labelled.time
    known = labelled.take(np.isfinite(labelled.p))
    return {
        "names": np.array(list(names), dtype=np.str_),
        "edges": edges,
        "spread": spread,
        "steady": steady,
        "templates": common,
        "families": np.array([family[template] for template in common.tolist()], np.int64),
        "mix": mix.sum(0),
        "usual_mix": _movement(mix)[whole],
        "usual_features": moved[steady].mean(0) if steady.any() else np.empty(0),
        "gaps": _band_gaps(known.cluster, known.p - known.label, _bands(known.p)),
        "window": np.array(size),
        "mature_us": np.array(np.quantile(lag, MATURE_QUANTILE) if len(lag) else 0, np.int64),
    }


def _limit(usual: Floats, floor: float, factor: float) -> float:
    """Return the limit of a signal; it is wider where few windows show what is usual."""
    if not len(usual):
        return float("inf")
    return max(floor, float(usual.max()) * (factor + 2.0 / len(usual)))


# ---- comparison ----------------------------------------------------------------------------


def assess(
    kept: Mapping[str, npt.NDArray[Any]],
    observed: Observed,
    names: Sequence[str] = FEATURE_NAMES,
    texts: Mapping[int, str] | None = None,
) -> list[Signal]:
    """Compare episodes with a model's reference.

    `texts` maps an embedding index to the template's text.
    """
    observed = observed.in_order()
    try:
        return [
            _reasons(kept, observed, texts or {}),
            _features(kept, observed, names),
            _calibration(kept, observed),
        ]
    except KeyError as error:
        raise UnusableModel(
            f"{REFERENCE_FILE}: {error} is missing, so drift cannot be measured; "
            "train the model again"
        ) from error


def _reasons(
    kept: Mapping[str, npt.NDArray[Any]], observed: Observed, texts: Mapping[int, str]
) -> Signal:
    common, base = kept["templates"], kept["mix"].astype(np.float64)
    codes = _codes(observed.template, common)
    slices = _Slices(observed.cluster, int(kept["window"]))
    counts = slices.windows(codes, len(base))
    values = psi(counts, base)
    limit = _limit(kept["usual_mix"], PSI_FLOOR, 1.5)

    def details() -> list[str]:
        now, then = counts[-1] / counts[-1].sum(), base / base.sum()
        lines = []
        for code in np.argsort(-np.abs(now - then), kind="stable")[:3].tolist():
            if code < len(common):
                family = FAMILIES[int(kept["families"][code])]
                text = shorten(texts.get(int(common[code]), ""), TEXT_SHOWN, placeholder=" …")
                reason = f"{family} ({text})" if text else family
            else:
                reason = "reasons that were rare or unknown in training"
            lines.append(f"{reason}: {then[code]:.1%} in training, {now[code]:.1%} now")
        return lines

    def ratio() -> Floats:
        ratios: Floats = _log_ratio(counts[-1], base)[codes]
        return ratios

    return _signal("hold_reasons", slices, observed.time, values, limit, details, ratio)


def _features(
    kept: Mapping[str, npt.NDArray[Any]], observed: Observed, names: Sequence[str]
) -> Signal:
    where = {name: column for column, name in enumerate(names)}
    chosen = [
        (row, where[name])
        for row, name in enumerate(kept["names"].tolist())
        if kept["steady"][row] and name in where
    ]
    slices = _Slices(observed.cluster, int(kept["window"]))
    limit = _limit(kept["usual_features"], 0.0, 1.2)  # a mean of many varies less
    moved = np.zeros((len(chosen), slices.count))
    newest = np.zeros((len(chosen), FEATURE_BINS + 1))
    for index, (row, column) in enumerate(chosen):
        counts = slices.windows(
            _bins(observed.features[:, column], kept["edges"][row]), FEATURE_BINS + 1
        )
        moved[index] = psi(counts, kept["spread"][row].astype(np.float64))
        if slices.count:
            newest[index] = counts[-1]
    values = moved.mean(0) if len(chosen) else np.empty(0)
    most = np.argsort(-moved[:, -1], kind="stable")[:5].tolist() if values.size else []

    def details() -> list[str]:
        return [f"{names[chosen[index][1]]}: PSI {moved[index, -1]:.2f}" for index in most]

    def ratio() -> Floats:
        total = np.zeros(len(observed))
        for index in most:
            row, column = chosen[index]
            bins = _bins(observed.features[:, column], kept["edges"][row])
            total += _log_ratio(newest[index], kept["spread"][row].astype(np.float64))[bins]
        return total

    return _signal("features", slices, observed.time, values, limit, details, ratio)


def _calibration(kept: Mapping[str, npt.NDArray[Any]], observed: Observed) -> Signal:
    """Compare predictions with outcomes, in bands of the predicted probability.

    Failures are known sooner than successes: a job is often held again within minutes. So only
    holds old enough to have ended either way are counted.
    """
    newest = int(observed.time.max(initial=0))
    old_enough = observed.time <= newest - int(kept["mature_us"])
    rows = np.flatnonzero((observed.label != NO_LABEL) & np.isfinite(observed.p) & old_enough)
    known = observed.take(rows)
    slices = _Slices(known.cluster, int(kept["window"]))
    gap = known.p - known.label
    band = _bands(known.p)
    gaps, error = slices.gaps(gap, band, kept["gaps"])
    worst = np.where(np.abs(gaps) > GAP_SIGMAS * error, np.abs(gaps), 0.0)
    values = worst.max(1, initial=0.0)

    def details() -> list[str]:
        inside = slices.newest() & (band == int(np.argmax(worst[-1])))
        predicted, observed = np.mean(known.p[inside]), np.mean(known.label[inside])
        return [f"where it says {predicted:.0%} on average, {observed:.0%} succeed"]

    def ratio() -> Floats:
        worst_band = int(np.argmax(worst[-1]))
        shift, usual = gaps[-1, worst_band], kept["gaps"][worst_band, 0]
        # How much better a shifted mean explains each gap than the usual mean does.
        inside = band == worst_band
        spread = max(float(np.var(gap[inside])), 1e-6) if inside.any() else 1.0
        return np.where(inside, ((gap - usual) * shift - shift * shift / 2) / spread, 0.0)

    return _signal("calibration", slices, known.time, values, GAP_FLOOR, details, ratio)


def _signal(
    name: str,
    slices: _Slices,
    time: Ints,
    values: Floats,
    limit: float,
    details: Any,
    ratio: Any,
) -> Signal:
    if not slices.count or not values.size:
        return Signal(name, None, limit, False, None, False, [], [])
    drifted = beyond(values, limit)
    began, from_start = None, False
    if drifted:
        # Drift began at the episode from which on the newest window's distribution explains the
        # episodes best, compared with the training distribution.
        weighed = ratio() * slices.weight
        place = int(np.argmax(np.cumsum(weighed[::-1])[::-1]))
        began = _when(time[place])
        from_start = slices.part[place] == 0
    return Signal(
        name,
        float(values[-1]),
        limit,
        drifted,
        began,
        bool(from_start),
        details() if drifted else [],
        [
            SignalPoint(_when(time[first]), _when(time[last]), float(value))
            for (first, last), value in zip(slices.edges(), values, strict=True)
        ],
    )


def beyond(values: Floats, limit: float) -> bool:
    """Tell whether the newest window, and most of the newest five, exceed a limit."""
    return len(values) > 1 and bool(
        min(values[-1], np.median(values[-_WINDOW_PARTS - 1 :])) > limit
    )


def _whole(values: npt.NDArray[np.float32]) -> Ints:
    return np.nan_to_num(values).astype(np.int64)


def _when(microseconds: Any) -> datetime:
    return datetime.fromtimestamp(int(microseconds) // 1_000_000, UTC)


# ---- windows of clusters -------------------------------------------------------------------


class _Slices:
    """Episodes in time order, cut into parts in each of which equally many new clusters begin.

    Parts are counted from the end, so the newest window is full. A window is _WINDOW_PARTS parts.
    In each part a cluster has weight one, spread over its episodes there.
    """

    def __init__(self, cluster: Ints, size: int) -> None:
        step = max(1, size // _WINDOW_PARTS)
        self.part = _parts(cluster, step)
        self.weight = _weights(cluster, self.part)
        self.cluster = cluster
        self.parts = int(self.part.max(initial=-1)) + 1
        self.count = max(0, self.parts - _WINDOW_PARTS + 1)

    def windows(self, codes: Ints, kinds: int) -> Floats:
        """Count each code in each window; axes: (window, code)."""
        counts = _histograms(codes, kinds, self.part, self.weight, self.parts)
        sums = np.concatenate((np.zeros((1, kinds)), np.cumsum(counts, axis=0)))
        in_windows: Floats = sums[_WINDOW_PARTS:] - sums[:-_WINDOW_PARTS]
        return in_windows

    def gaps(self, gap: Floats, band: Ints, kept: Floats) -> tuple[Floats, Floats]:
        """Return each window's gap per band beyond the reference's, and its standard error."""
        excess = np.zeros((self.count, len(kept)))
        error = np.full((self.count, len(kept)), np.inf)
        for window in range(self.count):
            inside = (self.part >= window) & (self.part < window + _WINDOW_PARTS)
            now = _band_gaps(self.cluster[inside], gap[inside], band[inside])
            excess[window] = now[:, 0] - kept[:, 0]
            error[window] = np.hypot(now[:, 1], kept[:, 1])
        return excess, error

    def newest(self) -> npt.NDArray[np.bool_]:
        """Tell which episodes are in the newest window."""
        inside: npt.NDArray[np.bool_] = self.part >= self.count - 1
        return inside

    def edges(self) -> list[tuple[int, int]]:
        """Return the first and last episode of each window."""
        firsts = np.searchsorted(self.part, np.arange(self.count))
        lasts = np.searchsorted(self.part, np.arange(self.count) + _WINDOW_PARTS) - 1
        return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _parts(cluster: Ints, step: int) -> Ints:
    """Return each episode's part; `step` clusters begin in each, in the first maybe fewer."""
    if not len(cluster):
        return np.empty(0, np.int64)
    new = np.zeros(len(cluster), np.int64)
    new[np.unique(cluster, return_index=True)[1]] = 1
    begun = np.cumsum(new)
    behind = (begun[-1] - begun) // step
    return np.asarray(behind[0] - behind)


def _weights(cluster: Ints, part: Ints) -> Floats:
    if not len(cluster):
        return np.empty(0)
    _, key = np.unique(np.stack((cluster, part)), axis=1, return_inverse=True)
    return np.asarray(1.0 / np.bincount(key.ravel())[key.ravel()])


def _histograms(codes: Ints, kinds: int, part: Ints, weight: Floats, parts: int) -> Floats:
    flat = np.bincount(part * kinds + codes, weight, minlength=parts * kinds).astype(np.float64)
    return flat.reshape(parts, kinds)


def _bands(p: Floats) -> Ints:
    return np.clip(np.searchsorted(BANDS, p, side="right") - 1, 0, len(BANDS) - 2)


def _band_gaps(cluster: Ints, gap: Floats, band: Ints) -> Floats:
    """Return mean and standard error of the gap in each band; each cluster counts once.

    With too few clusters the error is infinite; without any, gap and error are zero.
    """
    gaps = np.zeros((len(BANDS) - 1, 2))
    for index in range(len(gaps)):
        rows = np.flatnonzero(band == index)
        _, key, jobs = np.unique(cluster[rows], return_inverse=True, return_counts=True)
        if 0 < len(jobs) < MIN_BAND_CLUSTERS:
            gaps[index, 1] = np.inf
        elif len(jobs):
            means = np.bincount(key, gap[rows]) / jobs
            gaps[index] = means.mean(), means.std(ddof=1) / np.sqrt(len(means))
    return gaps


def _movement(counts: Floats) -> Floats:
    """Return the PSI of each block against all others."""
    return psi(counts, counts.sum(0) - counts)


def psi(counts: Floats, base: Floats) -> Floats:
    """Return the population stability index of each row of counts against a base.

    Half an observation is added to every bin, so that empty bins stay finite.
    """
    now, then = counts + 0.5, base + 0.5
    now = now / now.sum(-1, keepdims=True)
    then = then / then.sum(-1, keepdims=True)
    index: Floats = np.sum((now - then) * np.log(now / then), axis=-1)
    return index


def _log_ratio(counts: Floats, base: Floats) -> Floats:
    now, then = counts + 0.5, base + 0.5
    ratio: Floats = np.log(now / now.sum()) - np.log(then / then.sum())
    return ratio


def _commonest(template: Ints, weight: Floats) -> Ints:
    ids, place = np.unique(template, return_inverse=True)
    order = np.argsort(-np.bincount(place, weight, minlength=len(ids)), kind="stable")
    return np.sort(ids[order[:_COMMON_REASONS]]).astype(np.int64)


def _codes(template: Ints, common: Ints) -> Ints:
    """Return each template's bin: its place among the common ones, or the bin of all others."""
    if not len(common):
        return np.zeros(len(template), np.int64)
    place = np.minimum(np.searchsorted(common, template), len(common) - 1)
    return np.where(common[place] == template, place, len(common))


def _quantiles(values: npt.NDArray[np.float32], weight: Floats) -> npt.NDArray[np.float32]:
    """Return the distinct inner quantiles of the weighted values."""
    known = ~np.isnan(values)
    if not known.any():
        return np.empty(0, np.float32)
    order = np.argsort(values[known], kind="stable")
    ordered, mass = values[known][order], np.cumsum(weight[known][order])
    shares = np.arange(1, FEATURE_BINS) / FEATURE_BINS * mass[-1]
    return np.unique(ordered[np.minimum(np.searchsorted(mass, shares), len(ordered) - 1)])


def _bins(values: npt.NDArray[np.float32], edges: npt.NDArray[np.float32]) -> Ints:
    bins = np.searchsorted(edges, values, side="right")
    return np.where(np.isnan(values), FEATURE_BINS, np.minimum(bins, FEATURE_BINS - 1))
