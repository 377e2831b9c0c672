"""Act on advice: plan, ask, record in the ledger, act, check the result and report it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from condor_advice.advise.apply.effects import OutcomeSources, past_with_effects
from condor_advice.advise.apply.plan import (
    ApplyLimits,
    ApplyPlan,
    ApplyRequest,
    ApplyStep,
    Case,
    Choice,
    QueueState,
    make_plan,
)
from condor_advice.advise.because import Grounds
from condor_advice.gather.errors import AdviceError, UsageError
from condor_advice.gather.events import JobId, JobStatus
from condor_advice.gather.files import open_lock, private_directory
from condor_advice.gather.foreign_text import one_line
from condor_advice.gather.ledger import Action, Ledger, Result, ledger_path, now
from condor_advice.gather.live import AccessPoint, HeldSince, Refused
from condor_advice.preprocess.holds.hold_reasons import OUR_MARK

if TYPE_CHECKING:
    from condor_advice.advise.advice import Advice

JOBS_PER_REQUEST = 200  # keeps the constraint that names the jobs short
STATE_ATTRIBUTES = (
    "ClusterId", "ProcId", "Owner", "JobStatus", "EnteredCurrentStatus", "HoldReasonCode",
    "HoldReason", "JobCurrentStartDate", "JobCurrentStartExecutingDate", "UserLog", "Iwd",
    "ReleaseReason", "RemoveReason",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Applied:
    """What was chosen for each job, and what was done."""

    plan: ApplyPlan
    actions: Mapping[JobId, Sequence[Action]]
    agreed: bool  # False: the caller said no

    def failed(self) -> list[Action]:
        """Return failed actions; a job that somebody else handled first is not a failure."""
        failures = (Result.REFUSED, Result.FAILED)
        return [a for actions in self.actions.values() for a in actions if a.result in failures]

    def by_job(self) -> dict[str, dict[str, Any]]:
        """Return what `--json` adds to the advice on each job."""
        return {
            str(choice.case.job): {
                "step": choice.step.value,
                "why": choice.why,
                "why_id": choice.grounds.id,
                "canary": choice.canary,
                "until": None if choice.until is None else _utc(choice.until),
                "actions": [
                    action_as_dict(action) for action in self.actions.get(choice.case.job, ())
                ],
            }
            for choice in self.plan.choices
        }


def action_as_dict(action: Action) -> dict[str, Any]:
    """Return an action as `--json` and `history --json` print it."""
    given = action.advice
    return {
        "at": _utc(action.at),
        "job": str(given.job),
        "access_point": given.access_point or None,
        "owner": given.owner,
        "action": action.action,
        "command": action.command,
        "canary": action.canary,
        "batch": action.batch,
        "result": action.result.value,
        "message": action.message,
        "effect": action.effect.value if action.action == "release" else None,
        "effect_at": None if action.effect_at is None else _utc(action.effect_at),
        "advice": {
            "at": _utc(given.at),
            "verdict": given.verdict,
            "p_success": given.p_success,
            "source": given.source,
            "model": given.model,
            "template": given.template,
            "hold_number": given.hold_number,
            "held_at": _utc(given.held_at),
            "code": given.code,
            "subcode": given.subcode,
        },
    }


def apply(
    advices: Sequence[Advice],
    point: AccessPoint,
    store: Path | None,
    limits: ApplyLimits,
    request: ApplyRequest,
    agree: Callable[[ApplyPlan], bool],
) -> Applied:
    """Act on advice about jobs of one access point, as far as the limits and the caller allow.

    `agree` gets the plan and says yes or no; it is not called when there is nothing to do.
    """
    cases = [Case.of(advice, now()) for advice in advices]
    sources = OutcomeSources(point, store, limits.canary_margin_seconds)
    since = now() - 3600 * max(24.0, limits.canary_memory_hours)

    def plan(states: Mapping[JobId, QueueState]) -> ApplyPlan:
        past = past_with_effects(sources, store, now(), since=since)
        return make_plan(cases, states, past, limits, request, now())

    first = plan(queue_states(point, cases))
    if not first.acts():
        return Applied(first, {}, agreed=True)
    if not agree(first):
        return Applied(first, {}, agreed=False)
    ledger_file = ledger_path(store)
    # A cron job may have acted while the caller considered the question, so plan again and do only
    # what is in both plans.
    with _one_at_a_time(ledger_file), Ledger(ledger_file) as ledger:
        agreed = {choice.case.job: choice.step for choice in first.acts()}
        second = plan(queue_states(point, cases))
        chosen = [c for c in second.acts() if agreed.get(c.case.job) is c.step]
        return Applied(second, _Executor(point, ledger).do(chosen), agreed=True)


def queue_states(point: AccessPoint, cases: Sequence[Case]) -> dict[JobId, QueueState]:
    """Return the jobs' states in the queue, with one query."""
    ids = [(case.job.cluster, case.job.proc) for case in cases]
    return {live.job: _queue_state(live.ad) for live in point.jobs(ids, STATE_ATTRIBUTES)}


