"""ClassAd literals mean what HTCondor's own parser says they mean."""

from __future__ import annotations

from typing import Any

import pytest

from condor_advice.gather.classads import assignment, classad_value

LITERALS = [
    '"plain"',
    '""',
    r'"a \"quoted\" word"',
    r'"C:\dir\new"',
    r'"two \\ stay two"',
    r'"tab\tand\nline"',
    r'"ends in a backslash\"',
    r'"é"',
    "TRUE",
    "False",
    "1",
    "-3",
    "1.5",
    ".5",
    "1e3",
    "-1.0E-03",
    "1.000000000000000E+03",
    "{}",
    "{1,2}",
    '{ "a,b", "c" }',
    "{ {1,2}, {3} }",
    "[]",
    '[ a = 1; b = "x;y" ]',
    r'[ a = [ b = 2; c = "]" ]; d = { 1, "q\"," } ]',
]
EXPRESSIONS = [
    "RequestMemory * 2",
    '"a" + "b"',
    "nan",
    "inf",
    "time()",
    'real("INF")',
]


def as_htcondor_reads_it(text: str) -> Any:
    classad2 = pytest.importorskip("classad2")
    return plain(classad2.parseOne(f"X = {text}\n", classad2.ParserType.Old)["X"])


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(one) for one in value]
    return {name: plain(one) for name, one in value.items()} if hasattr(value, "items") else value


@pytest.mark.parametrize("text", LITERALS)
def test_a_literal_is_what_htcondor_reads(text: str) -> None:
    found = classad_value(text)
    expected = as_htcondor_reads_it(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_stays_text(text: str) -> None:
    assert classad_value(text) == text
    assert str(as_htcondor_reads_it(text)) == text


def test_a_line_gives_its_attribute_and_value() -> None:
    assert assignment('   Cmd = "/bin/echo"  \n') == ("Cmd", "/bin/echo")
    assert assignment("ChirpApp.Step=3") == ("ChirpApp.Step", 3)
    assert assignment("Requirements = Memory == 4") == ("Requirements", "Memory == 4")
    for line in ("no attribute", "A == 3", "A =?= 3", "A =!= 3", "*** Offset", "", "3 = 4"):
        assert assignment(line) is None
