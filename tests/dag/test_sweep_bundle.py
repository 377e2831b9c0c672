"""The bundle is a Python with packages that runs where neither is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from condor_advice.dag.bundle import bundle_bytes, closure, write_bundle, write_package
from condor_advice.gather.errors import AdviceError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small bundle with NumPy, and our package, unpacked as run_node.sh unpacks them."""
    place = tmp_path_factory.mktemp("bundle")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        write_bundle(place / "bundle.tar.gz", ["numpy", "tzdata"])
    with tarfile.open(place / "bundle.tar.gz") as archive:
        archive.extractall(place / "bundle", filter="data")
    write_package(place / "package.zip")
    return place


def hidden_from(place: Path) -> list[str]:
    """A command prefix that hides this Python and this checkout."""
    gone = {Path(sys.base_prefix), Path(sys.prefix), ROOT}
    gone = {path for path in gone if path not in (Path("/usr"), Path("/"))}
    # Hiding the outer of nested directories is enough.
    gone = {path for path in gone if not any(other in path.parents for other in gone)}
    if any(place.is_relative_to(path) for path in gone):
        pytest.skip("the scratch directory is below what would have to be hidden")
    hide = " && ".join(f"mount -t tmpfs none '{path}'" for path in sorted(gone))
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    try:
        probe = subprocess.run([*command, hide or "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if probe.returncode != 0:
        pytest.skip(f"this machine does not let us hide directories: {probe.stderr.decode()}")
    return [*command, f'{hide or "true"} && exec "$@"', "sh"]


def test_the_bundle_runs_without_another_python_or_our_package(unpacked):
    prefix = hidden_from(unpacked)
    code = (
        "import sys, numpy, zlib, ctypes, sqlite3, zoneinfo; "
        "import condor_advice.dag.nodes, condor_advice.dag.episodes; "
        "zoneinfo.ZoneInfo('Europe/Berlin'); "
        "assert not [p for p in sys.path if p and 'bundle' not in p and 'package' not in p]; "
        "print(numpy.ones(3).sum(), condor_advice.dag.nodes.__file__)"
    )
    done = subprocess.run(
        [*prefix, str(unpacked / "bundle" / "bin" / "python3"), "-c", code],
        env={
            "PATH": os.defpath,
            "PYTHONHOME": str(unpacked / "bundle"),
            "LD_LIBRARY_PATH": str(unpacked / "bundle" / "lib"),
            "PYTHONPATH": str(unpacked / "package.zip"),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        cwd=unpacked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3.0 ")
    assert str(unpacked / "package.zip") in done.stdout


def test_a_bundle_is_built_once_and_names_what_is_missing(unpacked, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(unpacked / "cache"))
    said: list[str] = []
    write_bundle(tmp_path / "again.tar.gz", ["tzdata", "numpy"], said.append)
    assert said == [], "the bundle that was built before is reused"
    assert (tmp_path / "again.tar.gz").stat().st_size > 1_000_000
    with pytest.raises(AdviceError, match=r"the bundle needs no-such-thing, .* pip install"):
        write_bundle(tmp_path / "none.tar.gz", ["no-such-thing"])
    assert not (tmp_path / "none.tar.gz").exists()
    assert bundle_bytes(["numpy", "tzdata"]) > (tmp_path / "again.tar.gz").stat().st_size


def test_a_bundle_holds_what_its_packages_need_and_nothing_of_ours():
    names = {distribution.metadata["Name"].lower() for distribution in closure(["torch"])}
    assert {"torch", "sympy", "networkx", "jinja2"} <= names
    assert "pytest" not in names
    assert "condor-advice" not in names
