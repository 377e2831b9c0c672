"""The rule for a hold, and the chance of success from the rule and known outcomes.

The rules are in the table of hold reasons (preprocess/holds/hold_reasons.py). They are the first
baseline of every model, and the answer if there is no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from condor_advice.preprocess.holds.hold_reasons import HOLD_REASONS, Rule, RuleId, Verdict

__all__ = ["FUTILE", "RULES", "Rule", "RuleId", "Verdict", "posterior", "rule_for"]

# Weight of a prior, in cases. It is low, so that a pool's own outcomes soon outweigh it.
PRIOR_WEIGHT = 2.0
# After this many releases that all led back to the same hold, another one is pointless.
FUTILE_RELEASES = 3

# The first rule that matches counts.
RULES: tuple[Rule, ...] = tuple(reason.rule for reason in HOLD_REASONS if reason.rule is not None)
FUTILE = Rule(
    RuleId.COMES_BACK, "comes back", Verdict.REMOVE, 0.05,
    "it was released for this reason {released} times and held again each time",
    "remove it, find out why, and submit it again", "glideinWMS, unrecoverable holds",
    command="condor_rm",
)  # fmt: skip


def rule_for(code: int | None, subcode: int | None, reason: str, released: int = 0) -> Rule:
    """Return the rule for a hold; `released` counts releases that led back to it."""
    rule = next(rule for rule in RULES if rule.matches(code, subcode, reason))
    if rule.verdict is Verdict.RELEASE and released >= FUTILE_RELEASES:
        return replace(FUTILE, why=FUTILE.why.format(released=released))
    return rule


def posterior(prior: float, outcomes: Sequence[bool]) -> tuple[float, tuple[float, float]]:
    """Return the chance of success and its 90 % interval from a prior and known outcomes.

    This is Wilson's interval with the prior counted as cases; it is wide if there are few.
    """
    cases = PRIOR_WEIGHT + len(outcomes)
    chance = (prior * PRIOR_WEIGHT + sum(outcomes)) / cases
    z = 1.645
    middle = (chance + z * z / (2 * cases)) / (1 + z * z / cases)
    spread = chance * (1 - chance) / cases + z * z / (4 * cases * cases)
    half = z / (1 + z * z / cases) * float(spread) ** 0.5
    return chance, (max(0.0, middle - half), min(1.0, middle + half))
