"""From a hold to an Advice: the one answer that every face of the tool shows.

The verdict joins four things: what the rules know of the reason (a remedy that changes the job,
or somebody whose decision it is), the model's probability of success if released as it is,
whether the model is sure, and what being wrong would cost. Where there is no model the rules
and the outcomes of like cases answer, and the answer says so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from condor_advice.advise.costs import Cost, cost_of
from condor_advice.advise.evidence import Evidence, Witness
from condor_advice.advise.holds import Hold
from condor_advice.advise.remedies import (
    LIMITED,
    PASSING,
    Remedy,
    later,
    release_command,
    remedy_for,
)
from condor_advice.advise.site import Site
from condor_advice.model.held.rules import Rule, RuleId, Verdict, posterior, rule_for
from condor_advice.preprocess.holds.hold_reasons import acting_user

if TYPE_CHECKING:
    from condor_advice.model.held.model import HeldModel
    from condor_advice.model.held.parts import Attribution

OWNERS = (1, 15, 16)  # held, submitted on hold, or spooling: on purpose
SOMEBODY_ELSE = "somebody else than its owner held it"
STAFF_DECIDES = "the staff decides about such holds"
EDITED = "its hold was edited while it was held"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do with one held job, why, how sure, and what it costs to be wrong."""

    hold: Hold
    verdict: Verdict
    p_success: float  # if released now, as it is
    interval: tuple[float, float]
    sure: bool  # False: the model abstains, or without one there are too few like cases
    source: str  # "model" or "rules"
    model: str | None
    rule: Rule
    because: str  # why this verdict, in a few words
    evidence: Evidence
    remedy: Remedy
    cost: Cost
    notes: tuple[str, ...] = ()  # of the site's policies
    attributions: tuple[Attribution, ...] = ()

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands to paste."""
        return self.remedy.commands

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints; its shape is a contract: schema/advice.json."""
        hold = self.hold
        found: dict[str, Any] = {
            "job": str(hold.job),
            "access_point": hold.job.access_point or None,
            "owner": hold.owner or None,
            "verdict": self.verdict.value,
            "p_success": round(self.p_success, 4),
            "confidence_interval": [round(bound, 4) for bound in self.interval],
            "sure": self.sure,
            "source": self.source,
            "model": self.model,
            "because": self.because,
            "hold": {
                "code": hold.code,
                "subcode": hold.subcode,
                "reason": hold.reason,
                "template": hold.template,
                "family": hold.family,
                "rule": self.rule.name,
                "at": hold.at.isoformat().replace("+00:00", "Z"),
                "number": hold.number,
                "execution_point": hold.point or None,
            },
            "evidence": self.evidence.as_dict()
            | {"why": self.rule.why, "source": self.rule.source},
            "remedy": self.remedy.as_dict(),
            "cost": {
                "failed_release_cpu_hours": round(self.cost.failed_release_cpu_hours, 4),
                "wrong_remove_cpu_hours": round(self.cost.wrong_remove_cpu_hours, 4),
                "known": self.cost.known,
            },
            "notes": list(self.notes),
            "missing": hold.missing or None,
        }
        if self.attributions:
            found["attributions"] = [
                {
                    "name": one.name,
                    "words": one.words,
                    "value": None if np.isnan(one.value) else one.value,
                    "effect": round(one.effect, 4),
                }
                for one in self.attributions
            ]
        return found


