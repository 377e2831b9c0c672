"""Scripts in bench/ and tools/ name files of this project that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(path for folder in ("bench", "tools") for path in (ROOT / folder).rglob("*.py"))
FOLDERS = "advise|bench|checkpoint|dag|docs|gather|lab|model|preprocess|tests|tools"
# A path from the root: not part of a longer path, a module's file, or a URL.
PATH = re.compile(rf"(?<![\w./$-])(?:{FOLDERS})/[\w./*-]*[\w*]")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_that_a_script_names_exists(script: Path) -> None:
    tree = ast.parse(script.read_text())
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    named = {path for text in texts for path in PATH.findall(text)}
    assert [path for path in sorted(named) if not list(ROOT.glob(path))] == []
