"""A job that cannot be judged becomes a note; the others are answered."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest

from condor_advice.advise import advice, find_holds
from condor_advice.advise.answer import advise_on, answer, judge
from condor_advice.advise.find_holds import Question
from condor_advice.gather.errors import AdviceError

LOG = str(resources.files("condor_advice.advise").joinpath("demo.log"))
QUESTION = Question(logs=(LOG,))


def fail_for(jobs: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = advice.remedy_for

    def fails(hold: Any, *others: Any) -> Any:
        if str(hold.job) in jobs:
            raise OverflowError("date value\nout of range")
        return real(hold, *others)

    monkeypatch.setattr(advice, "remedy_for", fails)


def test_one_that_fails_is_noted_and_the_others_are_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    every = [str(one.hold.job) for one in judge(QUESTION)[0]]
    assert len(every) > 1
    fail_for({every[0]}, monkeypatch)
    assert answer(QUESTION, as_json=True) == []
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == len(every) - 1
    note = f"note: job {every[0]}: cannot be judged (OverflowError: date value out of range)"
    assert note in shown.err.splitlines()


def test_where_none_can_be_judged_there_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    every = [str(one.hold.job) for one in judge(QUESTION)[0]]
    fail_for(set(every), monkeypatch)
    assert len(answer(QUESTION, as_json=False)) == len(every)
    assert "No job is on hold" not in capsys.readouterr().out
    with pytest.raises(AdviceError, match="cannot be judged"):
        advise_on(every[0], logs=LOG)


def test_a_stranger_learns_only_how_many_cannot_be_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    every = [str(one.hold.job) for one in judge(QUESTION)[0]]
    fail_for({every[0]}, monkeypatch)
    find = find_holds.find_holds

    def find_in_a_strangers_store(*arguments: Any) -> find_holds.Found:
        found = find(*arguments)
        found.private = True
        return found

    monkeypatch.setattr(find_holds, "find_holds", find_in_a_strangers_store)
    answer(QUESTION, as_json=False)
    shown = capsys.readouterr()
    assert "other users' jobs that cannot be judged: 1" in shown.out + shown.err
    assert every[0] not in shown.out + shown.err
