"""The table of hold reasons: every entry can be reached, and kept rows follow its changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from condor_advice.gather.events import HoldCode
from condor_advice.preprocess.holds import hold_reasons
from condor_advice.preprocess.holds.episode_store import made_by
from condor_advice.preprocess.holds.hold_reasons import (
    HOLD_REASONS,
    Family,
    HoldReason,
    Match,
    Rule,
    RuleId,
    acting_user,
)
from condor_advice.preprocess.holds.templates import FAMILIES, parse_reason


def first_rule(code: int | None, subcode: int | None, text: str) -> Rule:
    rules = (reason.rule for reason in HOLD_REASONS if reason.rule is not None)
    return next(rule for rule in rules if rule.matches(code, subcode, text))


@pytest.mark.parametrize("reason", HOLD_REASONS, ids=lambda reason: reason.example[2][:40])
def test_every_entry_is_the_first_for_its_example(reason: HoldReason) -> None:
    code, subcode, text = reason.example
    assert reason.signs or reason.rule
    if reason.signs is not None:
        assert parse_reason(text, code, subcode).family is reason.signs.family
    if reason.rule is not None:
        assert first_rule(code, subcode, text) is reason.rule


def test_every_family_and_rule_has_one_entry() -> None:
    families = Counter(reason.signs.family for reason in HOLD_REASONS if reason.signs)
    rules = Counter(reason.rule.id for reason in HOLD_REASONS if reason.rule)
    assert families == Counter(Family)
    # That a hold comes back is told by the job's past, not by the reason.
    assert rules == Counter(set(RuleId) - {RuleId.COMES_BACK})


def test_every_hold_code_that_htcondor_has_leads_to_a_family_and_a_rule() -> None:
    for code in HoldCode:
        assert parse_reason("", code, 0).family is not Family.OTHER
        assert first_rule(code, 0, "").name


def test_the_numbers_of_families_never_change() -> None:
    # Shipped models and kept rows have these numbers.
    assert [FAMILIES.index(name) for name in ("unspecified", "memory", "url", "user", "grid")] == [
        0, 2, 15, 29, 39,
    ]  # fmt: skip


def test_kept_rows_notice_when_the_table_recognises_a_family_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = made_by()
    assert made_by() == before
    place = next(i for i, r in enumerate(HOLD_REASONS) if r.signs and r.signs.family == "disk")
    entry = HOLD_REASONS[place]
    assert entry.signs is not None
    assert entry.rule is not None

    def with_entry(changed: HoldReason) -> str:
        table = (*HOLD_REASONS[:place], changed, *HOLD_REASONS[place + 1 :])
        monkeypatch.setattr(hold_reasons, "HOLD_REASONS", table)
        return made_by()

    for signs in (
        replace(entry.signs, words=(("disk",),)),
        replace(entry.signs, always=(HoldCode.STARTD_HELD_JOB,)),
        replace(entry.signs, otherwise=(Match((99,)),)),
        replace(entry.signs, traits=()),
        replace(entry.signs, family=Family.QUOTA),
    ):
        assert with_entry(replace(entry, signs=signs)) != before
    # A sentence in other words makes no row stale.
    assert with_entry(replace(entry, rule=replace(entry.rule, why="it is too large"))) == before
    monkeypatch.setattr(hold_reasons, "HOLD_REASONS", HOLD_REASONS[::-1])
    assert made_by() != before


@pytest.mark.parametrize(
    ("reason", "user"),
    [
        ("via condor_hold (by user anna)", "anna"),
        ("via condor_release (by user anna@pool.local)", "anna@pool.local"),
        ("says (by user anna) (by user root)", "root"),
        ("memory usage exceeded request_memory", ""),
    ],
)
def test_who_acted_is_the_name_that_htcondor_appends(reason: str, user: str) -> None:
    assert acting_user(reason) == user