def _queue_state(ad: Mapping[str, Any]) -> QueueState:
    entered = int(ad.get("EnteredCurrentStatus", 0))
    began = ad.get("JobCurrentStartExecutingDate")
    run_seconds = None
    # If a later run ends before it executes, the ad keeps the date of an earlier one.
    if began is not None and began >= ad.get("JobCurrentStartDate", 0):
        run_seconds = max(0.0, float(entered - began))
    log = ad.get("UserLog")
    return QueueState(
        owner=str(ad.get("Owner", "")),
        status=int(ad.get("JobStatus", 0)),
        entered=entered,
        code=ad.get("HoldReasonCode"),
        reason=str(ad.get("HoldReason", "")),
        run_seconds=run_seconds,
        user_log=os.path.join(str(ad.get("Iwd", "")), str(log)) if log else None,
    )


class _Executor:
    """One round of actions, each recorded in the ledger before it is tried."""

    def __init__(self, point: AccessPoint, ledger: Ledger) -> None:
        self.point, self.ledger = point, ledger
        self.mark = secrets.token_hex(3)  # distinguishes our release from somebody else's
        self.actions: dict[JobId, list[Action]] = defaultdict(list)

    def do(self, chosen: Sequence[Choice]) -> dict[JobId, list[Action]]:
        """Edit, then release, then remove."""
        edited = self._edit([choice for choice in chosen if choice.step is ApplyStep.EDIT])
        released = [choice for choice in chosen if choice.step is ApplyStep.RELEASE]
        self._end([*released, *edited], "release", "condor_release", self.point.release)
        removed = [choice for choice in chosen if choice.step is ApplyStep.REMOVE]
        self._end(removed, "remove", "condor_rm", self.point.remove)
        return dict(self.actions)

    def _begin(
        self, choices: Sequence[Choice], action: str, commands: Sequence[str]
    ) -> list[tuple[Choice, Action]]:
        at = now()
        begun = self.ledger.begin(
            [
                Action(
                    choice.case.given,
                    at,
                    action,
                    command,
                    choice.batch,
                    choice.canary,
                    choice.state.run_seconds if choice.state else None,
                    choice.state.user_log if choice.state else None,
                )
                for choice, command in zip(choices, commands, strict=True)
            ]
        )
        return list(zip(choices, begun, strict=True))

    def _finish(self, done: Sequence[Action]) -> None:
        self.ledger.finish(done)
        for action in done:
            self.actions[action.advice.job].append(action)

    def _edit(self, choices: Sequence[Choice]) -> list[Choice]:
        """Make the edits of each job; return the jobs whose edits are all in place."""
        groups: dict[tuple[tuple[str, str], ...], list[Choice]] = defaultdict(list)
        for choice in choices:
            groups[choice.case.edits].append(choice)
        ready = []
        for edits, members in groups.items():
            words = " ".join(f"{name} {shlex.quote(value)}" for name, value in edits)
            for chunk in _chunks(members):
                commands = [f"condor_qedit {choice.case.job} {words}" for choice in chunk]
                ready += self._edit_alike(edits, self._begin(chunk, "edit", commands))
        return ready

    def _edit_alike(
        self, edits: Sequence[tuple[str, str]], begun: Sequence[tuple[Choice, Action]]
    ) -> list[Choice]:
        choices = [choice for choice, _ in begun]
        try:
            for name, value in edits:
                self.point.edit([_held_since(choice) for choice in choices], name, value)
        except Refused as error:
            if len(begun) > 1:  # one job fails the whole request: find out which
                return [choice for pair in begun for choice in self._edit_alike(edits, [pair])]
            self._finish([replace(a, result=Result.REFUSED, message=str(error)) for _, a in begun])
            return []
        except AdviceError as error:
            self._finish([replace(a, result=Result.FAILED, message=str(error)) for _, a in begun])
            return []
        ready, done = [], []
        names = [name for name, _ in edits]
        ads = self._ads(choices, (*STATE_ATTRIBUTES, *names))
        for choice, action in begun:
            ad = ads.get(choice.case.job)
            if ad is None or not _is_same_hold(choice, ad):
                done.append(replace(action, result=Result.TOO_LATE, message=_why_too_late(ad)))
            elif all(_has_value(ad.get(name), value) for name, value in edits):
                done.append(replace(action, result=Result.DONE))
                ready.append(choice)
            else:
                message = "the schedd accepted the edit, but the job ad does not show it"
                done.append(replace(action, result=Result.FAILED, message=message))
        self._finish(done)
        return ready

    def _end(
        self,
        choices: Sequence[Choice],
        action: str,
        command: str,
        do: Callable[[Sequence[HeldSince], str], Any],
    ) -> None:
        for chunk in _chunks(choices):
            commands = [f"{command} {choice.case.job}" for choice in chunk]
            begun = self._begin(chunk, action, commands)
            failure = None
            try:
                for reason, members in _by_reason(begun, self.mark).items():
                    do([_held_since(choice) for choice, _ in members], reason)
            except AdviceError as error:
                failure = str(error)
            ads = self._ads(chunk, STATE_ATTRIBUTES)
            done = [self._judged(choice, a, ads) for choice, a in begun]
            if failure is not None:
                # Requests before the failed one may have been carried out: the job ads show it.
                done = [
                    a
                    if a.result is Result.DONE
                    else replace(a, result=Result.FAILED, message=failure)
                    for a in done
                ]
            self._finish(done)

    def _judged(
        self, choice: Choice, action: Action, ads: Mapping[JobId, Mapping[str, Any]]
    ) -> Action:
        """Return an action with its result, judged by the mark it left in the job ad."""
        ad = ads.get(choice.case.job)
        name = "ReleaseReason" if action.action == "release" else "RemoveReason"
        if ad is not None and self.mark in str(ad.get(name, "")):
            return replace(action, result=Result.DONE)
        if ad is not None and _is_same_hold(choice, ad):
            owner = choice.state.owner if choice.state else "?"
            message = f"HTCondor refused: the job belongs to {owner}, or the site limits releases"
            return replace(action, result=Result.REFUSED, message=message)
        return replace(action, result=Result.TOO_LATE, message=_why_too_late(ad))

    def _ads(
        self, choices: Sequence[Choice], attributes: Sequence[str]
    ) -> dict[JobId, Mapping[str, Any]]:
        """Return the ads of jobs in the queue, and of those that left it a moment ago."""
        jobs = [choice.case.job for choice in choices]
        ids = [(job.cluster, job.proc) for job in jobs]
        with contextlib.suppress(AdviceError):
            ads = {live.job: live.ad for live in self.point.jobs(ids, attributes)}
            gone = [pair for job, pair in zip(jobs, ids, strict=True) if job not in ads]
            left = self.point.finished_jobs(gone, now() - 60) if gone else []
            return ads | {live.job: live.ad for live in left}
        return {}


