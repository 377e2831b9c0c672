"""The man page and the completions come from the help, and are current."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_man_page_and_the_completions_are_current() -> None:
    command = [sys.executable, ROOT / "tools" / "write_man.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_man_page_is_good_roff() -> None:
    page = ROOT / "docs" / "man" / "condor-advice.1"
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", str(page)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    shown = re.sub(r".\x08|\x1b\[[\d;]*m", "", done.stdout)
    shown = shown.replace("\u2010", "-").replace("\u2212", "-")
    for words in ("condor-advice [OPTIONS] [JOBID]...", "EXIT STATUS", "gather", "NO_COLOR"):
        assert words in shown


def test_the_help_begins_with_what_most_people_came_for() -> None:
    command = [sys.executable, "-m", "condor_advice", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("Usage: condor-advice [OPTIONS] [JOBID]... | COMMAND [ARGS]...")
    shown = done.stdout
    assert shown.index("--constraint EXPR") < shown.index("--version") < shown.index("  gather ")


def complete(words: list[str], shell: str) -> list[str]:
    """Ask as the shell's script does."""
    env = {
        **os.environ,
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_CONDOR_ADVICE_COMPLETE": f"{shell}_complete",
        "CONDOR_CONFIG": "/nowhere/condor_config",
    }
    done = subprocess.run(
        [Path(sys.executable).with_name("condor-advice")],
        env=env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_verbs_and_options_are_completed(shell: str) -> None:
    assert any("gather" in word for word in complete(["condor-advice", "ga"], shell))
    assert any("--json" in word for word in complete(["condor-advice", "--js"], shell))
    assert any("--follow" in word for word in complete(["condor-advice", "gather", "--fo"], shell))
    assert any("--constraint" in word for word in complete(["condor-advice", "1.0", "--c"], shell))


@pytest.mark.parametrize(
    ("shell", "file"), [("bash", "condor-advice.bash"), ("zsh", "_condor-advice")]
)
def test_the_completion_scripts_are_taken_by_their_shells(shell: str, file: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", ROOT / "docs" / "completion" / file], check=True)


def test_bash_offers_what_the_script_finds() -> None:
    script = (
        f"source {ROOT}/docs/completion/condor-advice.bash; COMPREPLY=();"
        "COMP_WORDS=(condor-advice gath); COMP_CWORD=1;"
        "_condor_advice_completion condor-advice; echo ${COMPREPLY[@]}"
    )
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CONDOR_CONFIG": "/nowhere/condor_config",
    }
    done = subprocess.run(
        ["bash", "-c", script], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "gather\n"
