"""docs/architecture.md: its walks name what exists, and its recipes work as they are written."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = ("gather", "preprocess", "model", "advise", "dag", "lab")
LOGS = ROOT / "tests" / "logs"

_SECTION = r"^##+ {}$(.*?)(?=^##|\Z)"
_ROW = re.compile(r"^\| `([^`]+\.py)` \| `([\w.]+)` \| (.*) \|$", re.MULTILINE)
_FILE = re.compile(r"`((?:[a-z_]+/)+[\w.]+\.\w+)`")
_TYPE = re.compile(r"`([A-Z][a-z]\w+)`")
# A step of a recipe: the first file that it names, and its block.
_BLOCK = re.compile(r"^\d\. (.*?)^   ```(diff|python)\n(.*?)^   ```$", re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    """Return the text below a title."""
    found = re.search(_SECTION.format(re.escape(title)), PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/architecture.md has no section {title!r}"
    return found[1]


# ---- the walks -------------------------------------------------------------------------------


Definition = ast.FunctionDef | ast.ClassDef


@lru_cache
def definitions(file: Path) -> dict[str, Definition]:
    """Return the functions and classes of a file, methods as `Class.method`."""
    found: dict[str, Definition] = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, Definition):
            found[node.name] = node
        if isinstance(node, ast.ClassDef):
            within = (below for below in node.body if isinstance(below, ast.FunctionDef))
            found |= {f"{node.name}.{below.name}": below for below in within}
    return found


def walk_rows() -> list[tuple[str, str, str]]:
    """Return (file, function, what it hands on) of both walks."""
    rows: list[tuple[str, str, str]] = []
    for title in (
        "A hold, from log bytes to advice",
        "A sweep, from episodes to a registered model",
    ):
        text = section(title)
        found = _ROW.findall(text)
        assert len(found) == sum(line.startswith("| `") for line in text.splitlines())
        assert len(found) > 20
        rows += found
    return rows


@pytest.mark.parametrize(
    ("file", "function", "value"), walk_rows(), ids=lambda text: text[:40].replace("`", "")
)
def test_every_step_of_a_walk_exists_and_hands_on_what_the_page_says(
    file: str, function: str, value: str
) -> None:
    node = definitions(ROOT / file).get(function)
    assert isinstance(node, ast.FunctionDef), f"{file} has no function {function}"
    returned = ast.unparse(node.returns) if node.returns is not None else "None"
    types = _TYPE.findall(value)
    if types and types[0] not in returned:
        raise AssertionError(f"{file}: {function} returns {returned}, not {types[0]}")


def test_every_name_in_the_page_exists() -> None:
    names: set[str] = set()
    for file in (file for room in ROOMS for file in (ROOT / room).rglob("*.py")):
        text = file.read_text()
        names |= {name for found in definitions(file) for name in (found, found.split(".")[0])}
        names |= set(re.findall(r"^(?:    )?([A-Za-z_]\w+)(?:: [^=\n]+)? = ", text, re.MULTILINE))
    prose = re.sub(r"^ *```.*?^ *```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    written = {file for recipe in RECIPES for file, kind, _ in blocks(recipe) if kind == "python"}
    unknown = [file for file in _FILE.findall(prose) if not (ROOT / file).exists()]
    assert set(unknown) == written
    # A class of ours, one of its methods, or a table; HTCondor's own class is theirs.
    said = set(re.findall(r"`([A-Z]\w*[a-z]\w*(?:\.\w+)?)(?:\(\))?`", prose))
    assert said - names == {"JobEventLog"}


# ---- the recipes -----------------------------------------------------------------------------

RECIPES = (
    "Add a hold reason",
    "Add an event field",
    "Add a feature column",
    "Add a network",
    "Add a command",
)


def blocks(recipe: str) -> Iterator[tuple[str, str, str]]:
    """Yield (file, kind of block, code) of a recipe's steps that have code."""
    for words, kind, code in _BLOCK.findall(section(recipe)):
        [file, *_] = _FILE.findall(words)
        yield file, kind, textwrap.dedent(code) if kind == "python" else code


