"""Answer a question: find the holds, judge them, print and record the advice."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from condor_advice.advise.jobids import is_account
from condor_advice.gather.errors import AdviceError, NoSuchJob, Unreachable, UsageError
from condor_advice.gather.foreign_text import one_line

if TYPE_CHECKING:
    from condor_advice.advise.advice import Advice
    from condor_advice.advise.find_holds import Found, Question
    from condor_advice.model.held.model import HeldModel


class Actor(Protocol):
    """Acts on advice, if the caller asked for that."""

    acts: bool

    def on(self, advices: Sequence[Advice]) -> dict[str, dict[str, Any]]:
        """Act; return by job what `--json` shows of it."""


def advise_on(
    job_id: str,
    *,
    logs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    store: str | os.PathLike[str] | None = None,
    access_point: str | None = None,
    hold: int | None = None,
    at: datetime | None = None,
    zone: str | None = None,
    explain: bool = False,
) -> Advice:
    """Return the advice on one held job, as `condor-advice JOBID` prints it.

    Without `logs` and `store`, ask the schedd, and use this access point's store for evidence.
    Print nothing and, unlike the command, record nothing in the ledger. The logger
    "condor_advice" logs what could have made the answer better.

    Args:
        job_id: CLUSTER.PROC, as in "1234.7"; "ap1#1234.7" names the access point as well.
        logs: One or more event logs to answer from; no pool or store is needed.
        store: The store to answer from, without asking the schedd.
        access_point: The schedd's name, if it is not the local one.
        hold: Judge the job's N-th hold by what was known then; by default, its last hold.
        at: Judge the hold that the job was in at this moment by what was known right before it;
            by default, now. It has a time zone.
        zone: Time zone of logs that carry local time; by default, the machine's.
        explain: Fill `Advice.attributions` with what contributed to the probability.

    Raises:
        UsageError: The arguments contradict each other, or name several jobs or none.
        NoSuchJob: The job is unknown, or is not on hold.
        Unreachable: Neither the schedd nor the store is reachable.
        AdviceError: Any other failure; the base class of those above.
    """
    from condor_advice.advise.find_holds import Question
    from condor_advice.advise.jobids import parse_job_id

    if logs and store is not None:
        raise UsageError("`logs` and `store` exclude each other")
    if hold is not None and hold < 1:
        raise UsageError(f"hold={hold}: a job's first hold is number 1")
    if at is not None:
        check_moment(at, hold)
    wanted = parse_job_id(job_id)
    if wanted.first is None or wanted.last != wanted.first:
        raise UsageError(f"{job_id!r} may mean several jobs; name one job, as in 1234.7")
    if access_point is not None:
        if wanted.access_point not in (None, access_point):
            raise UsageError(
                f"{job_id!r} names {wanted.access_point}, but access_point is {access_point!r}"
            )
        wanted = replace(wanted, access_point=access_point)
    paths = (logs,) if isinstance(logs, str | os.PathLike) else logs
    question = Question(
        wanted=(wanted,),
        logs=tuple(os.fspath(path) for path in paths),
        store=None if store is None else os.fspath(store),
        number=hold,
        at=at,
        zone=zone,
    )
    advices, found = judge(question, explain)
    if found.idle:
        raise NoSuchJob(f"job {job_id}: is not on hold; it is idle")
    if not advices:
        raise AdviceError("; ".join(found.unjudged))
    for note in found.notes:
        import logging

        logging.getLogger("condor_advice").info("%s", note)
    if len(advices) > 1:
        points = sorted({advice.hold.job.access_point for advice in advices} - {""})
        add = f"access_point=, one of {', '.join(points)}" if points else "one log at a time"
        raise UsageError(f"job {job_id}: several jobs have this id; name {add}")
    return advices[0]


def answer(
    question: Question,
    as_json: bool,
    explain: bool = False,
    acting: Actor | None = None,
    verbose: bool = False,
) -> list[str]:
    """Find the holds, judge them, print the advice, and act on it if the caller asked for that.

    Return the named jobs that have no answer, with the reason.
    """
    try:
        advices, found = judge(question, explain)
    except Unreachable as error:
        if _is_unknown_word(question):
            raise NoSuchJob(f"no such verb or job id: {question.user!r}; {error}") from error
        raise
    if not advices and _is_unknown_word(question):
        raise NoSuchJob(
            f"no such verb or job id: {question.user!r}; no held jobs of a user {question.user!r}"
        )
    if found.idle:
        _answer_idle(found, as_json)
        if not advices:
            _print_notes(found.notes)
            return [*found.missing, *found.unjudged]
    if not advices and found.unjudged:
        _print_notes(found.notes)
        return [*found.missing, *found.unjudged]
    found.notes += found.unjudged
    if not advices:
        # A script gets JSON objects on stdout or nothing.
        print("No job is on hold.", file=sys.stderr if as_json else sys.stdout)
        _print_notes(found.notes)
        return found.missing
    if as_json:
        from condor_advice.advise.advice import caller

        if found.private:
            mine = [advice for advice in advices if advice.hold.owner == caller()]
            if len(mine) < len(advices):
                found.notes.append(f"{len(advices) - len(mine):,} other users' jobs are not listed")
            advices = mine
        answers = [advice.as_dict() for advice in advices]
        if acting is not None and acting.acts:
            done = acting.on(advices)
            answers = [shown | {"applied": done[shown["job"]]} for shown in answers]
        sys.stdout.write("".join(json.dumps(shown) + "\n" for shown in answers))
        _print_notes(found.notes)
    else:
        from condor_advice.advise.advice import caller
        from condor_advice.advise.report import Style, report

        own = caller() if found.private else None
        text = report(
            advices,
            found.notes,
            Style.of_stdout(),
            own,
            verbose=verbose or explain,
            named=bool(question.wanted),
            complete=has_whole_clusters(question, found),
        )
        print(text, flush=True)
        if acting is not None and acting.acts:
            acting.on(advices)
    if not question.logs and question.number is None:
        remember(advices, question.store)
    return found.missing


def _answer_idle(found: Found, as_json: bool) -> None:
    """Say of named jobs that are idle which slots could run them."""
    from condor_advice.advise.idle import idle_answers, idle_text

    answers = idle_answers(found.idle)
    if as_json:  # whose objects are about holds
        found.missing += [f"job {idle.ids}: is not on hold; it is idle: {idle}" for idle in answers]
        return
    from condor_advice.advise.terminal_style import Style

    print(idle_text(answers, Style.of_stdout()), flush=True)
    found.notes = [note for note in found.notes if found.holds]  # they are about holds


def _is_unknown_word(question: Question) -> bool:
    """Tell whether the user was named by a word alone, and this machine has no such account."""
    return question.bare_word and question.user is not None and not is_account(question.user)


def check_moment(at: datetime, hold: int | None) -> None:
    """Refuse a moment that nothing can be asked as of."""
    if hold is not None:
        raise UsageError("a moment and a hold's number exclude each other; name one of them")
    if at.tzinfo is None:
        raise UsageError(f"{at.isoformat(' ')} has no time zone; add one, as in +00:00")
    if at.timestamp() > time.time():
        raise UsageError(f"{at.isoformat(' ')} is in the future; nothing is known of it yet")


def has_whole_clusters(question: Question, found: Found) -> bool:
    """Tell whether the answer has all held jobs of each cluster in it, as the queue is now."""
    elsewhere = question.logs or question.store is not None or question.is_of_the_past
    narrowed = question.constraint is not None or any(
        jobs.first is not None for jobs in question.wanted
    )
    live = all(hold.ad for hold in found.holds)
    return not elsewhere and not narrowed and live and not found.unjudged


def judge(question: Question, explain: bool = False) -> tuple[list[Advice], Found]:
    """Find the holds that a question is about, and judge them."""
    from condor_advice.advise.advice import Adviser, caller
    from condor_advice.advise.find_holds import cannot_judge, find_holds
    from condor_advice.advise.site import load_site

    site = load_site()
    found = find_holds(question, site)
    try:
        if not found.holds:
            return [], found
        adviser = Adviser(
            _model(found.notes),
            site,
            as_of_hold=question.number is not None,
            at=question.at,
            now=question.at,
        )
        advices, failed = adviser.advise_each(found.holds, explain)
        mine = caller() if found.private else None
        named = [(hold, error) for hold, error in failed if mine in (None, hold.owner)]
        found.unjudged += [cannot_judge(hold.job, error) for hold, error in named]
        if hidden := len(failed) - len(named):
            found.unjudged.append(f"other users' jobs that cannot be judged: {hidden:,}")
        return advices, found
    finally:
        found.close()


def _print_notes(notes: Sequence[str]) -> None:
    sys.stdout.flush()
    for note in notes:
        print(f"note: {one_line(note)}", file=sys.stderr)


def remember(advices: Sequence[Advice], store: str | None = None) -> None:
    """Record the advice, so that it can be compared with the outcome."""
    from condor_advice.gather.ledger import now, record_advice

    at = now()
    record_advice([advice.given(at) for advice in advices], store)


def _model(notes: list[str]) -> HeldModel | None:
    """Load the model in use; without one the rules answer, and a note says so."""
    from condor_advice.model.held.model import HeldModel
    from condor_advice.model.registry.places import STARTER, default_models_path

    try:
        if not default_models_path().exists():
            return HeldModel.load(STARTER)
        from condor_advice.model.registry.versions import Registry

        return HeldModel.load(Registry().current())
    except AdviceError as error:
        notes.append(f"cannot load a model, so the advice comes from rules alone: {error}")
        return None
