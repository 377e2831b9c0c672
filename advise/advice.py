"""From a hold to an Advice: the one answer that every face of the tool shows.

The verdict depends on four things: what the rules know about the reason (a remedy that changes the
job, or somebody whose decision it is), the model's probability of success if the job is released
as it is, whether the model is sure, and what being wrong would cost. Without a model, the rules
and the outcomes of similar holds answer, and the answer says so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from condor_advice.advise.because import ASK_STAFF_FIRST, Because, Grounds
from condor_advice.advise.costs import Cost, cost_of
from condor_advice.advise.evidence import Evidence, Witness
from condor_advice.advise.holds import Hold
from condor_advice.advise.matching import Matcher
from condor_advice.advise.remedies import (
    LIMITED,
    PASSING,
    Remedy,
    later,
    release_command,
    remedy_for,
)
from condor_advice.advise.site import Site
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.events import HoldCode
from condor_advice.model.held.evidence_rows import EvidenceTensors
from condor_advice.model.held.rules import Rule, RuleId, Verdict, posterior, rule_for
from condor_advice.preprocess.holds.hold_reasons import acting_user

if TYPE_CHECKING:
    from condor_advice.gather.ledger import GivenAdvice
    from condor_advice.model.held.model import HeldModel
    from condor_advice.model.held.parts import Attribution
    from condor_advice.preprocess.holds.episode_store import KeptEpisodes
    from condor_advice.preprocess.holds.evidence import Evidence as KnownEvidence
    from condor_advice.preprocess.holds.evidence import Occlusion
    from condor_advice.preprocess.holds.facts import Moment

# Without a model's own threshold, release what is more likely to succeed than not.
RELEASE_ABOVE = 0.5
NO_CHANCE_SUFFICES = 1.1  # stands for a model that has no threshold of high precision
# A job that came back with a chance below this is not worth another release.
HOPELESS = 0.1
# With more holds than this, the evidence about like ones is looked up once.
MOST_ALONE = 500
# The rules for holds that administrators set, or that only they can mend.
STAFF_RULES = frozenset({RuleId.SITE_POLICY, RuleId.ACCOUNT_OR_VERSION})


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
    grounds: Grounds  # why this verdict
    evidence: Evidence
    remedy: Remedy
    cost: Cost
    notes: tuple[str, ...] = ()  # the site's policies that concern the job
    attributions: tuple[Attribution, ...] = ()

    @property
    def because(self) -> str:
        """Why this verdict, in a few words."""
        return str(self.grounds)

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands to paste."""
        return self.remedy.commands

    def given(self, at: float) -> GivenAdvice:
        """Return what the ledger keeps of this advice, given at a time in UTC seconds."""
        from condor_advice.gather.ledger import GivenAdvice

        hold = self.hold
        return GivenAdvice(
            at=at,
            access_point=hold.job.access_point,
            cluster=hold.job.cluster,
            proc=hold.job.proc,
            hold_number=hold.number,
            held_at=hold.at.timestamp(),
            verdict=self.verdict.value,
            p_success=round(self.p_success, 4),
            source=self.source,
            model=self.model,
            template=hold.template,
            owner=hold.owner,
            code=hold.code,
            subcode=hold.subcode,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints; its shape is a contract: schema/advice.json."""
        hold = self.hold
        shown: dict[str, Any] = {
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
            "because_id": self.grounds.id,
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
            shown["attributions"] = [
                {
                    "name": attribution.name,
                    "words": attribution.words,
                    "value": None if np.isnan(attribution.value) else attribution.value,
                    "effect": round(attribution.effect, 4),
                }
                for attribution in self.attributions
            ]
        return shown


Prediction = tuple[float, tuple[float, float], bool]  # chance of success, interval, sure


class Adviser:
    """Judges holds; what they share (the model, similar holds) is worked out once."""

    def __init__(
        self,
        model: HeldModel | None,
        site: Site | None = None,
        *,
        as_of_hold: bool = False,
        at_release: bool = False,
        at: datetime | None = None,
        now: datetime | None = None,
    ) -> None:
        self.model = model
        self.site = site or Site()
        self._witness = Witness(as_of_hold, at, at_release)
        self._now = now or datetime.now(UTC)
        self._matcher = Matcher()

    def advise(self, holds: Sequence[Hold], explain: bool = False) -> list[Advice]:
        """Judge holds, in their order."""
        self._matcher = Matcher(holds)
        return [
            self._advise(hold, prediction, explain)
            for hold, prediction in zip(holds, self._predict(holds), strict=True)
        ]

    def advise_each(
        self, holds: Sequence[Hold], explain: bool = False
    ) -> tuple[list[Advice], list[tuple[Hold, Exception]]]:
        """Judge holds one by one; return the advice, and the holds that cannot be judged.

        What an ad or a log says is a stranger's: an error on one hold concerns that hold alone.
        """
        try:
            return self.advise(holds, explain), []
        except AdviceError:
            raise
        except Exception:
            advices: list[Advice] = []
            failed: list[tuple[Hold, Exception]] = []
            for hold in holds:
                try:
                    advices += self.advise([hold], explain)
                except Exception as error:
                    failed.append((hold, error))
            return advices, failed

    def judge(self, hold: Hold, prediction: Prediction) -> Advice:
        """Judge a hold of which the chance of success is known already."""
        return self._advise(hold, prediction, explain=False)

    def _predict(self, holds: Sequence[Hold]) -> list[Prediction | None]:
        """Ask the model about all holds that have features, at once."""
        predictions: list[Prediction | None] = [None] * len(holds)
        known = [
            (row, hold, features, hold.episode.steps)
            for row, hold in enumerate(holds)
            if hold.episode is not None and (features := hold.features) is not None
        ]
        if self.model is None or not known:
            return predictions
        from condor_advice.model.held.parts import Inputs

        rows, judged, features_of_all, steps = zip(*known, strict=True)
        predicted = self.model.predict(
            Inputs(
                np.stack(features_of_all),
                np.concatenate(steps),
                np.append(0, np.cumsum(list(map(len, steps)))),
                EvidenceTensors.of(self._evidence(judged)),
            )
        )
        for row, p, low, high, sure in zip(
            rows,
            predicted.p_success.tolist(),
            predicted.low.tolist(),
            predicted.high.tolist(),
            predicted.sure.tolist(),
            strict=True,
        ):
            # A log with absurd numbers may lead a model astray; then the rules answer.
            if 0.0 <= p <= 1.0 and np.isfinite(low) and np.isfinite(high):
                predictions[row] = (p, (low, high), sure)
        return predictions

    def _evidence(self, holds: Sequence[Hold]) -> list[KnownEvidence]:
        """Return what is known about holds at the moments that the answers refer to.

        Holds of many jobs that differ in nothing that counts are looked at once.
        """
        wanted: dict[tuple[object, ...], tuple[KeptEpisodes, int, Moment]] = {}
        keys: list[tuple[object, ...]] = []
        for hold in holds:
            assert hold.episode is not None
            assert hold.kept is not None
            moment = self._witness.moment(hold)
            assert moment is not None
            episode = hold.episode
            key: tuple[object, ...] = (id(hold.kept), episode.episode, moment)
            if len(holds) > MOST_ALONE and episode.number == 1:
                key = (id(hold.kept), episode.kin[0], episode.template_id, episode.point)
            keys.append(key)
            wanted[key] = (hold.kept, episode.episode, moment)
        evidence: dict[tuple[object, ...], KnownEvidence] = {}
        for kept in {id(kept): kept for kept, _, _ in wanted.values()}.values():
            own = [key for key in wanted if wanted[key][0] is kept]
            asked = kept.known.evidence(
                [wanted[key][1] for key in own], [wanted[key][2] for key in own]
            )
            evidence.update(zip(own, asked, strict=True))
        return [evidence[key] for key in keys]

    def _advise(self, hold: Hold, prediction: Prediction | None, explain: bool) -> Advice:
        evidence = self._witness.evidence(hold)
        rule = rule_for(hold.code, hold.subcode, hold.reason, evidence.came_back)
        source, model = "rules", None
        if prediction is not None and self.model is not None:
            chance, interval, sure = prediction
            source, model = "model", self.model.name
        else:
            like = evidence.like
            outcomes = (
                [True] * like.as_is.succeeded
                + [False] * (like.as_is.released - like.as_is.succeeded)
                if like
                else []
            )
            chance, interval = posterior(rule.prior, outcomes)
            sure = False
        cost = cost_of(hold)
        remedy = remedy_for(hold, rule, evidence, self.site, self._now)
        remedy = self._matcher.checked(hold, remedy)
        threshold = self._threshold(source, cost)
        if source == "rules":
            # Few similar holds leave a wide interval: only one that is all on one side is sure.
            sure = interval[0] >= threshold or interval[1] < threshold
        precise = NO_CHANCE_SUFFICES
        if source == "model" and self.model is not None:
            precise = self.model.thresholds.get("precision", precise)
        verdict, because = decide(
            hold, rule, chance, sure, threshold, evidence, remedy, self.site, precise
        )
        remedy = self._fitting(verdict, because, hold, rule, remedy)
        attributions: tuple[Attribution, ...] = ()
        features, episode = hold.features, hold.episode
        if explain and model is not None and features is not None and episode is not None:
            from condor_advice.model.held.parts import Inputs

            assert self.model is not None
            [evidence_now] = self._evidence([hold])
            inputs = Inputs.of_one(features, episode.steps, evidence_now)
            attributions = tuple(self.model.explain(inputs, self._without_each(hold)))
        return Advice(
            hold=hold,
            verdict=verdict,
            p_success=chance,
            interval=interval,
            sure=sure,
            source=source,
            model=model,
            rule=rule,
            grounds=because.given(number=hold.number, allowed=self.site.max_holds),
            evidence=evidence,
            remedy=remedy,
            cost=cost,
            notes=policy_notes(hold, self.site, self._now),
            attributions=attributions,
        )

    def _without_each(self, hold: Hold) -> list[Occlusion]:
        moment = self._witness.moment(hold)
        if moment is None or hold.kept is None or hold.episode is None:
            return []
        return hold.kept.known.without_each(hold.episode.episode, moment)

    def _threshold(self, source: str, cost: Cost) -> float:
        """Return the chance of success from which a release is advised.

        It is the site's line if the site draws one. Otherwise a release has to clear the line
        drawn for all holds, and to be the cheaper choice for this job.
        """
        if self.site.release_above is not None:
            return self.site.release_above
        for_all = RELEASE_ABOVE
        if source == "model" and self.model is not None:
            for_all = self.model.release_above
        return max(for_all, cost.threshold)

    def _fitting(
        self, verdict: Verdict, because: Because, hold: Hold, rule: Rule, remedy: Remedy
    ) -> Remedy:
        """Return the remedy in the form that the verdict asks for."""
        if because in ASK_STAFF_FIRST:
            whom = self.site.contact or "the staff"
            return replace(remedy, text=f"ask {whom} first; then {remedy.text}", commands=())
        if verdict is Verdict.ASK:
            # The decision comes first, so a release is not there to be pasted.
            kept = tuple(c for c in remedy.commands if c != release_command(hold))
            return replace(remedy, commands=kept)
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
    precise: float = NO_CHANCE_SUFFICES,
) -> tuple[Verdict, Because]:
    """Return the verdict, and why.

    A chance above `threshold` makes a release worth its cost; above `precise` nearly all
    releases succeeded when the model was chosen.
    """
    somebody = _whose(hold, rule, site)
    if somebody is not None:
        return Verdict.ASK, somebody
    if site.is_fatal(hold.code, hold.subcode):
        return Verdict.REMOVE, Because.FATAL_HERE
    if site.max_holds is not None and hold.number > site.max_holds:
        return Verdict.REMOVE, Because.TOO_MANY_HOLDS
    if remedy.gone:
        return Verdict.RELEASE, Because.CAUSE_GONE
    if rule.verdict is Verdict.REMOVE:
        return Verdict.REMOVE, Because.KEEPS_COMING_BACK
    if remedy.slots is not None and not remedy.slots.matching and not remedy.edits:
        return Verdict.FIX, Because.NO_SLOT
    if dict(remedy.edits).get("Requirements"):
        return Verdict.FIX, Because.EXECUTION_POINT
    if remedy.edits or (hold.family in LIMITED and rule.verdict is Verdict.FIX):
        # It was stopped at a limit. Released as it is, it may succeed by luck; with the edit the
        # same release costs no more.
        return Verdict.FIX, Because.SAME_LIMIT
    if sure and chance >= threshold:
        return Verdict.RELEASE, Because.LIKELY_SUCCESS
    if rule.verdict is Verdict.FIX:
        return Verdict.FIX, Because.REPAIR_FIRST
    if rule.verdict is Verdict.RELEASE and not sure and chance >= threshold:
        # The model abstains, so what facilitators advise stands.
        return Verdict.RELEASE, Because.WORTH_A_TRY
    if chance >= max(precise, threshold):
        return Verdict.RELEASE, Because.HIGH_SCORE
    if not sure:
        return Verdict.ASK, Because.TOO_LITTLE_KNOWN
    if rule.verdict is Verdict.ASK and rule.id is not RuleId.UNKNOWN:
        return Verdict.ASK, Because.OWNERS_POLICY
    if evidence.came_back and chance < min(HOPELESS, threshold):
        return Verdict.REMOVE, Because.CAME_BACK
    return Verdict.ASK, Because.NO_REMEDY


def _whose(hold: Hold, rule: Rule, site: Site) -> Because | None:
    """Return why the decision is somebody's; None where the evidence may decide."""
    if hold.code == HoldCode.USER_REQUEST:
        who = acting_user(hold.reason).split("@")[0]
        if not who or who == hold.owner:
            return Because.OWNER_HELD
        return Because.SOMEBODY_ELSE_HELD if hold.owner else Because.SOMEBODY_HELD
    if hold.code in (HoldCode.SUBMITTED_ON_HOLD, HoldCode.SPOOLING_INPUT):
        return Because.ON_PURPOSE
    if site.is_staffs(hold.code, hold.subcode):
        return Because.STAFF_DECIDES
    if hold.feature("hold_while_held"):
        return Because.EDITED_WHILE_HELD
    if rule.id in STAFF_RULES:
        return Because.STAFF_HOLD
    return None


def policy_notes(hold: Hold, site: Site, now: datetime) -> tuple[str, ...]:
    """Return the site's deadlines and contacts that concern a job, as lines for people."""
    notes = []
    pool = site.name or "this pool"
    if site.remove_held_after_days is not None:
        left = site.remove_held_after_days - (now - hold.at).total_seconds() / 86400
        days = f"{site.remove_held_after_days:g} days"
        if left > 0:
            shown = f"{left:.0f} left" if left >= 1.5 else f"{left * 24:.0f} hours left"
            notes.append(f"{pool} removes held jobs after {days}: {shown}")
        else:
            notes.append(f"{pool} removes held jobs after {days}: that time is over")
    if site.max_holds is not None and hold.number >= site.max_holds:
        notes.append(f"{pool} allows a job {site.max_holds} holds: this is number {hold.number}")
    if site.contact and (
        site.is_staffs(hold.code, hold.subcode)
        or hold.code in (HoldCode.SYSTEM_POLICY, HoldCode.SYSTEM_POLICY_UNDEFINED)
    ):
        notes.append(f"ask: {site.contact}")
    return tuple(notes)


def caller() -> str:
    """Return the name of the user who runs this process."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
