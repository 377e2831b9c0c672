"""What a user installs: the two packages, typed, with their data, and nothing else."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def tracked_files() -> list[str]:
    """Files of the checkout, without what git ignores; one look, whatever changes meanwhile."""
    # The checkout may belong to another account than the one that runs the tests.
    git = ["git", "-c", "safe.directory=*", "-C", str(ROOT)]
    listed = subprocess.run(
        [*git, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout, so there is no list of what belongs to it")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built from a copy of the checkout."""
    work = tmp_path_factory.mktemp("packaging")
    source = work / "source"
    for name in tracked_files():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    out = work / "dist"
    out.mkdir()
    # The build backend itself, in a fresh process: what pip calls, without its downloads.
    for hook in ("build_wheel", "build_sdist"):
        code = f"from setuptools import build_meta; print(build_meta.{hook}({str(out)!r}))"
        subprocess.run(
            [sys.executable, "-c", code], cwd=source, check=True, capture_output=True, text=True
        )
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [wheel] = built.glob("*.whl")
    return wheel


def test_only_our_two_packages_land_in_site_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    # What lies below .data/data/share goes beside site-packages: the man page, completions.
    shared = {name.partition(".data/data/")[2] for name in names if ".data/" in name}
    assert {"share/man/man1/condor-advice.1"} <= shared
    assert all(name.startswith("share/") for name in shared)
    top = {name.split("/")[0] for name in names if ".data/" not in name}
    assert {name for name in top if not name.endswith(".dist-info")} == {
        "condor_advice",
        "condor_checkpoint",
    }


def test_the_wheel_holds_every_module_and_all_data_of_the_rooms(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    rooms = ("advise", "dag", "gather", "lab", "model", "preprocess")
    expected = {f"condor_advice/{name}" for name in tracked_files() if name.split("/")[0] in rooms}
    expected |= {f"condor_{name}" for name in tracked_files() if name.startswith("checkpoint/")}
    assert expected - inside == set()
    assert {"condor_advice/py.typed", "condor_checkpoint/py.typed"} <= inside


def test_the_sdist_holds_what_a_build_needs_and_no_private_folder(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "condor_advice/gather/errors.py"} <= inside
    assert not any(name.startswith((".venv", ".pool", ".git/")) for name in inside)


def test_the_wheel_works_where_there_is_no_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import condor_advice, condor_advice.advise.cli, condor_checkpoint\n"
        "print(condor_advice.__file__, condor_checkpoint.__file__, condor_advice.__version__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True
    )
    advice, checkpoint, version = done.stdout.split()
    assert advice == str(tmp_path / "condor_advice" / "__init__.py")
    assert checkpoint == str(tmp_path / "condor_checkpoint" / "__init__.py")
    assert wheel.name.split("-")[1] == version