@dataclass(frozen=True)
class Copy:
    """The source, copied, in which one recipe was followed."""

    root: Path

    def follow(self, recipe: str) -> list[str]:
        """Apply a recipe's code; return the files that it touched."""
        touched = []
        for file, kind, code in blocks(recipe):
            place = self.root / file
            if kind == "python":
                assert not place.exists(), f"{file} exists: it is no new file"
                place.write_text(code)
            else:
                place.write_text(edited(place.read_text(), code))
            touched.append(file)
        assert touched, f"the recipe {recipe!r} has no code"
        return touched

    def run(self, *arguments: str) -> str:
        """Run Python on the copy; return what it printed."""
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(self.root), str(ROOT / "tests" / "model"))),
            "HOME": str(self.root),
            "XDG_DATA_HOME": str(self.root / "data"),
        }
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.root,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def advice(self, *arguments: str) -> str:
        """Run condor-advice."""
        return self.run("-m", "condor_advice", *arguments)


def edited(text: str, diff: str) -> str:
    """Apply the hunks of a diff, which have no line numbers: what they show must be there once."""
    for hunk in re.split(r"^ *@@$\n", diff, flags=re.MULTILINE):
        lines = [line[3:] for line in hunk.splitlines()]
        before = "".join(f"{line[1:]}\n" for line in lines if line[0] == " ")
        after = "".join(f"{line[1:]}\n" for line in lines)
        assert text.count(before) == 1, f"shown {text.count(before)} times:\n{before}"
        text = text.replace(before, after)
    return text


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """The source as it is, for a recipe to change."""
    root = tmp_path / "source"
    left_out = shutil.ignore_patterns("__pycache__", "recordings")
    for name in ("condor_advice", *ROOMS):
        shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=left_out)
    made = Copy(root)
    assert made.run("-c", "import condor_advice as c; print(c.__file__)").startswith(str(root))
    return made


def test_a_hold_reason_takes_one_entry(copy: Copy) -> None:
    touched = copy.follow("Add a hold reason")
    assert touched == ["preprocess/holds/hold_reasons.py"]
    text = (LOGS / "periodic_hold.log").read_text()
    idle = text.replace("ran longer than its owner allows", "The GPU was idle for 3 hours")
    log = copy.root / "idle.log"
    log.write_text(idle.replace("Code 3 Subcode 0", "Code 26 Subcode 0"))
    advice = json.loads(copy.advice("--log", str(log), "--json"))
    assert (advice["hold"]["family"], advice["hold"]["rule"]) == ("gpu_idle", "GPU not used")
    assert advice["source"] == "model"  # which loads, and has never seen the family
    assert not advice["sure"]
    assert (advice["verdict"], advice["because_id"]) == ("FIX", "repair_first")
    assert advice["remedy"]["text"].startswith("request no GPU, or start")
    assert advice["remedy"]["commands"] == []  # a person changes the job first
    assert "40 gpu_idle" in copy.run("-m", "condor_advice.preprocess.holds.dictionary")


def test_an_event_field_takes_one_row(copy: Copy) -> None:
    pytest.importorskip("pyarrow")
    log, store = str(LOGS / "memory_exceeded.log"), str(copy.root / "store.sqlite")
    gather = ("gather", log, "--store", store, "--access-point", "ap1")
    copy.advice(*gather)  # before the recipe: what is kept has steps without the field
    before = copy.advice("9.1", "--store", store, "--json")
    touched = copy.follow("Add an event field")
    assert touched == ["preprocess/holds/steps.py"]
    copy.advice("export", "out", "--log", log, "--access-point", "ap1")
    shown = copy.run(
        "-c",
        "from pyarrow import parquet\n"
        "table = parquet.read_table('out/events.parquet', columns=['type', 'resident_kb'])\n"
        "print([row['resident_kb'] for row in table.to_pylist() if row['type'] == 6])",
    )
    told = re.findall(r"(\d+)  -  ResidentSetSize", Path(log).read_text())
    assert shown.strip() == str([float(kilobytes) for kilobytes in told])
    for form in ("json", "xml"):
        path = LOGS / f"global_{form}.log"
        steps = copy.run(
            "-c",
            "from condor_advice.gather.clock import Clock, find_zone\n"
            "from condor_advice.preprocess.holds.timeline import log_timeline\n"
            f"timeline = log_timeline([{str(path)!r}], Clock(find_zone('UTC')))\n"
            "known = {s for batch in timeline.batches() for s in batch['resident'].tolist()}\n"
            "print(sorted(s for s in known if s == s))",
        )
        told = re.findall(r'ResidentSetSize"(?:: |><i>)(\d+)', path.read_text())
        assert len(told) > 10
        assert steps.strip() == str(sorted({float(kilobytes) for kilobytes in told}))
    copy.advice(*gather)
    assert copy.advice("9.1", "--store", store, "--json") == before


