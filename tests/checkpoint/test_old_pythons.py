"""The hook runs on every Python from 3.8: as one file, on whichever of them are here."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"]
LIMIT = 300 * 1024

# Samples, alarms, a save by the period, a save on SIGTERM, files, the journal and the trees.
PROGRAM = """
import os, signal, sys, time
from condor_checkpoint import Checkpoint
reasons = []
def save(reason):
    reasons.append(reason)
    checkpoint.files.write(b"state")
checkpoint = Checkpoint(save, directory="checkpoints", period=0.2, interval=0.05)
assert checkpoint.risk.trees is not None
with checkpoint:
    begun = time.time()
    while time.time() - begun < 0.6:
        time.sleep(0.01)
        checkpoint.poll()
    assert len(checkpoint.risk.samples) > 3, "no samples"
    assert checkpoint.risk.trees.probability(checkpoint.risk.features()) < 1.0
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        checkpoint.poll()
    finally:
        print(sys.version_info[:2], sorted(set(reasons)), os.listdir("checkpoints"))
"""


def interpreter(version):
    """A Python of that version: on PATH, or one that pyenv has."""
    installed = sorted(
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(
            f"versions/{version}.*/bin/python"
        )
    )
    candidates = [str(path) for path in installed] + [shutil.which(f"python{version}") or ""]
    for candidate in candidates:
        if candidate:
            reported = subprocess.run(
                [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                capture_output=True,
                text=True,
                check=False,
            )
            if reported.stdout.strip() == version:
                return candidate
    pytest.skip(f"no Python {version} on this machine")


@pytest.fixture(scope="module")
def pyz(tmp_path_factory):
    path = tmp_path_factory.mktemp("pyz") / "condor_checkpoint.pyz"
    subprocess.run([sys.executable, ROOT / "tools/make_pyz.py", path], check=True)
    return path


@pytest.mark.parametrize("version", VERSIONS)
def test_the_one_file_works_on(version, pyz, tmp_path):
    python = interpreter(version)
    done = subprocess.run(
        [python, "-W", "error", "-c", PROGRAM],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(pyz)},
        timeout=60,
    )
    assert done.returncode == 143, done.stderr
    assert "['period', 'vacate']" in done.stdout
    assert "checkpoint-00000" in done.stdout
    command = subprocess.run(
        [python, pyz, "run", "--signal", "USR1", "--", "sh", "-c", "exit 9"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (command.returncode, command.stderr) == (9, "")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fork_next_to_the_watching_thread_is_no_warning(version, pyz):
    # From 3.12 it would be one, and `-W error` would end the job.
    program = """
import multiprocessing
from condor_checkpoint import Checkpoint
with Checkpoint(lambda reason: None, interval=0.05):
    child = multiprocessing.get_context("fork").Process(target=print, args=("child",))
    child.start()
    child.join()
"""
    done = subprocess.run(
        [interpreter(version), "-W", "error", "-c", program],
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(pyz)},
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "child\n"), done.stderr


def test_the_one_file_is_small_and_built_the_same_each_time(pyz, tmp_path):
    assert pyz.stat().st_size < LIMIT
    again = tmp_path / "again.pyz"
    subprocess.run([sys.executable, ROOT / "tools/make_pyz.py", again], check=True)
    assert again.read_bytes() == pyz.read_bytes()


@pytest.mark.parametrize("path", sorted((ROOT / "checkpoint").glob("*.py")), ids=lambda p: p.name)
def test_every_file_is_in_the_grammar_of_3_8_and_imports_the_standard_library_only(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    allowed = set(sys.stdlib_module_names) | {"condor_checkpoint"}
    if path.name == "pytorch.py":
        allowed.add("torch")  # inside functions, as an example
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    assert names <= allowed