def _by_reason(
    begun: Sequence[tuple[Choice, Action]], mark: str
) -> dict[str, list[tuple[Choice, Action]]]:
    """Group by the reason written to the job's log: a request has only one."""
    groups: dict[str, list[tuple[Choice, Action]]] = defaultdict(list)
    for choice, action in begun:
        given = choice.case.given
        chance = f"{given.p_success:.1f}"  # coarse, so that many jobs share one request
        groups[f"{OUR_MARK}{given.verdict} {choice.case.label} p={chance} [{mark}]"].append(
            (choice, action)
        )
    return groups


def _chunks(choices: Sequence[Choice]) -> Iterator[Sequence[Choice]]:
    for first in range(0, len(choices), JOBS_PER_REQUEST):
        yield choices[first : first + JOBS_PER_REQUEST]


def _held_since(choice: Choice) -> HeldSince:
    assert choice.state is not None
    job = choice.case.job
    return HeldSince(job.cluster, job.proc, choice.state.entered)


def _is_same_hold(choice: Choice, ad: Mapping[str, Any]) -> bool:
    """Tell whether the job is still in the hold that the plan was made for."""
    assert choice.state is not None
    entered = ad.get("EnteredCurrentStatus")
    return ad.get("JobStatus") == JobStatus.HELD and entered == choice.state.entered