class Adviser:
    """Judges holds; what they share (the model, like cases) is worked out once."""

    def __init__(
        self,
        model: HeldModel | None,
        site: Site | None = None,
        *,
        as_of_hold: bool = False,
        now: datetime | None = None,
    ) -> None:
        self.model = model
        self.site = site or Site()
        self._witness = Witness(as_of_hold)
        self._now = now or datetime.now(UTC)

    def advise(self, holds: Sequence[Hold], explain: bool = False) -> list[Advice]:
        """Judge holds, in their order."""
        chances = self._predict(holds)
        return [
            self._advise(hold, chance, explain) for hold, chance in zip(holds, chances, strict=True)
        ]

    def _predict(
        self, holds: Sequence[Hold]
    ) -> list[tuple[float, tuple[float, float], bool] | None]:
        """Ask the model about all holds that have features, at once."""
        found: list[tuple[float, tuple[float, float], bool] | None] = [None] * len(holds)
        rows = [at for at, hold in enumerate(holds) if hold.episode is not None]
        if self.model is None or not rows:
            return found
        from condor_advice.model.held.parts import Inputs

        episodes = [hold.episode for hold in holds if hold.episode is not None]
        said = self.model.predict(
            Inputs(
                np.stack([episode.features for episode in episodes]),
                np.concatenate([episode.steps for episode in episodes]),
                np.append(0, np.cumsum([len(episode.steps) for episode in episodes])),
            )
        )
        for at, p, low, high, sure in zip(
            rows,
            said.p_success.tolist(),
            said.low.tolist(),
            said.high.tolist(),
            said.sure.tolist(),
            strict=True,
        ):
            found[at] = (p, (low, high), sure)
        return found

    def _advise(
        self, hold: Hold, said: tuple[float, tuple[float, float], bool] | None, explain: bool
    ) -> Advice:
        evidence = self._witness.evidence(hold)
        rule = rule_for(hold.code, hold.subcode, hold.reason, evidence.came_back)
        source, model = "rules", None
        if said is not None and self.model is not None:
            chance, interval, sure = said
            source, model = "model", self.model.name
        else:
            like = evidence.like
            outcomes = (
                [True] * like.succeeded + [False] * (like.released - like.succeeded) if like else []
            )
            chance, interval = posterior(rule.prior, outcomes)
            sure = False
        cost = cost_of(hold)
        remedy = remedy_for(hold, rule, evidence, self.site, self._now)
        threshold = max(self._release_above(source), cost.threshold)
        if source == "rules":
            # Few like cases leave a wide interval: only one that is all on one side is sure.
            sure = interval[0] >= threshold or interval[1] < threshold
        precise = 1.1
        if source == "model" and self.model is not None:
            precise = self.model.thresholds.get("precision", precise)
        verdict, because = decide(
            hold, rule, chance, sure, threshold, evidence, remedy, self.site, precise
        )
        remedy = self._fitting(verdict, because, hold, rule, remedy)
        attributions: tuple[Attribution, ...] = ()
        if explain and source == "model" and self.model is not None and hold.episode is not None:
            from condor_advice.model.held.parts import Inputs

            known = Inputs.of_one(hold.episode.features, hold.episode.steps)
            attributions = tuple(self.model.explain(known))
        return Advice(
            hold=hold,
            verdict=verdict,
            p_success=chance,
            interval=interval,
            sure=sure,
            source=source,
            model=model,
            rule=rule,
            because=because,
            evidence=evidence,
            remedy=remedy,
            cost=cost,
            notes=policy_notes(hold, self.site, self._now),
            attributions=attributions,
        )

    def _release_above(self, source: str) -> float:
        if self.site.release_above is not None:
            return self.site.release_above
        if source == "model" and self.model is not None:
            return self.model.release_above
        return 0.5

    def _fitting(
        self, verdict: Verdict, because: str, hold: Hold, rule: Rule, remedy: Remedy
    ) -> Remedy:
        """Return the remedy in the form that the verdict asks for."""
        if because in (SOMEBODY_ELSE, STAFF_DECIDES, EDITED):
            whom = self.site.contact or "the staff"
            return replace(remedy, text=f"ask {whom} first; then {remedy.text}")
        if verdict is Verdict.RELEASE and not remedy.gone:
            return later(hold, rule, self.site, self._now) if _passes(hold, rule) else Remedy(
                "release it", (release_command(hold),), rule.source
            )  # fmt: skip
        if verdict is Verdict.REMOVE:
            return Remedy(
                "remove it, find out why, and submit it again",
                (f"condor_rm {hold.job}",),
                rule.source,
            )
        return remedy


def _passes(hold: Hold, rule: Rule) -> bool:
    return hold.family in PASSING and rule.verdict is Verdict.RELEASE


