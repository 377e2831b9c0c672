"""Checking a stranger's submit file runs nothing that the file names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from condor_advice.advise.cli import cli
from condor_advice.advise.presubmit.submit_file import CannotParse, SubmitFile
from condor_advice.advise.presubmit.submit_lines import RunsCommand
from condor_advice.gather.errors import UsageError

pytest.importorskip("htcondor2")

RUNS = "/usr/bin/touch planted"

# Each runs a program when HTCondor reads the description or its items.
COMMANDS = {
    "include command": f"include command : {RUNS}\nqueue\n",
    "case and blanks": f"\t InClUdE \t COMMAND:{RUNS}\nqueue\n",
    "at sign": f"@include command : {RUNS}\nqueue\n",
    "output": f"include output : {RUNS}\nqueue\n",
    "pipe": f"include : {RUNS} |\nqueue\n",
    "pipe without blank": f"include :{RUNS}|\nqueue\n",
    "if it exists": f"include ifexist : {RUNS} |\nqueue\n",
    "into a file": f"include command into cached : {RUNS}\nqueue\n",
    "continuation": f"include \\\n command : {RUNS}\nqueue\n",
    "continuation in a word": f"incl\\\nude com\\\nmand : {RUNS}\nqueue\n",
    "commented continuation": f"include \\\n # why \\\n command : {RUNS}\nqueue\n",
    "after a comment that seems to continue": f"# why \\\ninclude command : {RUNS}\nqueue\n",
    "old comments": f"#opt:oldcomment\n# why\ninclude command : {RUNS}\nqueue\n",
    "vertical tab": f"\vinclude command : {RUNS}\nqueue\n",
    "form feed": f"\finclude\fcommand : {RUNS}\nqueue\n",
    "carriage return": f"include command : {RUNS}\r\nqueue\r\n",
    "macro": f"what = {RUNS} |\ninclude : $(what)\nqueue\n",
    "macro of a macro": f"a = {RUNS}\nb = $(a) |\ninclude : $(b)\nqueue\n",
    "true condition": f"if true\n  include command : {RUNS}\nendif\nqueue\n",
    "colon in a condition": f"if true\n  :include command : {RUNS}\nendif\nqueue\n",
    "macro in a condition": f"what = {RUNS} |\nif true\ninclude : $(what)\nendif\nqueue\n",
    "after a value of several lines": f"x @=end\n y\n@end\ninclude command : {RUNS}\nqueue\n",
    "included file": "include : more.inc\nqueue\n",
    "included by an included file": "include : chain.inc\nqueue\n",
    "included by a macro": "name = more\ninclude : $(name).inc\nqueue\n",
    "queue from a program": f"queue x from {RUNS} |\n",
    "queue without blank": f"queue x from {RUNS}|\n",
    "queue with case": f"QUEUE 2 x, y FROM [0:2] {RUNS} |\n",
    "queue with a continuation": f"queue x \\\n from \\\n {RUNS} |\n",
    "queue with a macro": f"what = {RUNS} |\nqueue x from $(what)\n",
    "queue with a macro for all of it": f"what = x from {RUNS} |\nqueue $(what)\n",
    "queue with a pipe from a number": f"queue x from {RUNS} $INT(124,%c)\n",
    "queue with a random choice": f"queue x from {RUNS} $RANDOM_CHOICE(|,|)\n",
    "not a queue statement": f"queue.x = (\ninclude command : {RUNS}\n)\nqueue\n",
    "value that becomes statements": (
        f"v @=end\n1\ninclude command : {RUNS}\n@end\nqueue.x = $(v)\nqueue\n"
    ),
}  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "more.inc").write_text(f"include command : {RUNS}\n")
    (tmp_path / "chain.inc").write_text("a = 1\nInclude : more.inc\n")
    (tmp_path / "plain.inc").write_text("request_memory = 2 GB\n")
    (tmp_path / "items").write_text("a\nb\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(directory: Path, text: str) -> Path:
    path = directory / "job.sub"
    path.write_bytes(b"executable = /bin/true\n" + text.encode())
    return path


@pytest.mark.parametrize("text", COMMANDS.values(), ids=COMMANDS)
def test_a_program_named_by_a_submit_file_is_not_run(directory: Path, text: str) -> None:
    path = written(directory, text)
    try:
        submit = SubmitFile(path)
        list(submit.procs(10))
    except (RunsCommand, CannotParse):
        pass
    assert not (directory / "planted").exists()
    assert not (directory / "cached").exists()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("include command", "job.sub:2: 'include command : /usr/bin/touch planted'"),
        ("continuation", "job.sub:2: 'include command : /usr/bin/touch planted'"),
        ("included file", "more.inc:1: 'include command : /usr/bin/touch planted'"),
        ("included by an included file", "more.inc:1:"),
        ("queue from a program", "job.sub:2: 'queue x from /usr/bin/touch planted |'"),
        ("queue with a macro", "job.sub:3: 'queue x from /usr/bin/touch planted |'"),
    ],
)
def test_the_refusal_names_the_line_and_the_option(directory: Path, name: str, line: str) -> None:
    with pytest.raises(RunsCommand) as refusal:
        SubmitFile(written(directory, COMMANDS[name]))
    assert line in str(refusal.value)
    assert "--allow-commands" in str(refusal.value)


def test_predict_refuses_and_says_why(directory: Path) -> None:
    path = written(directory, COMMANDS["include command"])
    done = subprocess.run(
        [sys.executable, "-m", "condor_advice", "predict", path],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "job.sub:2" in done.stderr
    assert "--allow-commands" in done.stderr
    assert not (directory / "planted").exists()


@pytest.mark.parametrize("name", ["include command", "queue from a program"])
def test_the_caller_may_allow_commands(directory: Path, name: str) -> None:
    path = written(directory, COMMANDS[name])
    CliRunner().invoke(cli, ["predict", "--lint-only", "--allow-commands", str(path)])
    assert (directory / "planted").exists()


def test_appended_commands_are_refused_as_well(directory: Path) -> None:
    with pytest.raises(RunsCommand):
        SubmitFile(written(directory, "queue\n"), ["-append", f"include command : {RUNS}"])
    assert not (directory / "planted").exists()


def test_plain_includes_and_item_files_still_work(directory: Path) -> None:
    text = "f = items\ninclude : plain.inc\ninclude ifexist : none.inc\nqueue x from $(f)\n"
    submit = SubmitFile(written(directory, text))
    assert submit.raw["request_memory"] == "2 GB"
    assert [proc.get("request_memory") for proc in submit.procs(10)] == ["2 GB", "2 GB"]
    assert submit.items() == [{"x": "a"}, {"x": "b"}]


def test_a_missing_include_is_reported_only_where_it_is_reached(directory: Path) -> None:
    with pytest.raises(CannotParse, match=r"job\.sub:2"):
        SubmitFile(written(directory, "include : none.inc\nqueue\n"))
    SubmitFile(written(directory, "if false\ninclude : none.inc\nendif\nqueue\n"))


def test_continuations_and_values_of_several_lines_are_kept(directory: Path) -> None:
    text = "arguments = a \\\n  b \\\n # why \\\n c\nnote @=end\n one\n two\n@end\nqueue\n"
    submit = SubmitFile(written(directory, text))
    assert submit.raw["arguments"] == "a b c"
    assert submit.raw["note"] == "one\ntwo"


@pytest.mark.parametrize("where", ["include : pipe\nqueue\n", "queue x from pipe\n"])
def test_a_fifo_does_not_hang_the_check(directory: Path, where: str) -> None:
    os.mkfifo(directory / "pipe")
    with pytest.raises(CannotParse):
        SubmitFile(written(directory, where))


def test_a_submit_file_that_is_a_fifo_is_refused(directory: Path) -> None:
    os.mkfifo(directory / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        SubmitFile(directory / "pipe")


def test_an_executable_that_is_a_fifo_is_a_finding(directory: Path) -> None:
    os.mkfifo(directory / "pipe")
    path = directory / "job.sub"
    path.write_text("executable = pipe\nqueue\n")
    result = CliRunner().invoke(cli, ["predict", "--lint-only", str(path)])
    assert "pipe: not a regular file" in result.output


def test_includes_that_never_end_are_refused(directory: Path) -> None:
    (directory / "self.inc").write_text("include : self.inc\ninclude : self.inc\n")
    with pytest.raises(Exception, match="too many nested include"):
        SubmitFile(written(directory, "include : self.inc\nqueue\n"))
