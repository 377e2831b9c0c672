"""What the documentation shows works."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/checkpoint.md").read_text()


def test_the_example_program_runs_and_resumes(tmp_path):
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    # As if it had been cut off after a save at step 20.
    program = program.replace("step += 1\n", "step += 1\n        print(step)\n", 1)
    first = program.replace("while step < 30:", "while step < 20:").replace(
        "with checkpoint:", "with checkpoint:\n    checkpoint.request()", 1
    )
    for text in (first, program):
        done = subprocess.run(
            [sys.executable, "-W", "error::SyntaxWarning", "-c", text],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "2"  # resumed after the save at step 1
    assert done.stdout.splitlines()[-2:] == ["30", f"result {sum(n * n for n in range(31))}"]


def test_every_option_that_is_shown_exists():
    for verb in ("run", "record", "simulate"):
        usage = subprocess.run(
            [sys.executable, "-m", "condor_checkpoint", verb, "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for line in re.findall(rf"condor[-_]checkpoint(?:\.pyz)? {verb} (.*)", PAGE):
            options = line.partition(" -- ")[0]
            for option in re.findall(r"--[a-z-]+", options):
                assert option in usage, (verb, option)


def test_the_results_page_is_the_one_that_was_written():
    results = (ROOT / "docs/checkpoint-results.md").read_text()
    assert "Written by `bench/reports/checkpoint/results.py`" in results
    assert re.search(r"Measured on \d{4}-\d{2}-\d{2}\.", results)