def decide(
    hold: Hold,
    rule: Rule,
    chance: float,
    sure: bool,
    threshold: float,
    evidence: Evidence,
    remedy: Remedy,
    site: Site,
    precise: float = 1.1,
) -> tuple[Verdict, str]:
    """Return the verdict, and why in a few words.

    A chance above `threshold` makes a release worth its cost; above `precise` nearly all
    releases succeeded when the model was chosen.
    """
    somebody = _whose(hold, rule, site)
    if somebody:
        return Verdict.ASK, somebody
    if site.is_fatal(hold.code, hold.subcode):
        return Verdict.REMOVE, "this site never lets such a job run again"
    if site.max_holds is not None and hold.number > site.max_holds:
        return Verdict.REMOVE, f"held {hold.number} times, where {site.max_holds} are allowed"
    if remedy.gone:
        return Verdict.RELEASE, "the cause is gone"
    if rule.verdict is Verdict.REMOVE:
        return Verdict.REMOVE, "it keeps coming back"
    if dict(remedy.edits).get("Requirements"):
        return Verdict.FIX, "its execution point is what is wrong"
    if remedy.edits or (hold.family in LIMITED and rule.verdict is Verdict.FIX):
        # It was stopped at a limit: a release as it is may succeed by luck, the same release
        # with the edit costs no more.
        return Verdict.FIX, "released as it is it meets the same limit"
    if sure and chance >= threshold:
        return Verdict.RELEASE, "it will probably succeed as it is"
    if rule.verdict is Verdict.FIX:
        return Verdict.FIX, "something has to be put right first"
    if rule.verdict is Verdict.RELEASE and not sure and chance >= threshold:
        # The model abstains, and what facilitators advise stands: a try is worth its cost.
        return Verdict.RELEASE, "such holds often pass, and a try is worth its cost"
    if chance >= max(precise, threshold):
        return Verdict.RELEASE, "nearly all that looked so well succeeded"
    if not sure:
        return Verdict.ASK, "too little is known to be sure"
    if rule.verdict is Verdict.ASK and rule.id is not RuleId.UNKNOWN:
        return Verdict.ASK, "only its owner knows what the policy guards against"
    if evidence.came_back and chance < min(0.1, threshold):
        return Verdict.REMOVE, "it came back, and a release will most likely fail again"
    return Verdict.ASK, "a release will probably fail, and no remedy is known"


def _whose(hold: Hold, rule: Rule, site: Site) -> str:
    """Say whose decision it is, where it is somebody's."""
    if hold.code == 1:
        who = acting_user(hold.reason).split("@")[0]
        if not who or who == hold.owner:
            return "its owner held it"
        return SOMEBODY_ELSE if hold.owner else "somebody held it"
    if hold.code in OWNERS:
        return "it is on hold on purpose"
    if site.is_staffs(hold.code, hold.subcode):
        return STAFF_DECIDES
    if hold.feature("hold_while_held"):
        return EDITED
    if rule.id in (RuleId.SITE_POLICY, RuleId.ACCOUNT_OR_VERSION):
        return "the staff set this hold"
    return ""


def policy_notes(hold: Hold, site: Site, now: datetime) -> tuple[str, ...]:
    """Say which of the site's deadlines concern a job."""
    notes = []
    pool = site.name or "this pool"
    if site.remove_held_after_days is not None:
        left = site.remove_held_after_days - (now - hold.at).total_seconds() / 86400
        days = f"{site.remove_held_after_days:g} days"
        if left > 0:
            shown = f"{left:.0f} left" if left >= 1.5 else f"{left * 24:.0f} hours left"
            notes.append(f"{pool} removes held jobs after {days}: {shown}")
        else:
            notes.append(f"{pool} removes held jobs after {days}: that is over")
    if site.max_holds is not None and hold.number >= site.max_holds:
        notes.append(f"{pool} lets a job be held {site.max_holds} times: this is {hold.number}")
    if site.contact and (site.is_staffs(hold.code, hold.subcode) or hold.code in (26, 27)):
        notes.append(f"ask: {site.contact}")
    return tuple(notes)


def caller() -> str:
    """Return the name of who runs this."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
