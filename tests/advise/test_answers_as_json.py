"""Every answer fits the schema that is shipped, whatever it was made from."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

LOGS = sorted(Path(__file__).resolve().parents[1].glob("logs/*.log"))


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    text = resources.files("condor_advice.advise").joinpath("schema/advice.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def answers(*arguments: str | Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "condor_advice", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_schema_is_one(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


def test_every_hold_of_every_real_log_is_answered_as_the_schema_says(
    schema: dict[str, Any],
) -> None:
    named = [part for log in LOGS if not log.name.startswith("global_") for part in ("--log", log)]
    found = answers(*named, "--hold", "1")
    assert len(found) > 15
    assert {"FIX", "ASK"} <= {one["verdict"] for one in found}
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    for one in found:
        validator.validate(one)


def test_explanations_fit_it_and_are_there(
    schema: dict[str, Any], event_log: Callable[[str], Path]
) -> None:
    [one] = answers("--log", event_log("held_by_owner.log"), "--explain")
    jsonschema.validate(one, schema)
    effects = [abs(part["effect"]) for part in one["attributions"]]
    assert effects == sorted(effects, reverse=True)
    assert effects[0] > 0


def test_an_answer_that_says_something_else_does_not_fit(schema: dict[str, Any]) -> None:
    log = Path(__file__).resolve().parents[1] / "logs" / "held_by_owner.log"
    [one] = answers("--log", log)
    for wrong in (
        one | {"verdict": "MAYBE"},
        one | {"p_success": 1.2},
        one | {"surprise": 1},
        {name: value for name, value in one.items() if name != "remedy"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_a_script_gets_objects_or_nothing(event_log: Callable[[str], Path]) -> None:
    command = [sys.executable, "-m", "condor_advice", "--log", str(event_log("completed.log"))]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "No job is on hold" in done.stderr
