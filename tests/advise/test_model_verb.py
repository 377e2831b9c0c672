"""`condor-advice model`: list, show, promote, roll back, check and describe models."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from condor_advice.advise import cli as command_line
from condor_advice.gather.errors import UsageError
from condor_advice.model.arrays import UnusableModel
from condor_advice.model.registry.versions import NotPromoted, Registry

HELPERS = Path(__file__).resolve().parents[1] / "model"


def helper(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, HELPERS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with two models, found through the environment; no default store."""
    write_model = helper("small_models").write_model
    monkeypatch.setenv("CONDOR_ADVICE_MODELS", str(tmp_path / "registry"))
    monkeypatch.setenv("CONDOR_ADVICE_STORE", str(tmp_path / "none.sqlite"))
    for name, slope in (("first", 0.1), ("second", 0.6)):
        Registry().add(write_model(tmp_path, name, slope))
    return tmp_path


def run(*words: str | Path, expect: int = 0) -> Result:
    result = CliRunner().invoke(
        command_line.cli, ["model", *map(str, words)], catch_exceptions=False
    )
    assert result.exit_code == expect, result.output
    return result


def run_json(*words: str | Path, expect: int = 0) -> Any:
    return json.loads(run(*words, "--json", expect=expect).stdout)


def test_list_tells_which_one_answers_and_what_was_switched(place: Path) -> None:
    run("promote", "first", "--force")
    found = run_json("list")
    assert found["current"] == "first"
    assert [one["name"] for one in found["models"]] == ["shipped", "first", "second"]
    assert [one["current"] for one in found["models"]] == [False, True, False]
    assert [entry["action"] for entry in found["history"]] == ["add", "add", "promote"]
    text = run("list").stdout
    assert "* first" in text
    assert "first promoted over shipped (forced)" in text


def test_the_shipped_model_is_known_by_the_name_that_its_answers_carry(place: Path) -> None:
    found = run_json("show", "shipped")
    assert found["manifest"]["name"] == "starter"
    assert run_json("show", "starter") == found
    assert run("verify", "starter", "first").stdout == "shipped: intact\nfirst: intact\n"


def test_show_prints_what_a_model_was_made_from(place: Path) -> None:
    found = run_json("show", "second")
    assert found["manifest"]["settings"] == {"slope": 0.6}
    assert found["manifest"]["files"]["trees.npz"]["bytes"] > 100
    text = run("show", "second").stdout
    assert "of made by hand" in text
    assert "validation: brier 0.200, roc auc 0.700" in text
    shipped = run_json("show")
    assert (shipped["name"], shipped["current"]) == ("shipped", True)
    with pytest.raises(
        UsageError, match="no model named 'third'; known models: shipped, first, second"
    ):
        run("show", "third")


def test_without_holds_to_compare_on_nothing_is_promoted(place: Path) -> None:
    with pytest.raises(UsageError, match="name a store or a log with --store or --log"):
        run("promote", "first")
    assert Registry().current_name() == "shipped"


def test_the_gate_decides_on_the_outcomes_of_a_real_pool(place: Path, tmp_path: Path) -> None:
    Registry().add(helper("small_models").write_model(tmp_path, "wrong", -2.0))
    kept = run_json("promote", "wrong", "--recording", "pool_a", expect=1)
    assert not kept["promoted"]
    assert kept["gate"]["verdict"] == "worse"
    assert kept["gate"]["episodes"] > 500
    with pytest.raises(NotPromoted, match="wrong: not promoted, starter stays: .* is worse"):
        run("promote", "wrong", "--recording", "pool_a")
    run("promote", "wrong", "--force")
    found = run_json("promote", "second", "--recording", "pool_a")
    assert found["promoted"]
    assert found["gate"]["verdict"] == "better"
    assert Registry().current_name() == "second"
    assert "wrong not promoted, shipped kept: the candidate is worse" in run("list").stdout


def test_rollback_is_one_command(place: Path) -> None:
    run("promote", "first", "--force")
    run("promote", "second", "--force")
    assert run_json("rollback") == {"left": "second", "back": "first", "passed_over": []}
    assert "shipped is now in use" in run("rollback").stdout
    with pytest.raises(UsageError, match="nothing to roll back to"):
        run("rollback")


def test_verify_names_the_damaged_one_and_fails(place: Path) -> None:
    assert run_json("verify") == {
        "whole": True,
        "problems": {"shipped": None, "first": None, "second": None},
    }
    trees = Registry().path("second") / "trees.npz"
    trees.write_bytes(trees.read_bytes()[:-1])
    found = run_json("verify", expect=1)
    assert not found["whole"]
    assert "truncated" in found["problems"]["second"]
    assert run("verify", "first").stdout == "first: intact\n"
    assert "UNUSABLE" in run("list").stdout
    with pytest.raises(UnusableModel, match="trees.npz"):
        run("promote", "second", "--force")


def test_a_card_is_printed_and_copied(place: Path, tmp_path: Path) -> None:
    assert run("card", "first").stdout.startswith("# Model first\n")
    out = tmp_path / "card"
    run("card", "first", "--out", out)
    assert (out / "card.md").read_text().startswith("# Model first\n")
    assert run_json("card", "first")["card"].startswith("# Model first\n")


def test_a_model_from_a_directory_is_added_and_removed(place: Path, tmp_path: Path) -> None:
    third = helper("small_models").write_model(tmp_path, "third", 1.0)
    assert run_json("add", third) == {"added": "third"}
    assert run_json("remove", "third") == {"removed": "third"}
    assert [one["name"] for one in run_json("list")["models"]] == ["shipped", "first", "second"]
    with pytest.raises(UnusableModel, match="the directory is not a model, or is incomplete"):
        run("add", tmp_path)


def test_another_registry_can_be_named(place: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        command_line.cli, ["model", "--models", str(tmp_path / "other"), "list", "--json"]
    )
    assert [one["name"] for one in json.loads(result.stdout)["models"]] == ["shipped"]


def test_errors_reach_people_without_a_traceback(place: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "condor_advice", "model", "show", "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith("condor-advice: ")
    assert "Traceback" not in ran.stderr


def test_listing_models_loads_no_training_package() -> None:
    code = (
        "import sys; from click.testing import CliRunner\n"
        "from condor_advice.advise.cli import cli\n"
        "assert CliRunner().invoke(cli, ['model', 'list']).exit_code == 0\n"
        "print(*{n.split('.')[0] for n in sys.modules} & {'torch', 'xgboost', 'sklearn',"
        " 'pandas', 'pyarrow', 'matplotlib'})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
