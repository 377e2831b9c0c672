"""The recipes of docs/checkpoint.md, as files that can be run and submitted."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/checkpoint.md").read_text()
BLOCK = re.compile(r"```(python|sh|condor)\n(.*?)```", re.DOTALL)


class Recipe(NamedTuple):
    program: str  # name of the file
    text: str
    submit: dict[str, str]


def documented():
    """Return the recipes by the name of their program; later ones change lines of the first."""
    recipes, base, program = {}, {}, ("", "")
    for language, text in BLOCK.findall(PAGE):
        if language == "condor":
            lines = re.findall(r"^(\w+) *= (.*)$", text, re.MULTILINE)
            base = base or dict(lines)
            name, source = program
            recipes[name] = Recipe(name, source, {**base, **dict(lines)})
        else:
            program = (text.split()[1] if language == "sh" else "program.py", text)
    return recipes


def longer(recipe, steps, log):
    """Return the program with more and slower steps, each of them a line in a log."""
    text = recipe.text.replace("30", str(steps)).replace("0.01", "0.1")
    if recipe.program.endswith(".py"):
        line = f"step += 1\n        print(step, file=open({str(log)!r}, 'a'))\n"
        return text.replace("step += 1\n", line)
    return text.replace("sleep 0.1\n", f"sleep 0.1; echo $step >> {log}\n")


def write_recipe(recipe, directory, steps, step_log, **settings):
    """Write all files of a recipe, and return its submit description."""
    (directory / recipe.program).write_text(longer(recipe, steps, step_log))
    subprocess.run(
        [sys.executable, ROOT / "tools/make_pyz.py", directory / "condor_checkpoint.pyz"],
        check=True,
    )
    lines = {**recipe.submit, **settings}
    return "\n".join(f"{name} = {value}" for name, value in lines.items()) + "\nqueue\n"
