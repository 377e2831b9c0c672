"""Drift: has what a pool holds, or what comes of it, moved away from a model's training?

A model keeps a small reference of the hold episodes it was trained on: how often each hold
reason came, how each feature was spread, and how much both moved by themselves from one window
of time to the next. Newer episodes are compared with it window by window. Three signals:

- `hold_reasons`: the population stability index (PSI) of the mix of reason templates;
- `features`: the mean PSI of the features that were steady in training;
- `calibration`: what was predicted against what came of it, where that is known by now.

Jobs of one cluster share their fate, so each cluster counts once in a window, however many of
its jobs were held; and a window is as many clusters, not days, so that a quiet pool has fewer
windows rather than noisier ones. Windows slide by a quarter. A signal counts as drift when the
newest, and most of the newest five, are beyond what training saw.
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
FEATURE_BINS = 10  # quantiles; one more bin for what is not known
_COMMON_REASONS = 15  # the commonest have a bin each, all others share one
WINDOW_CLUSTERS = 200  # a full window; with this many, PSI wanders by about 0.1 by itself
MIN_WINDOW_CLUSTERS = 25
BLOCKS = 8  # so many windows at least should tell how much training moved by itself
_WINDOW_PARTS = 4  # a window slides by this part of itself
PSI_FLOOR = 0.2  # below this, a PSI is commonly taken for no more than a small change
STEADY_PSI = 0.15  # a feature that moved more than this in training tells nothing
# A gap in calibration must matter and must not be chance.
GAP_FLOOR = 0.1
GAP_SIGMAS = 4.0
BANDS = (0.0, 1 / 3, 2 / 3, 1.0)
MIN_BAND_CLUSTERS = 15
MATURE_QUANTILE = 0.9
TEXT_SHOWN = 70  # of a reason, in characters


@dataclass(frozen=True, slots=True)
class Observed:
    """Hold episodes as drift looks at them, in the order of their holds."""

    features: npt.NDArray[np.float32]  # axes: (episode, feature)
    template: Ints  # embedding index of the reason, as in the features
    family: Ints
    cluster: Ints  # or a larger group of kin
    time: Ints  # of the hold, microseconds
    label: npt.NDArray[np.int8]  # NO_LABEL where nobody knows
    decided: Ints  # microseconds; -1 while it is open
    p: Floats  # predicted success; NaN where none was predicted

    @classmethod
    def of(cls, data: HeldData, p: Floats | None = None) -> Observed:
        """Take what is needed from episodes; `p` only where a model had not learned from them."""
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
    """How far one thing has moved, how far is usual, and since when it is beyond that."""

    name: str
    value: float | None  # of the newest window; None where it cannot be told
    limit: float
    drifted: bool
    began: datetime | None  # None unless it drifted
    from_the_start: bool  # it was so from the first episode on: it did not move, it is elsewhere
    details: Sequence[str]
    series: Sequence[SignalPoint]

    def as_dict(self) -> dict[str, Any]:
        """Return it as `status --json` prints it."""
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
    """Return what a model keeps of the episodes it was trained on, as small arrays.

    Give it all episodes of the training time, labelled or not, of one source or of several: what
    is usual is taken from them. `names` are the columns of the features.
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
        "families": np.array([family[one] for one in common.tolist()], np.int64),
        "mix": mix.sum(0),
        "usual_mix": _movement(mix)[whole],
        "usual_features": moved[steady].mean(0) if steady.any() else np.empty(0),
        "gaps": _band_gaps(known.cluster, known.p - known.label, _bands(known.p)),
        "window": np.array(size),
        "mature_us": np.array(np.quantile(lag, MATURE_QUANTILE) if len(lag) else 0, np.int64),
    }


def _limit(usual: Floats, floor: float, factor: float) -> float:
    """Return how far is too far; the fewer windows tell what is usual, the farther."""
    if not len(usual):
        return float("inf")
    return max(floor, float(usual.max()) * (factor + 2.0 / len(usual)))


# ---- comparing -----------------------------------------------------------------------------


