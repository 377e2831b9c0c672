"""Answer a question: find the holds, judge them, print the advice and record it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from condor_advice.gather.errors import AdviceError

if TYPE_CHECKING:
    from condor_advice.advise.advice import Advice
    from condor_advice.advise.find_holds import Found, Question
    from condor_advice.model.held.model import HeldModel


class Acts(Protocol):
    """Somebody who acts on advice, if that was asked for."""

    acts: bool

    def on(self, advices: Sequence[Advice]) -> dict[str, dict[str, Any]]:
        """Act; return what `--json` shows of it, by job."""


def answer(
    question: Question, as_json: bool, explain: bool = False, acting: Acts | None = None
) -> list[str]:
    """Find the holds, judge them, print, and act on them if that was asked for.

    Returns which of the jobs that were named could not be answered, and why.
    """
    advices, found = judge(question, explain)
    if not advices:
        # A script reads objects or nothing.
        print("No job is on hold.", file=sys.stderr if as_json else sys.stdout)
        _say(found.notes)
        return found.missing
    if as_json:
        from condor_advice.advise.advice import caller

        if found.private:
            mine = [advice for advice in advices if advice.hold.owner == caller()]
            if len(mine) < len(advices):
                found.notes.append(f"{len(advices) - len(mine):,} jobs of others are not listed")
            advices = mine
        answers = [advice.as_dict() for advice in advices]
        if acting is not None and acting.acts:
            done = acting.on(advices)
            answers = [one | {"applied": done[one["job"]]} for one in answers]
        sys.stdout.write("".join(json.dumps(one) + "\n" for one in answers))
        _say(found.notes)
    else:
        from condor_advice.advise.advice import caller
        from condor_advice.advise.report import Style, report

        own = caller() if found.private else None
        print(report(advices, found.notes, Style.of_stdout(), own), flush=True)
        if acting is not None and acting.acts:
            acting.on(advices)
    if not question.logs and question.number is None:
        remember(advices, question.store)
    return found.missing


def judge(question: Question, explain: bool = False) -> tuple[list[Advice], Found]:
    """Find the holds that are asked about, and judge them."""
    from condor_advice.advise.advice import Adviser
    from condor_advice.advise.find_holds import find_holds
    from condor_advice.advise.site import load_site

    site = load_site()
    found = find_holds(question, site)
    try:
        if not found.holds:
            return [], found
        adviser = Adviser(_model(found.notes), site, as_of_hold=question.number is not None)
        return adviser.advise(found.holds, explain), found
    finally:
        found.close()


def _say(notes: Sequence[str]) -> None:
    sys.stdout.flush()
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def remember(advices: Sequence[Advice], store: str | None = None) -> None:
    """Record what was advised, so that it can be compared with the outcome."""
    from condor_advice.gather.ledger import now, record_advice

    at = now()
    record_advice([advice.given(at) for advice in advices], store)


def _model(notes: list[str]) -> HeldModel | None:
    """Load the model in use; without one the rules answer, and say so."""
    from condor_advice.model.held.model import HeldModel
    from condor_advice.model.registry.places import STARTER, default_models_path

    try:
        if not default_models_path().exists():
            return HeldModel.load(STARTER)
        from condor_advice.model.registry.versions import Registry

        return HeldModel.load(Registry().current())
    except AdviceError as error:
        notes.append(f"no model could be used, so the rules answer: {error}")
        return None
