"""The rules' answer for many holds at once, from their features: a model's first part.

`rules.py` reads the reason's text. A feature table has no text, only what was taken from it:
code, subcode, family, errno and HTTP status. For each family stands here a word by which the
rules know it, so that both ways lead to the same row; a test holds them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from condor_advice.model.held.rules import FUTILE_RELEASES, PRIOR_WEIGHT, Rule, Verdict, rule_for
from condor_advice.preprocess.holds.templates import FAMILIES

Floats = npt.NDArray[np.float64]

# How the rules' patterns know a family; a family without an entry has no pattern of its own.
_WORDS = {
    "memory": "memory usage exceeded",
    "disk": "disk usage exceeded",
    "quota": "quota",
    "no_space": "no space left",
    "credential": "credential",
    "plugin": "plug-in",
    "output_missing": "output",
    "output_unwritable": "output",
    "output_other": "output",
}
_ASKED = ("hold_code", "hold_subcode", "hold_family", "hold_http_status", "hold_errno")
_LIKE = ("template_good_total", "template_bad_total", "past_holds_same_template")
NEEDED = (*_ASKED, *_LIKE)


@cache
def _rule(
    code: float, subcode: float, family: float, http: float, errno: float, released: int
) -> Rule:
    words = _WORDS.get(FAMILIES[int(family)], "") if 0 <= family < len(FAMILIES) else ""
    if http >= 0:
        words += f" {http:.0f}"
    if errno >= 0:
        words += f" errno {errno:.0f}"
    return rule_for(
        int(code) if code >= 0 else None, int(subcode) if code >= 0 else None, words, released
    )


def rules_of(features: npt.NDArray[np.float32], names: Sequence[str]) -> list[Rule]:
    """Return the rule for each row of a feature table."""
    where = {name: index for index, name in enumerate(names)}
    asked = features[:, [where[name] for name in _ASKED]].astype(np.float64)
    # NaN is not equal to itself, so that it could not be found again in the cache.
    asked = np.where(np.isnan(asked), [-1.0, 0.0, -1.0, -1.0, -1.0], asked)
    back = np.nan_to_num(features[:, where["past_holds_same_template"]])
    back = np.minimum(back, FUTILE_RELEASES).astype(int)
    return [_rule(*row, times) for row, times in zip(asked.tolist(), back.tolist(), strict=True)]


def rule_priors(features: npt.NDArray[np.float32], names: Sequence[str]) -> Floats:
    """Return each hold's chance of success by the rules alone, before any outcome is seen."""
    return np.array([rule.prior for rule in rules_of(features, names)], np.float64)


def rule_chances(features: npt.NDArray[np.float32], names: Sequence[str]) -> Floats:
    """Return the chance by the rule's prior and the outcomes of like cases seen so far."""
    where = {name: index for index, name in enumerate(names)}
    good, bad = (
        np.nan_to_num(features[:, where[name]]).astype(np.float64)
        for name in ("template_good_total", "template_bad_total")
    )
    prior = rule_priors(features, names)
    found: Floats = (prior * PRIOR_WEIGHT + good) / (PRIOR_WEIGHT + good + bad)
    return found


def rule_releases(features: npt.NDArray[np.float32], names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Tell which holds the rules would release as they are."""
    return np.array([rule.verdict is Verdict.RELEASE for rule in rules_of(features, names)], bool)