def assess(
    kept: Mapping[str, npt.NDArray[Any]],
    observed: Observed,
    names: Sequence[str] = FEATURE_NAMES,
    texts: Mapping[int, str] | None = None,
) -> list[Signal]:
    """Compare episodes with a model's reference; `texts` says templates by embedding index."""
    observed = observed.in_order()
    try:
        return [
            _reasons(kept, observed, texts or {}),
            _features(kept, observed, names),
            _calibration(kept, observed),
        ]
    except KeyError as error:
        raise UnusableModel(
            f"{REFERENCE_FILE}: has no {error}, so drift cannot be told; train the model again"
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
        found = []
        for code in np.argsort(-np.abs(now - then), kind="stable")[:3].tolist():
            if code < len(common):
                family = FAMILIES[int(kept["families"][code])]
                text = shorten(texts.get(int(common[code]), ""), TEXT_SHOWN, placeholder=" …")
                what = f"{family} ({text})" if text else family
            else:
                what = "reasons that were rare or unknown in training"
            found.append(f"{what}: {then[code]:.1%} in training, {now[code]:.1%} now")
        return found

    def ratio() -> Floats:
        found: Floats = _log_ratio(counts[-1], base)[codes]
        return found

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
    limit = _limit(kept["usual_features"], 0.0, 1.2)  # a mean of many wanders less
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
        return [f"{names[chosen[one][1]]}: PSI {moved[one, -1]:.2f}" for one in most]

    def ratio() -> Floats:
        total = np.zeros(len(observed))
        for one in most:
            row, column = chosen[one]
            bins = _bins(observed.features[:, column], kept["edges"][row])
            total += _log_ratio(newest[one], kept["spread"][row].astype(np.float64))[bins]
        return total

    return _signal("features", slices, observed.time, values, limit, details, ratio)


def _calibration(kept: Mapping[str, npt.NDArray[Any]], observed: Observed) -> Signal:
    """Compare predictions with outcomes, in bands of what was predicted.

    What is decided soon is decided badly more often (held again within minutes) than what takes
    its time, so only holds are counted that are old enough to have been decided either way.
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
        one = int(np.argmax(worst[-1]))
        inside = slices.newest() & (band == one)
        said, came = np.mean(known.p[inside]), np.mean(known.label[inside])
        return [f"where it says {said:.0%} on average, {came:.0%} succeed"]

    def ratio() -> Floats:
        one = int(np.argmax(worst[-1]))
        shift, usual = gaps[-1, one], kept["gaps"][one, 0]
        # How much better a shifted mean explains a gap than the usual one does.
        inside = band == one
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
        # Where it began: from there on, the newest window's distribution explains the episodes
        # best, against the one of training.
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
    """Tell whether the newest of these windows, and most of the newest five, are over a limit."""
    return len(values) > 1 and bool(
        min(values[-1], np.median(values[-_WINDOW_PARTS - 1 :])) > limit
    )


def _whole(values: npt.NDArray[np.float32]) -> Ints:
    return np.nan_to_num(values).astype(np.int64)


def _when(microseconds: Any) -> datetime:
    return datetime.fromtimestamp(int(microseconds) // 1_000_000, UTC)


# ---- windows of clusters -------------------------------------------------------------------


class _Slices:
    """Episodes in the order of time, cut into parts by how many new clusters begin in each.

    The cuts are counted from the end, so that the newest window is full. A window is _WINDOW_PARTS
    parts; in each part a cluster weighs one, spread over its episodes there.
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
        found: Floats = sums[_WINDOW_PARTS:] - sums[:-_WINDOW_PARTS]
        return found

    def gaps(self, gap: Floats, band: Ints, kept: Floats) -> tuple[Floats, Floats]:
        """Return each window's gap per band beyond the one kept, and its standard error."""
        found = np.zeros((self.count, len(kept)))
        error = np.full((self.count, len(kept)), np.inf)
        for window in range(self.count):
            inside = (self.part >= window) & (self.part < window + _WINDOW_PARTS)
            now = _band_gaps(self.cluster[inside], gap[inside], band[inside])
            found[window] = now[:, 0] - kept[:, 0]
            error[window] = np.hypot(now[:, 1], kept[:, 1])
        return found, error

    def newest(self) -> npt.NDArray[np.bool_]:
        """Tell which episodes are in the newest window."""
        found: npt.NDArray[np.bool_] = self.part >= self.count - 1
        return found

    def edges(self) -> list[tuple[int, int]]:
        """Return the first and last episode of each window."""
        firsts = np.searchsorted(self.part, np.arange(self.count))
        lasts = np.searchsorted(self.part, np.arange(self.count) + _WINDOW_PARTS) - 1
        return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _parts(cluster: Ints, step: int) -> Ints:
    """Number the parts of episodes in order; each begins `step` clusters, the first maybe fewer."""
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
    """Return mean and standard error of the gap in each band, each cluster counting once.

    With too few clusters to tell, the error is infinite; without any there is no gap.
    """
    found = np.zeros((len(BANDS) - 1, 2))
    for one in range(len(found)):
        rows = np.flatnonzero(band == one)
        _, key, jobs = np.unique(cluster[rows], return_inverse=True, return_counts=True)
        if 0 < len(jobs) < MIN_BAND_CLUSTERS:
            found[one, 1] = np.inf
        elif len(jobs):
            means = np.bincount(key, gap[rows]) / jobs
            found[one] = means.mean(), means.std(ddof=1) / np.sqrt(len(means))
    return found


def _movement(counts: Floats) -> Floats:
    """Return the PSI of each block against all others."""
    return psi(counts, counts.sum(0) - counts)


def psi(counts: Floats, base: Floats) -> Floats:
    """Return the population stability index of each row of counts against a base.

    Half an observation is added to every bin, so that an empty one is no catastrophe.
    """
    now, then = counts + 0.5, base + 0.5
    now = now / now.sum(-1, keepdims=True)
    then = then / then.sum(-1, keepdims=True)
    found: Floats = np.sum((now - then) * np.log(now / then), axis=-1)
    return found


def _log_ratio(counts: Floats, base: Floats) -> Floats:
    now, then = counts + 0.5, base + 0.5
    found: Floats = np.log(now / now.sum()) - np.log(then / then.sum())
    return found


def _commonest(template: Ints, weight: Floats) -> Ints:
    ids, place = np.unique(template, return_inverse=True)
    order = np.argsort(-np.bincount(place, weight, minlength=len(ids)), kind="stable")
    return np.sort(ids[order[:_COMMON_REASONS]]).astype(np.int64)


def _codes(template: Ints, common: Ints) -> Ints:
    """Return the place of each template among the common ones, else the bin for all others."""
    if not len(common):
        return np.zeros(len(template), np.int64)
    place = np.minimum(np.searchsorted(common, template), len(common) - 1)
    return np.where(common[place] == template, place, len(common))


def _quantiles(values: npt.NDArray[np.float32], weight: Floats) -> npt.NDArray[np.float32]:
    """Return the distinct inner quantiles, each cluster having one weight."""
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
