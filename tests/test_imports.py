"""The arrows between the rooms, and what each path must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# What each room may import of the others.
MAY_IMPORT: dict[str, set[str]] = {
    "gather": set(),
    "preprocess": {"gather"},
    "model": {"gather", "preprocess"},
    "advise": {"gather", "preprocess", "model"},
    "dag": {"gather", "preprocess", "model"},
    "lab": {"gather", "preprocess", "model"},
    "checkpoint": set(),
}
# What the parts of a room may import of each other; "" is the files that no folder below has.
MAY_IMPORT_WITHIN: dict[str, dict[str, set[str]]] = {
    "preprocess": {"": set(), "holds": {""}, "jobs": {""}},
    "model": {
        "": {"infer"},
        "infer": {""},
        "held": {"", "infer"},
        "failure": {"", "infer"},
        "registry": {"", "held"},
    },
    "advise": {
        "": set(),
        "apply": {""},
        "presubmit": {""},
        "commands": {"", "apply", "presubmit"},
    },
}
# The format and the place of a model's files belong to no product: any may use them, and they
# know none of them.
MODEL_FILES = ("model/registry/manifest.py", "model/registry/places.py")
_MODEL_FILE_MODULES = tuple(
    "condor_advice." + file.removesuffix(".py").replace("/", ".") for file in MODEL_FILES
)
# The command line is where all rooms meet: a verb may call the room it is named after.
VERBS_MAY_IMPORT = {"dag", "lab"}
# The hook's model is trained on features that the hook's own code computes.
TRAINS_THE_HOOK = "model/checkpoint_risk.py"
TRAINING_PACKAGES = {
    "imblearn",
    "matplotlib",
    "pandas",
    "pyarrow",
    "sklearn",
    "torch",
    "wandb",
    "xgboost",
}


def imports_in(source: str, package: list[str]) -> Iterator[tuple[int, str]]:
    """Line and full name of every import, also those inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from condor_advice import gather` names a room only in its last word.
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def imports_of(file: Path) -> Iterator[tuple[int, str]]:
    """The imports of one file of a room."""
    return imports_in(file.read_text(), ["condor_advice", *file.relative_to(ROOT).parent.parts])


def room_of(module: str) -> str | None:
    """The room a module belongs to; a bare `import model` counts as well."""
    words = module.split(".")
    if words[0] == "condor_checkpoint":
        return "checkpoint"
    if words[0] == "condor_advice":
        words = words[1:]
    return words[0] if words and words[0] in MAY_IMPORT else None


def part_of(module: str) -> str:
    """Return the folder of its room that a module is in; "" where it is in none."""
    words = module.removeprefix("condor_advice.").split(".")
    return words[1] if words[1:] and words[1] in MAY_IMPORT_WITHIN[words[0]] else ""


def wrong_within(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the imports of a file that point the wrong way within its room."""
    room, *below = file.relative_to(ROOT).parts
    parts = MAY_IMPORT_WITHIN[room]
    own = below[0] if below[0] in parts else ""
    allowed = parts[own]
    if file.relative_to(ROOT).as_posix() in MODEL_FILES:
        allowed = {""}
    for line, module in imports_of(file):
        if room_of(module) != room or part_of(module) in {own, *allowed}:
            continue
        if any(module.startswith(name) for name in _MODEL_FILE_MODULES):
            continue
        yield line, module


def allowed_in(file: Path) -> set[str]:
    """The other rooms that this file may import."""
    room, *below = file.relative_to(ROOT).parts
    is_verb = room == "advise" and below[0] == "commands"
    trains_the_hook = file.relative_to(ROOT).as_posix() == TRAINS_THE_HOOK
    return (
        MAY_IMPORT[room]
        | (VERBS_MAY_IMPORT if is_verb else set())
        | ({"checkpoint"} if trains_the_hook else set())
    )


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_point_one_way(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files, f"the room {room}/ is empty: this test looks in the wrong place"
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {module}"
        for file in files
        for line, module in imports_of(file)
        if room_of(module) not in {None, room, *allowed_in(file)}
    ]
    assert wrong == []


@pytest.mark.parametrize("room", MAY_IMPORT_WITHIN)
def test_imports_point_one_way_within_a_room(room: str) -> None:
    folders = {file.parent.name for file in (ROOT / room).glob("*/__init__.py")}
    assert folders == set(MAY_IMPORT_WITHIN[room]) - {""}, "every folder of the room has arrows"
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {module}"
        for file in sorted((ROOT / room).rglob("*.py"))
        for line, module in wrong_within(file)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("file", "form"),
    [
        ("model/held/model.py", "from condor_advice.model.failure import evaluate"),
        ("model/held/model.py", "from condor_advice.model.registry import versions"),
        ("model/failure/model.py", "import condor_advice.model.held.data"),
        ("model/registry/manifest.py", "from condor_advice.model.held.model import HeldModel"),
        ("model/infer/trees.py", "from ..held import data"),
        ("model/infer/trees.py", "from condor_advice.model.registry import gate"),
        ("model/plots.py", "from condor_advice.model import held"),
        ("preprocess/jobs/history.py", "from condor_advice.preprocess.holds import steps"),
        ("advise/apply/plan.py", "from condor_advice.advise.presubmit import lint"),
        ("advise/answer.py", "def late():\n    from condor_advice.advise.commands import job"),
    ],
)
def test_an_arrow_the_wrong_way_within_a_room_is_seen(
    file: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _self: form)
    assert len(list(wrong_within(ROOT / file))) == 1


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_are_imported_by_their_installed_names_alone(room: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {module}"
        for file in (ROOT / room).rglob("*.py")
        for line, module in imports_of(file)
        if module.split(".")[0] in MAY_IMPORT
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "form",
    [
        "import condor_advice.advise.cli",
        "from condor_advice import advise",
        "from condor_advice.advise.cli import main",
        "from ..advise import cli",
        "def late():\n    from condor_advice.advise import cli",
    ],
)
def test_the_arrows_are_seen_in_every_form_of_import(form: str) -> None:
    found = [room_of(module) for _, module in imports_in(form, ["condor_advice", "gather"])]
    assert found == ["advise"]


def loaded_after(statement: str) -> set[str]:
    """Top-level names of all modules a fresh Python has loaded after the statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    # The site-packages are there (no -S): what is forbidden must be found, and refused.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    return set(done.stdout.split())


def test_the_hook_loads_the_standard_library_alone() -> None:
    # What the environment itself loads at start-up (an editable install's finder) is no
    # doing of ours.
    foreign = loaded_after("import condor_checkpoint") - loaded_after("pass")
    assert "condor_checkpoint" in foreign
    assert foreign - set(sys.stdlib_module_names) == {"condor_checkpoint"}


def test_every_module_of_the_hook_loads_the_standard_library_alone() -> None:
    modules = sorted(
        "condor_checkpoint." + ".".join(file.relative_to(ROOT / "checkpoint").with_suffix("").parts)
        for file in (ROOT / "checkpoint").rglob("*.py")
        if file.name not in ("__init__.py", "__main__.py")
    )
    statement = "\n".join(f"import {module}" for module in modules) or "import condor_checkpoint"
    foreign = loaded_after(statement) - loaded_after("pass") - set(sys.stdlib_module_names)
    assert foreign == {"condor_checkpoint"}


def test_the_advice_path_loads_no_training_package() -> None:
    loaded = loaded_after(
        "import importlib, condor_advice.advise.cli as cli\n"
        "importlib.import_module(cli.VERBS['job'].partition(':')[0])"
    )
    assert "condor_advice" in loaded
    assert loaded & TRAINING_PACKAGES == set()


def test_the_command_line_itself_loads_no_heavy_package() -> None:
    loaded = loaded_after("import condor_advice.advise.cli")
    assert loaded & {*TRAINING_PACKAGES, "htcondor2", "numpy"} == set()
