"""Derived features: success rates after similar hold reasons, shrunk level by level.

A feature table counts outcomes on this access point. A model also knows the outcomes in its
training data, by the reason's kind (code, subcode, family, HTTP status) and by its template. Both
are combined into one chance of success, from the general to the specific: rules → kind → template
(in training) → template (here) → cluster (here). A level without cases keeps the chance of the
level above, so a reason of unknown wording or kind gets the rules' prior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.arrays import UnusableModel
from condor_advice.model.calibration import fit_temperature
from condor_advice.model.held.rule_scores import rule_priors
from condor_advice.model.infer import sigmoid
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.templates import TEMPLATE_BUCKETS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.float32]
Without = tuple[Floats, Floats, Ints]  # label, weight, kin

# Weight of the level above, in cases: in training, and on the access point itself.
_TRAINING_CASES = 6.0
KNOWN_CASES = 5.0  # of a kind in training; with fewer the model is not sure
_TEMPLATE_CASES, _CLUSTER_CASES = 4.0, 3.0
_KIND = ("hold_code", "hold_subcode", "hold_family", "hold_http_status")
_WHERE = {name: index for index, name in enumerate(FEATURE_NAMES)}

# name -> (meaning, direction): 1 if higher values can only raise the chance, -1 only lower it.
DERIVED: Mapping[str, tuple[str, int]] = {
    "reason_chance": ("Success rate of such holds in training", 1),
    "template_chance": ("Success rate of such holds in training and on this access point", 1),
    "cluster_chance": ("Success rate of such holds in training, here and in this cluster", 1),
    "again_chance": ("Success rate in training of jobs held so again, or for the first time", 1),
    "rule_chance": ("Chance of success by the facilitators' rules", 1),
    # No direction: passing problems need some attempts, lasting ones come back forever.
    "came_back": ("Earlier holds of this job with the same template", 0),
    "mates_came_back": ("Releases of other jobs of the cluster that led back to this hold", 0),
    "mates_got_through": ("Releases in the cluster with this template that succeeded", 1),
    "cluster_done_share": ("Share of successes among the cluster's completions and holds", 0),
    "last_run_share": ("Length of the last run, relative to the longest", 0),
    "starts_per_hold": ("Starts of the job per hold", 0),
    "share_on_point": ("Share of the holds with this template on this execution point", 0),
    "elsewhere_bad": ("Releases with this template that failed on other execution points", 0),
    "elsewhere_good": ("Releases with this template that succeeded on other execution points", 0),
}
# The table's columns that mostly mean the same on pools with jobs of seconds and of days.
FEW = (
    "hold_code",
    "hold_subcode",
    "hold_family",
    "hold_errno",
    "hold_http_status",
    "hold_used_over_limit",
    "hold_by_user",
    "hold_by_policy",
    "hold_number",
    "hold_while_held",
    "hold_point_known",
    "past_holds_same_family",
    "past_holds_same_point",
    "past_quick_holds",
    "past_same_family",
    "past_same_template",
    "past_same_point",
    "past_starts_since_release",
    "past_releases_by_user",
    "past_releases_by_policy",
    "job_evictions",
    "job_remote_errors",
    "job_memory_over_request",
    "job_memory_request_change",
    "owner_family_success_rate",
    "mates_done",
    "job_age",
    "point_template_since_bad",
)
# Ids and times of day identify a job and do not generalise.
_NEVER = ("hold_template", "hold_hour_sin", "hold_hour_cos", "hold_weekday")
ALL = tuple(name for name in FEATURE_NAMES if name not in _NEVER)
SETS: Mapping[str, tuple[str, ...]] = {"few": FEW, "all": ALL}
# Columns of a linear model: those of FEW that are amounts, not ids; derived columns follow.
_THINGS = ("hold_code", "hold_subcode", "hold_family", "hold_errno", "hold_http_status")
AMOUNTS = tuple(name for name in FEW if name not in _THINGS)


def direction(name: str) -> int:
    """Return 1 if a column may only raise the chance of success, -1 if only lower it, else 0."""
    if name in DERIVED:
        return DERIVED[name][1]
    return int("success_rate" in name or name.endswith("last_outcome"))


@dataclass(frozen=True)
class Cases:
    """Numbers of successes and of all cases, by place."""

    good: Floats
    all: Floats

    @classmethod
    def count(cls, place: Ints, label: Floats, weight: Floats, places: int) -> Cases:
        """Count cases; negative places are skipped."""
        known = place >= 0
        return cls(
            _sums(place[known], (weight * label)[known], places),
            _sums(place[known], weight[known], places),
        )

    def draw(self, place: Ints, chance: Floats, without: Without | None) -> Floats:
        """Return the success rate at each place, shrunk towards `chance`."""
        known = place >= 0
        good = np.where(known, self.good[np.maximum(place, 0)], 0.0)
        cases = np.where(known, self.all[np.maximum(place, 0)], 0.0)
        if without is not None:
            own_good, own_cases = _own(place, *without)
            good, cases = good - own_good, cases - own_cases
        rate: Floats = (good + _TRAINING_CASES * chance) / (cases + _TRAINING_CASES)
        return np.clip(rate, 1e-4, 1 - 1e-4)


@dataclass(frozen=True)
class Chances:
    """Chance of success by hold reason, and by reason and whether the job was held so before."""

    reason: Floats
    again: Floats


@dataclass(frozen=True)
class ReasonRates:
    """Outcomes of releases in training, by kind of reason and by template."""

    slope: float  # calibrates the rules' log-odds
    shift: float
    kinds: Ints  # axes: (kind, code/subcode/family/HTTP status); -1 none; sorted
    by_kind: Cases
    by_again: Cases  # place: 2 * kind, plus 1 if the job was held so before
    by_template: Cases  # place: embedding index

    @classmethod
    def learn(cls, features: Table, label: Floats, weight: Floats) -> ReasonRates:
        """Count the outcomes of training episodes."""
        if not len(label):
            # Only training needs it, not advice.
            from condor_advice.model.held.data import CannotTrain

            raise CannotTrain(
                "no labelled hold episode is left to train on: all belong to one cluster or to "
                "clusters held at the same time, so none can be set aside for validation; gather "
                "more logs, or add `--recording pool_a --recording pool_d`"
            )
        line = fit_temperature(_rule_margin(features), label, weight)
        kinds, which = np.unique(_kinds(features), axis=0, return_inverse=True)
        which = which.reshape(-1)
        again = 2 * which + _came_back(features)
        return cls(
            line.slope,
            line.shift,
            kinds,
            Cases.count(which, label, weight, len(kinds)),
            Cases.count(again, label, weight, 2 * len(kinds)),
            Cases.count(_templates(features), label, weight, TEMPLATE_BUCKETS),
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all as arrays by name."""
        return {
            "line": np.array([self.slope, self.shift]),
            "kinds": self.kinds,
            "by_kind": np.stack((self.by_kind.good, self.by_kind.all)),
            "by_again": np.stack((self.by_again.good, self.by_again.all)),
            "by_template": np.stack((self.by_template.good, self.by_template.all)),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> ReasonRates:
        """Read what `arrays` returned."""
        try:
            slope, shift = arrays["line"].tolist()
            tables = [Cases(*arrays[name]) for name in ("by_kind", "by_again", "by_template")]
            return cls(slope, shift, arrays["kinds"], *tables)
        except (KeyError, ValueError, TypeError) as error:
            raise UnusableModel(
                f"cannot read the table of hold reasons ({error}); train the model again"
            ) from error

    def chances(self, features: Table, without: Without | None = None) -> Chances:
        """Return the chances of success by each hold's reason.

        `without` is (label, weight, kin) of the same rows if they are the training rows: then
        each row's own kin are not counted, as they would not be for a new job.
        """
        kind = self._kind_places(_kinds(features))
        base = sigmoid(self.slope * _rule_margin(features) + self.shift)
        chance = self.by_kind.draw(kind, base, without)
        chance = self.by_template.draw(_templates(features), chance, without)
        place = np.where(kind >= 0, 2 * kind + _came_back(features), -1)
        return Chances(chance, self.by_again.draw(place, chance, without))

    def knows(self, features: Table) -> npt.NDArray[np.bool_]:
        """Tell which holds are of a kind with enough outcomes in training."""
        kind = self._kind_places(_kinds(features))
        cases = np.where(kind >= 0, self.by_kind.all[np.maximum(kind, 0)], 0.0)
        known: npt.NDArray[np.bool_] = cases >= KNOWN_CASES
        return known

    def _kind_places(self, kinds: Ints) -> Ints:
        known = {tuple(row): place for place, row in enumerate(self.kinds.tolist())}
        return np.array([known.get(tuple(row), -1) for row in kinds.tolist()], np.int64)


def _own(place: Ints, label: Floats, weight: Floats, kin: Ints) -> tuple[Floats, Floats]:
    """Return the successes and all cases of each row's own kin at the row's place."""
    both = np.stack((place, kin), axis=1)
    which = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
    return _sums(which, weight * label)[which], _sums(which, weight)[which]


def _sums(which: Ints, values: Floats, count: int = 0) -> Floats:
    return np.bincount(which, values, count).astype(np.float64)


def _came_back(features: Table) -> Ints:
    back = np.nan_to_num(features[:, _WHERE["past_holds_same_template"]])
    return (back > 0).astype(np.int64)


def _kinds(features: Table) -> Ints:
    columns = features[:, [_WHERE[name] for name in _KIND]].astype(np.float64)
    return np.where(np.isnan(columns), -1, columns).astype(np.int64)


def _templates(features: Table) -> Ints:
    template = np.nan_to_num(features[:, _WHERE["hold_template"]])
    return np.clip(template, 0, TEMPLATE_BUCKETS - 1).astype(np.int64)


def _rule_margin(features: Table) -> Floats:
    prior = rule_priors(features, FEATURE_NAMES)
    margin: Floats = np.log(prior) - np.log1p(-prior)
    return margin


def derive(features: Table, chances: Chances) -> Table:
    """Return the derived columns, in the order of DERIVED."""
    chance = chances.reason

    def known(name: str) -> Floats:
        return np.nan_to_num(features[:, _WHERE[name]].astype(np.float64))

    template_good, template_bad = known("template_good_total"), known("template_bad_total")
    cluster_good = known("cluster_template_good_total")
    cluster_bad = known("cluster_template_bad_total")
    here = (_TEMPLATE_CASES * chance + template_good) / (
        _TEMPLATE_CASES + template_good + template_bad
    )
    cluster = (_CLUSTER_CASES * here + cluster_good) / (_CLUSTER_CASES + cluster_good + cluster_bad)
    back = known("past_holds_same_template")
    done, failed = known("mates_done"), known("mates_failed")
    longest = features[:, _WHERE["job_run_longest"]].astype(np.float64)
    columns = {
        "reason_chance": _logit(chance),
        "template_chance": _logit(here),
        "cluster_chance": _logit(cluster),
        "again_chance": _logit(chances.again),
        "rule_chance": _rule_margin(features),
        "came_back": back,
        "mates_came_back": np.maximum(cluster_bad - back, 0.0),
        "mates_got_through": cluster_good,
        "cluster_done_share": (done + 0.5) / (done + failed + known("cluster_hold_total") + 1.0),
        "last_run_share": features[:, _WHERE["job_run_last"]] / np.maximum(longest, 1e-3),
        "starts_per_hold": known("job_starts") / np.maximum(known("hold_number"), 1.0),
        "share_on_point": known("point_template_hold_total")
        / np.maximum(known("template_hold_total"), 1.0),
        "elsewhere_bad": template_bad - known("point_template_bad_total"),
        "elsewhere_good": template_good - known("point_template_good_total"),
    }
    assert columns.keys() == DERIVED.keys()
    return np.stack([columns[name] for name in DERIVED], axis=1).astype(np.float32)


def amount_rows(features: Table, derived: Table) -> Table:
    """Return the columns of a linear model: amounts, on a logarithmic scale."""
    columns = features[:, [_WHERE[name] for name in AMOUNTS]]
    rows = np.nan_to_num(np.concatenate((columns, derived), axis=1), posinf=0.0, neginf=0.0)
    scaled: Table = (np.sign(rows) * np.log1p(np.abs(rows))).astype(np.float32)
    return scaled


def _logit(p: Floats) -> Floats:
    margin: Floats = np.log(p) - np.log1p(-p)
    return margin
