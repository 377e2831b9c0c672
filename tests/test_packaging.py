"""What a user installs: the two packages, typed, with their data, and nothing else."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Most of it are the recordings that models are trained on.
LARGEST_WHEEL_BYTES = 12 << 20


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


def build(kind: str, source: Path, out: Path) -> Path:
    """Build the sdist or the wheel of a source tree."""
    # The build backend itself, in a fresh process: what pip calls, without its downloads.
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(out)!r}))"
    built = subprocess.run(
        [sys.executable, "-c", code], cwd=source, check=True, capture_output=True, text=True
    )
    return out / built.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, built from a copy of the checkout."""
    source = tmp_path_factory.mktemp("checkout")
    for name in tracked_files():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return build("sdist", source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist alone, as a distribution would build it."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    [source] = unpacked.iterdir()
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


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


def test_the_sdist_holds_what_a_build_needs_and_no_private_folder(sdist: Path) -> None:
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


def test_the_wheel_stays_small(wheel: Path) -> None:
    assert wheel.stat().st_size < LARGEST_WHEEL_BYTES


@pytest.mark.slow
def test_the_wheel_runs_the_demo_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    # This also works where Python has no ensurepip.
    make_venv = [sys.executable, ROOT / "tools/make_venv.py", environment]
    subprocess.run(make_venv, check=True, capture_output=True)
    pip = [environment / "bin/python", "-m", "pip", "--disable-pip-version-check", "install"]
    installed = subprocess.run([*pip, wheel], capture_output=True, text=True, check=False)
    if installed.returncode != 0 and "No matching distribution" in installed.stderr:
        if os.environ.get("CI"):
            pytest.fail(installed.stderr)
        pytest.skip("cannot reach the package index to install the dependencies of the wheel")
    assert installed.returncode == 0, installed.stderr
    packages = subprocess.run(
        [environment / "bin/python", "-m", "pip", "list", "--format=freeze"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.partition("==")[0].lower() for line in packages.stdout.splitlines()}
    assert names & {"pytest", "torch", "pandas", "xgboost-cpu", "scikit-learn"} == set()
    demo = subprocess.run(
        [environment / "bin/condor-advice", "demo"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert "15 held jobs" in demo.stdout
    assert "by model starter" in demo.stdout