def test_a_feature_column_takes_features_py_alone(copy: Copy) -> None:
    log, store = str(LOGS / "memory_exceeded.log"), str(copy.root / "store.sqlite")
    gather = ("gather", log, "--store", store, "--access-point", "ap1")
    ask = ("9.1", "--store", store, "--json")
    copy.advice(*gather)
    before = copy.advice(*ask)
    touched = copy.follow("Add a feature column")
    assert touched == ["preprocess/holds/features.py"]
    # The rows kept so far lack the column; the shipped model names those that it needs.
    assert json.loads(before)["source"] == "model"
    assert copy.advice(*ask) == before
    copy.advice(*gather)
    assert copy.advice(*ask) == before
    shown = copy.run(
        "-c",
        "from condor_advice.gather.store import Store\n"
        "from condor_advice.preprocess.holds.episode_store import KeptEpisodes\n"
        f"kept = KeptEpisodes(Store({store!r}, readonly=True))\n"
        "place = kept.feature_names.index('job_size_reports')\n"
        "print(kept.find(9, 1, 1).features[place])\n"
        "from condor_advice.model.held.derived_columns import SETS\n"
        "print('job_size_reports' in SETS['all'])",
    )
    assert shown.splitlines() == ["1.0", "True"]
    row = "| job_size_reports | count | Reports of the job's size so far | 006 |"
    assert row in copy.run("-m", "condor_advice.preprocess.holds.dictionary")


def test_a_network_takes_one_file_and_its_registration(copy: Copy) -> None:
    pytest.importorskip("torch")
    touched = copy.follow("Add a network")
    assert touched == ["model/held/parts/mlp.py", "model/held/parts/__init__.py"]
    trained = copy.run(
        "-c",
        "from pathlib import Path\n"
        "from held_world import held_world\n"
        "from condor_advice.model.held.parts import Inputs\n"
        "from condor_advice.model.held.train import HeldSettings, save, train\n"
        "settings = HeldSettings(parts=('rules', 'mlp'), feature_sets=('few',))\n"
        "trained = train(held_world(400), settings, 'with-mlp')\n"
        "manifest = save(trained, Path('with-mlp'), settings, {})\n"
        "print('mlp' in HeldSettings().parts, 'mlp.npz' in manifest.files)\n"
        "print(manifest.settings['mlp']['hidden'])\n"
        "print(trained.model.predict(Inputs.of(held_world(50, seed=3))).p_success.tolist())",
    ).splitlines()
    assert trained[:2] == ["True True", "8"]
    loaded = copy.run(
        "-c",
        "import sys\n"
        "from pathlib import Path\n"
        "from held_world import held_world\n"
        "from condor_advice.model.held.model import HeldModel\n"
        "from condor_advice.model.held.parts import Inputs\n"
        "model, unseen = HeldModel.load(Path('with-mlp')), held_world(50, seed=3)\n"
        "inputs = Inputs.of(unseen)\n"
        "print(sorted(model.parts), 'torch' in sys.modules)\n"
        "print(model.predict(inputs).p_success.tolist())\n"
        "one = Inputs.of_one(unseen.features[0], inputs.steps_of(0))\n"
        "print([told.name for told in model.explain(one) if told.kind == 'feature'])",
    ).splitlines()
    assert "mlp" in loaded[0]
    assert loaded[0].endswith("False")
    assert loaded[1] == trained[2]
    assert "'mates_done'" in loaded[2]


def test_a_command_takes_one_file_and_a_line_among_the_verbs(copy: Copy) -> None:
    touched = copy.follow("Add a command")
    assert touched == ["advise/commands/verdict.py", "advise/cli.py"]
    log = str(LOGS / "memory_exceeded.log")
    assert re.fullmatch(r"FIX 0\.\d\d\n", copy.advice("verdict", "9.1", "--log", log))
    assert re.search(r"^  verdict +Print the verdict on one", copy.advice("--help"), re.MULTILINE)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_code_of_a_recipe_is_as_good_as_ours(recipe: str) -> None:
    beside = Path(sys.executable).parent
    ruff = shutil.which("ruff", path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if ruff is None:
        pytest.skip("ruff is not installed")
    for file, kind, code in blocks(recipe):
        text = code if kind == "python" else edited((ROOT / file).read_text(), code)
        for command in (["check"], ["format", "--diff"]):
            done = subprocess.run(
                [ruff, *command, "--stdin-filename", str(ROOT / file), "-"],
                input=text,
                capture_output=True,
                text=True,
                cwd=ROOT,
            )
            assert done.returncode == 0, done.stdout + done.stderr
