"""What a user wrote into a job ad has the type that HTCondor gives it, or is as if absent."""

from __future__ import annotations

import math
import time

import pytest

from condor_advice.gather.live import _SPELLING as SPELLING
from condor_advice.gather.live import (
    END_ATTRIBUTES,
    EPOCH_ATTRIBUTES,
    HOLD_ATTRIBUTES,
    POLICY_ATTRIBUTES,
    plain,
)

classad2 = pytest.importorskip("classad2")


def ad_of(**values: object) -> dict[str, object]:
    ad = classad2.ClassAd()
    for name, value in values.items():
        ad[name] = classad2.ExprTree(value[1:]) if str(value).startswith("=") else value
    return plain(ad)


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("HoldReasonCode", [[1, 2], "x", True, 2**62, math.nan], [13, -1]),
        ("NumHolds", ["x", -1, 2**40, {"a": 1}], [0, 3]),
        ("EnteredCurrentStatus", ["x", 2**62, -1, math.inf], [1_700_000_000]),
        ("AdviceAt", ["x"], [1_700_000_000]),
        ("RequestCpus", [math.inf, -math.inf, math.nan, -1, 1e300, "4"], [1, 2.5]),
        ("HoldReason", [1, ["x"], {"a": 1}], ["text"]),
        ("UserLog", [5, ["x"], "x" * (2 << 20)], ["/tmp/log"]),
        ("NumHoldsByReason", ["x", 3, [1]], [{"JobPolicy": 2}]),
        ("ExitBySignal", ["x", 1], [True, False]),
        ("PeriodicHold", [[1], {"a": 1}], [True, "false"]),
    ],
)
def test_a_wrong_type_or_range_is_as_if_absent(
    name: str, wrong: list[object], right: list[object]
) -> None:
    for value in wrong:
        assert ad_of(**{name: value}) == {}, value
    for value in right:
        assert ad_of(**{name: value}) == {name: value}


def test_every_attribute_that_is_asked_for_has_a_type() -> None:
    asked = {*HOLD_ATTRIBUTES, *END_ATTRIBUTES, *EPOCH_ATTRIBUTES, *POLICY_ATTRIBUTES}
    assert asked - set(SPELLING.values()) == set()


def test_case_does_not_matter_and_a_long_reason_is_cut() -> None:
    assert ad_of(requestcpus=4) == {"RequestCpus": 4}
    assert len(str(ad_of(HoldReason="x" * 100_000)["HoldReason"])) == 8192


def test_expressions_have_their_values() -> None:
    shown = ad_of(
        RequestMemory="=ifthenelse(MemoryUsage =!= undefined, MemoryUsage, 1)",
        MemoryUsage="=((ResidentSetSize + 1023) / 1024)",
        ResidentSetSize=2048,
        RequestDisk="=NoSuchThing",
        Requirements="=TARGET.Memory > 5",
        PeriodicHold="=NumHolds > 3",
    )
    assert shown["RequestMemory"] == shown["MemoryUsage"] == 2
    assert "RequestDisk" not in shown
    assert shown["Requirements"] == "TARGET.Memory > 5"
    assert shown["PeriodicHold"] == "NumHolds > 3"


def test_expressions_that_refer_to_one_another_many_times_take_no_time() -> None:
    names = [name for name in HOLD_ATTRIBUTES if name not in ("ClusterId", "ProcId")]
    wide = {
        name: f"=sum({{{','.join([other] * 50)}}})"
        for name, other in zip(names, names[1:] + names[:1], strict=True)
    }
    began = time.monotonic()
    ad_of(**wide)
    longer = {
        name: value.replace("sum({", "strcat(").replace("})", ")") for name, value in wide.items()
    }
    ad_of(**longer | {names[-1]: "x" * 1000})
    assert time.monotonic() - began < 5
