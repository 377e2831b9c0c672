"""Decide what may be done about advice now: which jobs go first, which wait, which are left alone.

Nothing here talks to HTCondor. `make_plan` takes the advice, how the jobs stand, and what was done
before and came of it, and returns a choice for each job. What was done before comes from the
ledger, so a second run, a cron job or `--watch` goes on where the first one stopped.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import Enum
from typing import Any

from condor_advice.gather.errors import UsageError
from condor_advice.gather.events import JobId, JobStatus
from condor_advice.gather.ledger import Action, Effect, GivenAdvice, Result
from condor_advice.preprocess.holds.hold_reasons import acting_user

# Held on purpose by a person, not begun yet, or still being spooled: never ours to decide.
HELD_BY_SOMEBODY, SUBMITTED_ON_HOLD, SPOOLING = 1, 15, 16
NEVER = (HELD_BY_SOMEBODY, SUBMITTED_ON_HOLD, SPOOLING)
# Set by staff through SYSTEM_PERIODIC_HOLD: not to be released as it is.
SITE_POLICY = (26, 27)
# Held when its output came back: only its end shows that it is past that point.
AT_THE_END = (12, 33, 44)

GOOD = (Effect.PAST, Effect.SUCCEEDED)
BAD = (Effect.HELD_AGAIN, Effect.FAILED)


@dataclass(frozen=True, slots=True)
class Limits:
    """How far acting may go; the section [acting] of the site's configuration."""

    confidence: float = 0.5  # release only what succeeds with at least this chance
    canary_above: int = 3  # a larger group of one reason sends canaries first
    canary_jobs: int = 2
    canary_margin_seconds: float = 60.0  # so much longer than it ran until it was held
    canary_patience_hours: float = 6.0  # then an undecided canary no longer keeps the rest waiting
    canary_rest_hours: float = 2.0  # after canaries came back, before new ones go
    canary_memory_hours: float = 24.0  # older outcomes say nothing about now
    actions_per_hour: int = 500
    backoff_minutes: float = 5.0  # before the second release, doubled for each further one
    backoff_most_hours: float = 24.0
    most_holds: int = 10  # held more often: no longer released
    breaker_window_minutes: float = 60.0
    breaker_holds: int = 5  # releases that came back within the window ...
    breaker_share: float = 0.5  # ... and make up more than this share open the breaker
    leave_codes: tuple[int, ...] = ()
    leave_reasons: tuple[str, ...] = ()  # regular expressions, case ignored

    @classmethod
    def read(cls, section: Mapping[str, Any]) -> Limits:
        """Take limits from configuration; an unknown or impossible one is an error."""
        known = {one.name: one for one in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in section.items():
            if name not in known:
                raise UsageError(
                    f"[acting] {name}: no such setting; there are {', '.join(sorted(known))}"
                )
            default = getattr(cls(), name)
            if isinstance(default, tuple):
                if not isinstance(value, list):
                    raise UsageError(f"[acting] {name} = {value!r}: write a list, as in [1, 2]")
                values[name] = tuple(value)
            elif isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise UsageError(f"[acting] {name} = {value!r}: a number from 0 up is wanted")
            else:
                values[name] = type(default)(value)
        for text in values.get("leave_reasons", ()):
            try:
                re.compile(text)
            except re.error as error:
                raise UsageError(f"[acting] leave_reasons: {text!r}: {error}") from None
        return cls(**values)

    def wait_seconds(self, hold_number: int) -> float:
        """How long a job must have been held before it is released: longer for each hold."""
        if hold_number <= 1:
            return 0.0
        minutes = self.backoff_minutes * 2.0 ** min(hold_number - 2, 30)
        return 60 * min(minutes, 60 * self.backoff_most_hours)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the caller asked for on the command line."""

    confidence: float | None = None
    fix: bool = False
    remove: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands in the queue now."""

    owner: str
    status: int
    entered: int  # EnteredCurrentStatus
    code: int | None
    reason: str
    run_seconds: float | None  # how far it had run when it was held
    user_log: str | None


@dataclass(frozen=True, slots=True)
class Case:
    """Advice about one held job, in the terms that acting needs."""

    given: GivenAdvice
    label: str  # the reason in a few words
    edits: tuple[tuple[str, str], ...]  # attribute and expression
    by_hand: bool  # the remedy has a part that no command of HTCondor's does
    not_before: float | None  # the advice is to wait until then
    gone: bool = False  # the cause was seen to be gone, which the chance does not know

    @property
    def job(self) -> JobId:
        """The job it is about."""
        return self.given.job


class Step(Enum):
    """What is chosen for a job."""

    RELEASE = "release"
    EDIT = "edit and release"
    REMOVE = "remove"
    WAIT = "wait"
    LEAVE = "leave alone"


ACTS = (Step.RELEASE, Step.EDIT, Step.REMOVE)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is done about one job now, and why."""

    case: Case
    step: Step
    why: str
    canary: bool = False
    until: float | None = None  # when waiting has an end that is known
    standing: Standing | None = None

    @property
    def batch(self) -> str:
        """What its group is called in the ledger."""
        return batch_of(self.case.given)


@dataclass(frozen=True, slots=True)
class Plan:
    """A choice for each job, and what stops everything, if something does."""

    choices: tuple[Choice, ...]
    breaker: str = ""  # why nothing is released now

    def acts(self) -> list[Choice]:
        """Return the choices that change something."""
        return [choice for choice in self.choices if choice.step in ACTS]


def batch_of(given: GivenAdvice) -> str:
    """Name the group a job belongs to: one owner's jobs held for one reason, one verdict."""
    return f"{given.verdict} {given.template} {given.code}/{given.subcode} {given.owner}"


def case_of(answer: Mapping[str, Any], owner: str, at: float) -> Case:
    """Take what acting needs from an advice, in the form that `--json` prints."""
    cluster, proc = (int(part) for part in answer["job"].split("."))
    hold, remedy = answer["hold"], answer["remedy"]
    given = GivenAdvice(
        at=at,
        access_point=answer.get("access_point") or "",
        cluster=cluster,
        proc=proc,
        hold_number=hold["number"] or 1,
        held_at=datetime.fromisoformat(hold["at"].replace("Z", "+00:00")).timestamp(),
        verdict=answer["verdict"],
        p_success=answer["p_success"],
        source=answer["source"],
        model=answer["model"],
        template=hold["template"],
        owner=owner,
        code=hold["code"],
        subcode=hold["subcode"],
    )
    edits, by_hand = read_commands(remedy["commands"], answer["job"])
    by_hand = by_hand or bool(remedy.get("by_hand"))
    later = remedy.get("not_before")
    not_before = datetime.fromisoformat(later.replace("Z", "+00:00")).timestamp() if later else None
    label = hold.get("rule") or hold["template"]
    return Case(given, label, edits, by_hand, not_before, bool(remedy.get("gone")))


def read_commands(commands: Iterable[str], job: str) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return the edits among printed commands, and whether anything else is to be done by hand.

    What is applied is exactly what is printed, so it is read from there.
    """
    edits: list[tuple[str, str]] = []
    by_hand = False
    for command in commands:
        for words in _simple_commands(command):
            if words[:2] == ["condor_qedit", job] and len(words) >= 3:
                edits += _edits(words[2:])
            elif words not in (["condor_release", job], ["condor_rm", job]):
                by_hand = True
    return tuple(edits), by_hand


def _simple_commands(command: str) -> list[list[str]]:
    """Split a line at `&&` as a shell would: not within quotes."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="&;|<>")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word == "&&":
                found.append([])
            else:
                found[-1].append(word)
    except ValueError:
        return [[command]]  # not finished: nothing to be applied
    return found


def _edits(words: Sequence[str]) -> list[tuple[str, str]]:
    """Read `Attribute expression ...`, or `Attribute=expression ...`, as condor_qedit does."""
    if "=" in words[0]:
        return [(name, value) for name, _, value in (word.partition("=") for word in words)]
    return list(zip(words[::2], words[1::2], strict=False))


def make_plan(
    cases: Sequence[Case],
    standings: Mapping[JobId, Standing],
    past: Sequence[Action],
    limits: Limits,
    wishes: Wishes,
    now: float,
) -> Plan:
    """Choose for each job, in the order of the cases.

    `past` are actions with what came of them by now; a job without a standing has left the
    queue.
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
        standing = standings.get(case.job)
        choice = _alone(case, standing, limits, wishes, now)
        choices[case.job] = choice
        if choice.step in ACTS:
            groups[choice.batch].append(choice)
    for batch, members in groups.items():
        for choice in _together(batch, members, past, limits, now):
            if breaker and choice.step in (Step.RELEASE, Step.EDIT):
                choice = _instead(choice, Step.WAIT, breaker)
            choices[choice.case.job] = choice
    # Canaries first: should the hour's room run out, what is learned is worth most.
    acting = sorted((c for c in choices.values() if c.step in ACTS), key=lambda c: not c.canary)
    for choice in acting[max(0, room) :]:
        why = f"{limits.actions_per_hour} actions were taken within an hour, which is the cap"
        choices[choice.case.job] = _instead(choice, Step.WAIT, why)
    return Plan(tuple(choices[case.job] for case in cases), breaker)


def _alone(
    case: Case, standing: Standing | None, limits: Limits, wishes: Wishes, now: float
) -> Choice:
    """Choose for a job as if it were the only one."""
    given = case.given

    def leave(why: str) -> Choice:
        return Choice(case, Step.LEAVE, why, standing=standing)

    if standing is None:
        return leave("it has left the queue")
    if standing.status != JobStatus.HELD:
        return leave("it is no longer on hold")
    # A log's time of the hold and the schedd's may differ by a second.
    if abs(standing.entered - given.held_at) > 2:
        return leave("it was held anew since the advice; ask again")
    code = standing.code if standing.code is not None else given.code
    if why := _untouchable(code, standing, limits):
        return leave(why)
    confidence = limits.confidence if wishes.confidence is None else wishes.confidence
    if case.gone and wishes.confidence is None:
        confidence = 0.0
    if given.verdict == "RELEASE":
        if given.p_success < confidence:
            return leave(
                f"its chance, {given.p_success:.0%}, is below the {confidence:.0%} that acting "
                "asks for; --confidence with a lower one releases it"
            )
        if code in SITE_POLICY:
            return leave("a policy of the site holds it; release it yourself if you may")
        step = Step.RELEASE
    elif given.verdict == "FIX":
        if case.by_hand or not case.edits:
            return leave("it needs you first; the advice says what to do")
        if not wishes.fix:
            return leave("--fix edits and releases it")
        step = Step.EDIT
    elif given.verdict == "REMOVE":
        if not wishes.remove:
            return leave("--remove removes it")
        return Choice(case, Step.REMOVE, "advised", standing=standing)
    else:
        return leave("the decision is yours")
    if given.hold_number > limits.most_holds:
        return leave(f"it was held {given.hold_number} times; the limit is {limits.most_holds}")
    due = standing.entered + limits.wait_seconds(given.hold_number)
    why = f"it was held {given.hold_number} times, so it waits longer"
    if case.not_before is not None and case.not_before > due:
        due, why = case.not_before, "the cause needs time to pass"
    if due > now:
        return Choice(case, Step.WAIT, why, until=due, standing=standing)
    return Choice(case, step, "advised", standing=standing)


def _untouchable(code: int | None, standing: Standing, limits: Limits) -> str:
    """Say why nobody but its holder should touch this hold; nothing if anybody may."""
    if code == HELD_BY_SOMEBODY:
        holder = acting_user(standing.reason)
        if holder and holder.split("@")[0] != standing.owner:
            return f"{holder} holds it"
        return "its owner holds it"
    if code in NEVER:
        return "it is meant to be on hold" if code == SUBMITTED_ON_HOLD else "it is being spooled"
    if code in limits.leave_codes:
        return f"the site's configuration leaves holds of code {code} alone"
    for text in limits.leave_reasons:
        if re.search(text, standing.reason, re.IGNORECASE):
            return f"the site's configuration leaves holds alone that say {text!r}"
    return ""


def _together(
    batch: str, members: Sequence[Choice], past: Sequence[Action], limits: Limits, now: float
) -> list[Choice]:
    """Send canaries first where many jobs share a reason, and the rest when those got through."""
    if members[0].step is Step.REMOVE:
        return list(members)
    group = _Group.of(batch, past, limits, now)
    if group.waiting:
        named = ", ".join(str(action.advice.job) for action in group.waiting[:3])
        why = f"{named} went first and must get past the point where it was held"
        return [_instead(choice, Step.WAIT, why) for choice in members]
    if group.good > group.bad:
        return list(members)
    if group.bad and group.rests_until > now:
        why = f"{group.bad} of {group.bad + group.good} that went first came back"
        return [_instead(choice, Step.WAIT, why, until=group.rests_until) for choice in members]
    if len(members) <= limits.canary_above:
        return list(members)
    first = {choice.case.job for choice in _canaries(members, limits.canary_jobs)}
    return [
        _instead(choice, choice.step, f"goes first, for {len(members)} jobs", canary=True)
        if choice.case.job in first
        else _instead(choice, Step.WAIT, f"{len(first)} of its kind go first")
        for choice in members
    ]


@dataclass(frozen=True, slots=True)
class _Group:
    """What is known of a group from what was done before."""

    waiting: Sequence[Action] = field(default_factory=tuple)  # canaries, undecided
    good: int = 0
    bad: int = 0
    rests_until: float = -math.inf

    @classmethod
    def of(cls, batch: str, past: Sequence[Action], limits: Limits, now: float) -> _Group:
        """Sum up what was released for this reason, and came of it, lately."""
        since = now - 3600 * limits.canary_memory_hours
        lately = [
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
            for action in lately
            if action.canary and action.effect is Effect.WAITING and action.at > patience
        ]
        good = sum(action.effect in GOOD for action in lately)
        bad = [action for action in lately if action.effect in BAD]
        last = max((action.effect_at or action.at for action in bad), default=-math.inf)
        # Once more got through than came back, nobody waits for the slower ones.
        still = () if good > len(bad) else tuple(waiting)
        return cls(still, good, len(bad), last + 3600 * limits.canary_rest_hours)


def _canaries(members: Sequence[Choice], count: int) -> list[Choice]:
    """Choose the likeliest to succeed, of different clusters where there are several."""
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


def open_breaker(past: Sequence[Action], limits: Limits, now: float) -> str:
    """Say why nothing is to be released now: too many releases came back held."""
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
        return ""
    minutes = f"{limits.breaker_window_minutes:.0f} minutes"
    return (
        f"{len(back)} of {len(decided)} releases came back held within {minutes}; "
        "nothing more is released until that is over"
    )


def _instead(
    choice: Choice, step: Step, why: str, *, until: float | None = None, canary: bool = False
) -> Choice:
    return Choice(choice.case, step, why, canary, until, choice.standing)
