#!/usr/bin/env python3
"""Create a virtual environment with pip, even if Python has no ensurepip.

    python3 tools/make_venv.py DIR

Debian puts `ensurepip` in a separate package (python3-venv). If it is missing, this script takes
pip's wheel from another Debian package without root: apt downloads and verifies the package, and
it is unpacked into a temporary directory. The script runs on the system Python before anything is
installed, so it uses only the standard library.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

OLDEST_PYTHON = (3, 11)
PIP_PACKAGE = "python3-pip-whl"
WHEELS = "usr/share/python-wheels"


class VenvError(Exception):
    """The environment cannot be created; the message says what to install."""


def make_venv(directory: Path) -> None:
    """Create the environment, or recreate an incomplete one; do nothing if it is complete."""
    if has_pip(directory):
        return
    if importlib.util.find_spec("ensurepip"):
        venv.create(directory, with_pip=True, clear=True, symlinks=True)
        return
    with tempfile.TemporaryDirectory() as scratch:
        wheel = find_wheel(Path("/")) or fetch_wheel(Path(scratch))
        venv.create(directory, with_pip=False, clear=True, symlinks=True)
        # A wheel is a zip file that Python can import from, so pip can install itself.
        run([directory / "bin/python", wheel / "pip", "install", "-q", "--no-index", wheel])


def has_pip(directory: Path) -> bool:
    """Return whether the environment exists and its pip runs."""
    python = directory / "bin/python"
    if not python.exists():
        return False
    probe = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False)
    return probe.returncode == 0


def find_wheel(root: Path) -> Path | None:
    """Return pip's wheel from Debian's package, installed or unpacked below `root`."""
    return next((root / WHEELS).glob("pip-*.whl"), None)


def fetch_wheel(scratch: Path) -> Path:
    """Download Debian's package and return pip's wheel from it, without installing it."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise VenvError(
            f"this Python ({sys.executable}) has no ensurepip; install your system's package "
            "for `python3 -m venv`"
        )
    try:
        apt_download(PIP_PACKAGE, scratch)
        [package] = scratch.glob("*.deb")
        run(["dpkg-deb", "--extract", package, scratch])
    except subprocess.CalledProcessError as error:
        raise VenvError(
            f"this Python ({sys.executable}) has no ensurepip, and pip could not be downloaded "
            f"({error.stderr.strip()}); as root: apt-get install python3-venv"
        ) from error
    wheel = find_wheel(scratch)
    if wheel is None:
        raise VenvError(
            f"Debian's {PIP_PACKAGE} has no wheel in {WHEELS}; "
            "as root: apt-get install python3-venv"
        )
    return wheel


def apt_download(package: str, target: Path) -> None:
    """Download one package file, using the machine's package lists or else fresh ones."""
    try:
        run(["apt-get", "download", "-qq", package], cwd=target)
    except subprocess.CalledProcessError:
        # The lists are missing or old, as in a fresh container: download separate ones.
        for folder in ("lists/partial", "cache/archives/partial"):
            (target / folder).mkdir(parents=True)
        own = [
            *("-o", f"Dir::State::lists={target}/lists"),
            *("-o", f"Dir::Cache={target}/cache"),
            *("-o", "APT::Sandbox::User="),
        ]
        run(["apt-get", "update", "-qq", *own])
        run(["apt-get", "download", "-qq", *own, package], cwd=target)


def run(command: list[str | Path], cwd: Path | None = None) -> None:
    """Run a command quietly; CalledProcessError has its stderr."""
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True)


def main() -> int:
    """Create the environment named on the command line; return the exit status."""
    if len(sys.argv) != 2:
        print("usage: make_venv.py DIR", file=sys.stderr)
        return 2
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        print(f"make_venv: needs Python {needed} or newer; choose one with `make PYTHON=...`")
        return 1
    try:
        make_venv(Path(sys.argv[1]).absolute())
    except VenvError as error:
        print(f"make_venv: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
