"""A submit description that would lose checkpoints is named before the job runs."""

import subprocess
import sys

import pytest
from recipes import documented, write_recipe

from condor_checkpoint.check import parse_submit

RECIPES = documented()


def check(path, *options):
    return subprocess.run(
        [sys.executable, "-m", "condor_checkpoint", "check", str(path), *options],
        capture_output=True,
        text=True,
        check=False,
    )


def written(tmp_path, name="program.py", **settings):
    """Write a recipe of the page with some settings changed; None removes one."""
    text = write_recipe(RECIPES[name], tmp_path, 30, tmp_path / "log", **settings)
    path = tmp_path / "job.sub"
    path.write_text("\n".join(line for line in text.splitlines() if not line.endswith("= None")))
    return path


def test_the_page_has_three_recipes():
    assert [*RECIPES] == ["program.py", "simulate.sh", "crunch.sh"]


@pytest.mark.parametrize("name", [*RECIPES])
def test_the_recipes_of_the_page_have_no_problem(name, tmp_path):
    done = check(written(tmp_path, name))
    assert done.stdout.endswith("job.sub: checkpoints survive a hold and an eviction\n")
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"when_to_transfer_output": None}, "an eviction loses the checkpoint; add when_to"),
        ({"when_to_transfer_output": "ON_EXIT"}, "an eviction loses the checkpoint; add when_to"),
        ({"transfer_output_files": None}, "only if transfer_output_files names it"),
        ({"transfer_output_files": "checkpoints, out.txt"}, "transfer_output_files names out.txt"),
        ({"transfer_checkpoint_files": None}, "a hold loses the checkpoint"),
        ({"checkpoint_exit_code": None}, "a hold loses the checkpoint"),
        ({"transfer_checkpoint_files": "checkpoints, x"}, "transfer_checkpoint_files names x"),
        ({"transfer_input_files": "program.py"}, "transfer_input_files does not name it"),
        ({"kill_sig": "SIGINT"}, "kill_sig = SIGINT"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_problem_is_named(settings, problem, tmp_path):
    done = check(written(tmp_path, **settings))
    assert done.returncode == 1
    [line] = done.stdout.splitlines()
    assert problem in line


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("cp -r work $CONDOR_CHECKPOINT_PATH", "cp -r work checkpoints"), "into its last copy"),
        (("--exit-after auto ", ""), "add --exit-after auto"),
        (("--directory checkpoints", "--directory state"), "transfers state only if"),
    ],
    ids=["nested copy", "no exit code", "another directory"],
)
def test_a_problem_in_the_arguments_of_the_wrapper_is_named(change, problem, tmp_path):
    arguments = RECIPES["crunch.sh"].submit["arguments"]
    done = check(written(tmp_path, "crunch.sh", arguments=arguments.replace(*change)))
    assert done.returncode == 1
    assert problem in done.stdout


def test_a_program_that_never_exits_with_the_code_is_named(tmp_path):
    path = written(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(program.read_text().replace(', exit_after="auto"', ""))
    done = check(path)
    assert done.returncode == 1
    assert 'use Checkpoint(..., exit_after="auto")' in done.stdout


def test_an_output_that_the_program_creates_at_its_start_is_no_problem(tmp_path):
    path = written(tmp_path, transfer_output_files="checkpoints/, results, checkpoints/result.txt")
    assert check(path).returncode == 1
    assert check(path, "--exists-at-start", "results/").returncode == 0


def test_on_a_shared_file_system_nothing_is_transferred(tmp_path):
    path = written(tmp_path, should_transfer_files="NO", when_to_transfer_output=None)
    assert check(path).returncode == 0


def test_macros_continued_lines_and_later_queues_are_understood():
    first, second = parse_submit(
        "D = checkpoints\n# D = x\nTransfer_Output_Files = $(d), \\\n  more\nQUEUE 3\nd=y\nqueue\n"
    )
    assert first["transfer_output_files"].split() == ["checkpoints,", "more"]
    assert second["transfer_output_files"].split() == ["y,", "more"]


def test_a_file_that_cannot_be_checked_is_an_error(tmp_path):
    done = check(tmp_path / "missing.sub")
    assert (done.returncode, "cannot read the submit description" in done.stderr) == (1, True)
    (tmp_path / "empty.sub").write_text("executable = x\n")
    assert "no queue statement" in check(tmp_path / "empty.sub").stderr
