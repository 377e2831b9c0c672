"""The rules' answers for many holds at once, from their features.

`rules.py` reads the text of a hold reason. A feature table has only code, subcode, family, errno
and HTTP status. The family's keyword in the table of hold reasons stands in for the text, so that
both ways lead to the same rule; a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from condor_advice.model.held.rules import FUTILE_RELEASES, PRIOR_WEIGHT, Rule, Verdict, rule_for
from condor_advice.preprocess.holds.hold_reasons import all_signs
from condor_advice.preprocess.holds.templates import FAMILIES

Floats = npt.NDArray[np.float64]

_ASKED = ("hold_code", "hold_subcode", "hold_family", "hold_http_status", "hold_errno")
_KEYWORDS = {signs.family: signs.keyword for signs in all_signs()}


@cache
def _rule(
    code: float, subcode: float, family: float, http: float, errno: float, released: int
) -> Rule:
    words = _KEYWORDS[FAMILIES[int(family)]] if 0 <= family < len(FAMILIES) else ""
    if http >= 0:
        words += f" {http:.0f}"
    if errno >= 0:
        words += f" errno {errno:.0f}"
    return rule_for(
        int(code) if code >= 0 else None, int(subcode) if code >= 0 else None, words, released
    )


def rules_of(features: npt.NDArray[np.float32], names: Sequence[str]) -> list[Rule]:
    """Return the rule for each row of a feature table."""
    column = {name: index for index, name in enumerate(names)}
    asked = features[:, [column[name] for name in _ASKED]].astype(np.float64)
    # NaN does not equal itself, so the cache would never hit.
    asked = np.where(np.isnan(asked), [-1.0, 0.0, -1.0, -1.0, -1.0], asked)
    back = np.nan_to_num(features[:, column["past_holds_same_template"]])
    back = np.minimum(back, FUTILE_RELEASES).astype(int)
    return [_rule(*row, times) for row, times in zip(asked.tolist(), back.tolist(), strict=True)]


def rule_priors(features: npt.NDArray[np.float32], names: Sequence[str]) -> Floats:
    """Return each hold's chance of success by the rules alone, without any outcomes."""
    return np.array([rule.prior for rule in rules_of(features, names)], np.float64)


def rule_chances(features: npt.NDArray[np.float32], names: Sequence[str]) -> Floats:
    """Return the chance of success by the rule's prior and the outcomes of its template so far."""
    column = {name: index for index, name in enumerate(names)}
    good, bad = (
        np.nan_to_num(features[:, column[name]]).astype(np.float64)
        for name in ("template_good_total", "template_bad_total")
    )
    prior = rule_priors(features, names)
    chances: Floats = (prior * PRIOR_WEIGHT + good) / (PRIOR_WEIGHT + good + bad)
    return chances


def rule_releases(features: npt.NDArray[np.float32], names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Tell which holds the rules would release as is."""
    return np.array([rule.verdict is Verdict.RELEASE for rule in rules_of(features, names)], bool)
