"""Decide how to act on advice: which jobs go first, which wait, which are left alone.

Nothing here talks to HTCondor. `make_plan` takes the advice, the jobs' current state in the queue,
and past actions with their outcomes, and returns a choice for each job. Past actions come from the
ledger, so a second run, a cron job or `--watch` continues where the first one stopped.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

from condor_advice.advise.because import Grounds, StepReason
from condor_advice.gather.errors import UsageError
from condor_advice.gather.events import HoldCode, JobId, JobStatus
from condor_advice.gather.ledger import Action, Effect, GivenAdvice, Result
from condor_advice.model.held.rules import Verdict
from condor_advice.preprocess.holds.hold_reasons import acting_user

if TYPE_CHECKING:
    from condor_advice.advise.advice import Advice

# Administrators set these through SYSTEM_PERIODIC_HOLD, so they are not released unchanged.
SITE_POLICY = (HoldCode.SYSTEM_POLICY, HoldCode.SYSTEM_POLICY_UNDEFINED)
# Held while output was transferred: only the job's end shows that it got past that point.
AT_THE_END = (
    HoldCode.TRANSFER_OUTPUT_ERROR,
    HoldCode.MAX_TRANSFER_OUTPUT_SIZE_EXCEEDED,
    HoldCode.POST_SCRIPT_FAILED,
)
# Stricter than SAME_HOLD_SECONDS: within those a job may be released and held again.
UNCHANGED_HOLD_SECONDS = 2.0

GOOD = (Effect.PAST, Effect.SUCCEEDED)
BAD = (Effect.HELD_AGAIN, Effect.FAILED)


@dataclass(frozen=True, slots=True)
class ApplyLimits:
    """Limits on acting: the section [acting] of the site's configuration."""

    confidence: float = 0.5  # release only jobs with at least this chance of success
    canary_above: int = 3  # a larger group with one hold reason sends canaries first
    canary_jobs: int = 2
    canary_margin_seconds: float = 60.0  # a canary must outlast its earlier run by this much
    canary_patience_hours: float = 6.0  # how long the others wait for an undecided canary
    canary_rest_hours: float = 2.0  # pause after canaries failed or were held again
    canary_memory_hours: float = 24.0  # older outcomes are ignored
    actions_per_hour: int = 500
    backoff_minutes: float = 5.0  # before the second release, doubled for each further one
    backoff_most_hours: float = 24.0
    most_holds: int = 10  # a job held more often is no longer released
    breaker_window_minutes: float = 60.0
    breaker_holds: int = 5  # releases held again within the window ...
    breaker_share: float = 0.5  # ... open the breaker if they exceed this share
    leave_codes: tuple[int, ...] = ()
    leave_reasons: tuple[str, ...] = ()  # regular expressions, case ignored

    @classmethod
    def read(cls, section: Mapping[str, Any]) -> ApplyLimits:
        """Read limits from the configuration; an unknown or impossible one is an error."""
        known = {setting.name for setting in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in section.items():
            if name not in known:
                raise UsageError(
                    f"[acting] {name}: unknown setting; known are {', '.join(sorted(known))}"
                )
            default = getattr(cls(), name)
            if isinstance(default, tuple):
                if not isinstance(value, list):
                    raise UsageError(f"[acting] {name} = {value!r}: write a list, as in [1, 2]")
                values[name] = tuple(value)
            elif (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 <= value < math.inf
            ):
                raise UsageError(f"[acting] {name} = {value!r}: must be a number, at least 0")
            else:
                values[name] = type(default)(value)
        for text in values.get("leave_reasons", ()):
            try:
                re.compile(text)
            except re.error as error:
                raise UsageError(f"[acting] leave_reasons: {text!r}: {error}") from None
        return cls(**values)

    def wait_seconds(self, hold_number: int) -> float:
        """Return how long a job must stay held before its release; this grows with each hold."""
        if hold_number <= 1:
            return 0.0
        minutes = self.backoff_minutes * 2.0 ** min(hold_number - 2, 30)
        return 60 * min(minutes, 60 * self.backoff_most_hours)


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """What the caller allows on the command line."""

    confidence: float | None = None
    fix: bool = False
    remove: bool = False


@dataclass(frozen=True, slots=True)
class QueueState:
    """The current state of a job in the queue."""

    owner: str
    status: int
    entered: int  # EnteredCurrentStatus
    code: int | None
    reason: str
    run_seconds: float | None  # how long it had run when it was held
    user_log: str | None


@dataclass(frozen=True, slots=True)
class Case:
    """Advice on one held job, reduced to what acting needs."""

    given: GivenAdvice
    label: str  # the reason in a few words
    edits: tuple[tuple[str, str], ...]  # attribute and expression
    by_hand: bool  # part of the remedy cannot be done with HTCondor's commands
    not_before: float | None  # the advice is to wait until then
    gone: bool = False  # the cause is gone; p_success does not reflect that

    @classmethod
    def of(cls, advice: Advice, at: float) -> Case:
        """Build a case from advice given at a time in UTC seconds."""
        remedy = advice.remedy
        when = remedy.not_before
        return cls(
            given=advice.given(at),
            label=advice.rule.name,
            edits=remedy.edits,
            by_hand=remedy.by_hand,
            not_before=when.timestamp() if when else None,
            gone=remedy.gone,
        )

    @property
    def job(self) -> JobId:
        """The job."""
        return self.given.job

    @property
    def verdict(self) -> Verdict:
        """The verdict of the advice."""
        return Verdict(self.given.verdict)


class ApplyStep(Enum):
    """What to do with a job."""

    RELEASE = "release"
    EDIT = "edit and release"
    REMOVE = "remove"
    WAIT = "wait"
    LEAVE = "leave alone"


ACTS = (ApplyStep.RELEASE, ApplyStep.EDIT, ApplyStep.REMOVE)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do with one job now, and why."""

    case: Case
    step: ApplyStep
    grounds: Grounds
    canary: bool = False
    until: float | None = None  # when waiting ends, if known
    state: QueueState | None = None

    @property
    def why(self) -> str:
        """Why this step, in a few words."""
        return str(self.grounds)

    @property
    def batch(self) -> str:
        """The name of the job's group in the ledger."""
        return batch_of(self.case.given)


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """A choice for each job, and what stops all releases, if anything."""

    choices: tuple[Choice, ...]
    breaker: Grounds | None = None  # why nothing is released now

    def acts(self) -> list[Choice]:
        """Return the choices that change something."""
        return [choice for choice in self.choices if choice.step in ACTS]


def batch_of(given: GivenAdvice) -> str:
    """Name the group a job belongs to: one owner's jobs held for one reason, one verdict."""
    return f"{given.verdict} {given.template} {given.code}/{given.subcode} {given.owner}"


def make_plan(
    cases: Sequence[Case],
    states: Mapping[JobId, QueueState],
    past: Sequence[Action],
    limits: ApplyLimits,
    request: ApplyRequest,
    now: float,
) -> ApplyPlan:
    """Choose for each job, in the order of the cases.

    `past` are earlier actions with their outcomes so far. A job without a state has left the queue.
    """
    breaker = open_breaker(past, limits, now)
    room = limits.actions_per_hour - sum(
        action.at > now - 3600
        and action.action != "edit"  # its release counts
        and action.result in (Result.DONE, Result.INTENDED)
        for action in past
    )
    choices: dict[JobId, Choice] = {}
    groups: dict[str, list[Choice]] = defaultdict(list)
    for case in cases:
        state = states.get(case.job)
        choice = _choose_alone(case, state, limits, request, now)
        choices[case.job] = choice
        if choice.step in ACTS:
            groups[choice.batch].append(choice)
    for batch, members in groups.items():
        for choice in _choose_in_group(batch, members, past, limits, now):
            if breaker and choice.step in (ApplyStep.RELEASE, ApplyStep.EDIT):
                choice = _with_step(choice, ApplyStep.WAIT, breaker)
            choices[choice.case.job] = choice
    # Canaries first: if the hourly cap cuts the list, their outcomes tell the most.
    acting = sorted((c for c in choices.values() if c.step in ACTS), key=lambda c: not c.canary)
    for choice in acting[max(0, room) :]:
        cap = StepReason.HOURLY_CAP.given(cap=limits.actions_per_hour)
        choices[choice.case.job] = _with_step(choice, ApplyStep.WAIT, cap)
    return ApplyPlan(tuple(choices[case.job] for case in cases), breaker)


def _choose_alone(
    case: Case, state: QueueState | None, limits: ApplyLimits, request: ApplyRequest, now: float
) -> Choice:
    """Choose for a job as if it were the only one."""
    given = case.given

    def leave(reason: StepReason, **values: object) -> Choice:
        return Choice(case, ApplyStep.LEAVE, reason.given(**values), state=state)

    if state is None:
        return leave(StepReason.LEFT_QUEUE)
    if state.status != JobStatus.HELD:
        return leave(StepReason.NOT_HELD)
    if abs(state.entered - given.held_at) > UNCHANGED_HOLD_SECONDS:
        return leave(StepReason.HELD_ANEW)
    code = state.code if state.code is not None else given.code
    if untouchable := _untouchable(code, state, limits):
        return Choice(case, ApplyStep.LEAVE, untouchable, state=state)
    if not 0.0 <= given.p_success <= 1.0:  # not a number, either
        return leave(StepReason.NO_CHANCE)
    confidence = limits.confidence if request.confidence is None else request.confidence
    if case.gone and request.confidence is None:
        confidence = 0.0
    if case.verdict is Verdict.RELEASE:
        if not given.p_success >= confidence:
            return leave(StepReason.BELOW_CONFIDENCE, chance=given.p_success, confidence=confidence)
        if code in SITE_POLICY:
            return leave(StepReason.SITE_POLICY)
        step = ApplyStep.RELEASE
    elif case.verdict is Verdict.FIX:
        if case.by_hand or not case.edits:
            return leave(StepReason.NEEDS_OWNER)
        if not request.fix:
            return leave(StepReason.NEEDS_FIX_OPTION)
        step = ApplyStep.EDIT
    elif case.verdict is Verdict.REMOVE:
        if not request.remove:
            return leave(StepReason.NEEDS_REMOVE_OPTION)
        return Choice(case, ApplyStep.REMOVE, StepReason.ADVISED.given(), state=state)
    else:
        return leave(StepReason.OWNERS_DECISION)
    if given.hold_number > limits.most_holds:
        return leave(StepReason.TOO_MANY_HOLDS, number=given.hold_number, limit=limits.most_holds)
    due = state.entered + limits.wait_seconds(given.hold_number)
    waits_for = StepReason.BACKOFF.given(number=given.hold_number)
    if case.not_before is not None and case.not_before > due:
        due, waits_for = case.not_before, StepReason.CAUSE_NEEDS_TIME.given()
    if due > now:
        return Choice(case, ApplyStep.WAIT, waits_for, until=due, state=state)
    return Choice(case, step, StepReason.ADVISED.given(), state=state)


def _untouchable(code: int | None, state: QueueState, limits: ApplyLimits) -> Grounds | None:
    """Return why this hold must be left alone; None if it need not be.

    A person held the job, it was submitted on hold, it is being spooled, or the site says so.
    """
    if code == HoldCode.USER_REQUEST:
        holder = acting_user(state.reason)
        if holder and holder.split("@")[0] != state.owner:
            return StepReason.SOMEBODY_HOLDS.given(holder=holder)
        return StepReason.OWNER_HOLDS.given()
    if code == HoldCode.SUBMITTED_ON_HOLD:
        return StepReason.SUBMITTED_ON_HOLD.given()
    if code == HoldCode.SPOOLING_INPUT:
        return StepReason.SPOOLING.given()
    if code in limits.leave_codes:
        return StepReason.SITE_LEAVES_CODE.given(code=code)
    for pattern in limits.leave_reasons:
        if re.search(pattern, state.reason, re.IGNORECASE):
            return StepReason.SITE_LEAVES_REASON.given(pattern=pattern)
    return None


def _choose_in_group(
    batch: str, members: Sequence[Choice], past: Sequence[Action], limits: ApplyLimits, now: float
) -> list[Choice]:
    """Send canaries first where many jobs share a reason; send the rest once they succeed."""
    if members[0].step is ApplyStep.REMOVE:
        return list(members)
    group = _Group.of(batch, past, limits, now)
    if group.waiting:
        named = ", ".join(str(action.advice.job) for action in group.waiting[:3])
        running = StepReason.CANARIES_RUNNING.given(canaries=named)
        return [_with_step(choice, ApplyStep.WAIT, running) for choice in members]
    if group.good > group.bad:
        return list(members)
    if group.bad and group.rests_until > now:
        back = StepReason.CANARIES_CAME_BACK.given(bad=group.bad, decided=group.bad + group.good)
        return [
            _with_step(choice, ApplyStep.WAIT, back, until=group.rests_until) for choice in members
        ]
    if len(members) <= limits.canary_above:
        return list(members)
    first = {choice.case.job for choice in _canaries(members, limits.canary_jobs)}
    goes_first = StepReason.CANARY_FIRST.given(jobs=len(members))
    waits = StepReason.CANARIES_GO_FIRST.given(canaries=len(first))
    return [
        _with_step(choice, choice.step, goes_first, canary=True)
        if choice.case.job in first
        else _with_step(choice, ApplyStep.WAIT, waits)
        for choice in members
    ]


@dataclass(frozen=True, slots=True)
class _Group:
    """What past actions show about a group."""

    waiting: Sequence[Action] = field(default_factory=tuple)  # canaries, undecided
    good: int = 0
    bad: int = 0
    rests_until: float = -math.inf

    @classmethod
    def of(cls, batch: str, past: Sequence[Action], limits: ApplyLimits, now: float) -> _Group:
        """Summarise recent releases of the group and their outcomes."""
        since = now - 3600 * limits.canary_memory_hours
        recent = [
            action
            for action in past
            if action.batch == batch
            and action.at > since
            and action.action == "release"
            and action.result is Result.DONE
        ]
        patience = now - 3600 * limits.canary_patience_hours
        waiting = [
            action
            for action in recent
            if action.canary and action.effect is Effect.WAITING and action.at > patience
        ]
        good = sum(action.effect in GOOD for action in recent)
        bad = [action for action in recent if action.effect in BAD]
        last = max((action.effect_at or action.at for action in bad), default=-math.inf)
        # Once successes outnumber failures and holds, nobody waits for the slower ones.
        undecided = () if good > len(bad) else tuple(waiting)
        return cls(undecided, good, len(bad), last + 3600 * limits.canary_rest_hours)


def _canaries(members: Sequence[Choice], count: int) -> list[Choice]:
    """Choose the jobs most likely to succeed, from different clusters where possible."""
    ranked = sorted(
        members, key=lambda c: (-c.case.given.p_success, c.case.given.held_at, c.case.job)
    )
    seen: set[int] = set()
    fresh: list[Choice] = []
    rest: list[Choice] = []
    for choice in ranked:
        cluster = choice.case.given.cluster
        (rest if cluster in seen else fresh).append(choice)
        seen.add(cluster)
    return [*fresh, *rest][: max(1, count)]


def open_breaker(past: Sequence[Action], limits: ApplyLimits, now: float) -> Grounds | None:
    """Return why nothing may be released now: too many releases were held again."""
    since = now - 60 * limits.breaker_window_minutes
    decided = [
        action
        for action in past
        if action.action == "release"
        and action.effect in (*GOOD, *BAD)
        and (action.effect_at or action.at) > since
    ]
    back = [action for action in decided if action.effect is Effect.HELD_AGAIN]
    if len(back) < limits.breaker_holds or len(back) <= limits.breaker_share * len(decided):
        return None
    return StepReason.BREAKER.given(
        back=len(back), decided=len(decided), minutes=limits.breaker_window_minutes
    )


def _with_step(
    choice: Choice,
    step: ApplyStep,
    grounds: Grounds,
    *,
    until: float | None = None,
    canary: bool = False,
) -> Choice:
    return Choice(choice.case, step, grounds, canary, until, choice.state)