def _why_too_late(ad: Mapping[str, Any] | None) -> str:
    if ad is None or ad.get("JobStatus") == JobStatus.REMOVED:
        return "it had left the queue"
    if ad.get("JobStatus") == JobStatus.HELD:
        return "it had been held again"
    return "somebody else had released it"


def _has_value(value: Any, expression: str) -> bool:
    """Tell whether an attribute has the value of an expression."""
    import classad2

    try:
        wanted = classad2.ExprTree(expression).eval()
    except Exception:  # an expression over the ad: compare its text
        return bool(str(value) == expression)
    return bool(value == wanted) or str(value) == expression


@contextlib.contextmanager
def _one_at_a_time(ledger: Path) -> Iterator[None]:
    """Keep two runs from acting at once: each would send its own canaries."""
    lock = ledger.with_name(f"{ledger.name}.acting")
    try:
        private_directory(ledger.parent)
        handle = open_lock(lock, ledger)
    except OSError as error:
        raise UsageError(f"{lock}: cannot write the lock file ({error.strerror})") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AdviceError(
                "another condor-advice is acting on jobs right now, so this one did nothing; "
                "try again in a minute"
            ) from None
        yield
    finally:
        os.close(handle)


# ---- for people ------------------------------------------------------------------------------


def summary(plan: ApplyPlan) -> str:
    """Describe what would be done, what waits and what is left alone, one line per kind of job."""
    lines = []
    if plan.breaker:
        lines.append(click.style(one_line(f"stopped: {plan.breaker}"), fg="red", bold=True))
    for step in ApplyStep:
        kinds: dict[tuple[Grounds, str, bool, str], list[Choice]] = defaultdict(list)
        for choice in plan.choices:
            if choice.step is step:
                about = ", ".join(f"{name} {value}" for name, value in choice.case.edits)
                shown = about if step is ApplyStep.EDIT else ""
                kinds[choice.grounds, choice.case.label, choice.canary, shown].append(choice)
        for (why, label, _, about), members in kinds.items():
            until = min((c.until for c in members if c.until is not None), default=None)
            when = f", until {_local(until)}" if until is not None else ""
            edit = f" [{about}]" if about else ""
            named = f"{step.value}: {_ids(members)} ({label}){edit}: {why}{when}"
            lines.append(one_line(named))
    return "\n".join(lines)


def question(plan: ApplyPlan, caller: str) -> str:
    """Return the one-line question that asks whether to carry out the plan."""
    parts = []
    for step, verb in ((ApplyStep.RELEASE, "release"), (ApplyStep.EDIT, "edit and release"),
                       (ApplyStep.REMOVE, "remove")):  # fmt: skip
        count = sum(choice.step is step for choice in plan.choices)
        if count:
            parts.append(f"{verb} {count} job{'s' if count > 1 else ''}")
    owners = {choice.state.owner for choice in plan.acts() if choice.state}
    whose = one_line(f" of {', '.join(sorted(owners))}") if owners != {caller} else ""
    text = ", ".join(parts)
    return f"{text[:1].upper()}{text[1:]}{whose}?"


def outcome(applied: Applied) -> str:
    """Describe what was done, and for each job what did not work."""
    lines = []
    done: dict[str, list[str]] = defaultdict(list)
    for job, actions in applied.actions.items():
        for action in actions:
            if action.result is Result.DONE:
                done[action.action].append(str(job))
            else:
                problem = f"{job}: {action.action} {action.result.value}: {action.message}"
                lines.append(one_line(problem))
    words = {"edit": "edited", "release": "released", "remove": "removed"}
    lines = [f"{words[name]}: {_named(done[name])}" for name in words if name in done] + lines
    waiting = [c for c in applied.plan.choices if c.step is ApplyStep.WAIT]
    if waiting:
        lines.append(
            f"{_waiting(len(waiting))}: run the same command again later, or with --watch, to "
            "continue"
        )
    return "\n".join(lines)


def _waiting(count: int) -> str:
    return "1 job waits" if count == 1 else f"{count} jobs wait"


def _ids(members: Sequence[Choice]) -> str:
    return _named([str(choice.case.job) for choice in members])


def _named(jobs: Sequence[str], shown: int = 6) -> str:
    more = f" and {len(jobs) - shown} more" if len(jobs) > shown else ""
    return f"{' '.join(jobs[:shown])}{more}"


def _local(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%H:%M %Z").strip()


def _utc(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
