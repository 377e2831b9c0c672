"""The lint says what HTCondor would say, before it does; checked against a real HTCondor."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from condor_advice.advise.presubmit.lint import LINT_RULES, Finding, lint, refused
from condor_advice.advise.presubmit.submit_file import CannotParse, SubmitFile, quantity
from condor_advice.gather.errors import UsageError

pytest.importorskip("htcondor2")

TRANSFER = "should_transfer_files = YES\n"
NO_TRANSFER = "should_transfer_files = NO\n"


@dataclass(frozen=True)
class Fault:
    """A submit file with one fault: the rule that finds it, and what HTCondor does with it."""

    name: str
    text: str
    rule: str
    seen: str  # "refused", "held", "idle", or what the job ad says


FAULTS = (
    Fault(
        "missing executable", f"executable = missing.sh\n{TRANSFER}queue", "executable", "refused"
    ),
    Fault(
        "executable is a directory",
        f"executable = somewhere\n{TRANSFER}queue",
        "executable",
        "held",
    ),
    Fault("empty executable", f"executable = empty.sh\n{TRANSFER}queue", "executable", "refused"),
    Fault("no executable", f"{TRANSFER}queue", "executable", "refused"),
    Fault("no execute bit", f"executable = no_bit.sh\n{NO_TRANSFER}queue", "execute-bit", "held"),
    Fault("DOS line ends", f"executable = dos.sh\n{TRANSFER}queue", "dos-line-ends", "refused"),
    Fault(
        "bad interpreter",
        f"executable = bad_interpreter.sh\n{TRANSFER}queue",
        "interpreter",
        "held",
    ),
    Fault("no #! line", f"executable = no_bang.sh\n{TRANSFER}queue", "interpreter", "held"),
    Fault("byte order mark", f"executable = bom.sh\n{TRANSFER}queue", "interpreter", "held"),
    Fault(
        "missing input file",
        f"executable = good.sh\n{TRANSFER}transfer_input_files = good.sh, gone.dat\nqueue",
        "missing-input",
        "held",
    ),
    Fault(
        "missing standard input",
        f"executable = good.sh\n{TRANSFER}input = gone.txt\nqueue",
        "missing-input",
        "held",
    ),
    Fault(
        "missing item of the queue statement",
        f"executable = good.sh\n{TRANSFER}transfer_input_files = $(f)\n"
        "queue f in (good.sh gone.dat)",
        "missing-input",
        "held",
    ),
    Fault(
        "pattern in the input files",
        f"executable = good.sh\n{TRANSFER}transfer_input_files = *.dat\nqueue",
        "missing-input",
        "held",
    ),
    Fault(
        "missing output directory",
        f"executable = good.sh\n{NO_TRANSFER}output = nowhere/out\nqueue",
        "output-directory",
        "held",
    ),
    Fault(
        "output is a directory",
        f"executable = good.sh\n{TRANSFER}output = somewhere\nqueue",
        "output-directory",
        "held",
    ),
    Fault(
        "missing initialdir",
        f"executable = good.sh\n{TRANSFER}initialdir = nowhere\nqueue",
        "initialdir",
        "refused",
    ),
    Fault(
        "memory without a unit",
        f"executable = good.sh\n{TRANSFER}request_memory = 4\nqueue",
        "units",
        "RequestMemory=4",
    ),
    Fault(
        "disk without a unit",
        f"executable = good.sh\n{TRANSFER}request_disk = 10\nqueue",
        "units",
        "RequestDisk=10",
    ),
    Fault(
        "unknown unit",
        f"executable = good.sh\n{TRANSFER}request_memory = 4 Gigs\nqueue",
        "units",
        "refused",
    ),
    Fault(
        "cores are no number",
        f"executable = good.sh\n{TRANSFER}request_cpus = lots\nqueue",
        "units",
        "idle",
    ),
    Fault(
        "input files without transfer",
        f"executable = good.sh\n{NO_TRANSFER}transfer_input_files = good.sh\nqueue",
        "transfer",
        "refused",
    ),
    Fault(
        "when without transfer",
        f"executable = good.sh\n{NO_TRANSFER}when_to_transfer_output = ON_EXIT\nqueue",
        "transfer",
        "refused",
    ),
    Fault(
        "no such transfer",
        "executable = good.sh\nshould_transfer_files = MAYBE\nqueue",
        "transfer",
        "refused",
    ),
    Fault(
        "transfer that contradicts itself",
        "executable = good.sh\nshould_transfer_files = IF_NEEDED\n"
        "when_to_transfer_output = ON_EXIT_OR_EVICT\nqueue",
        "transfer",
        "refused",
    ),
    Fault(
        "undefined macro", f"executable = $(program)\n{TRANSFER}queue", "undefined-macro", "refused"
    ),
    Fault(
        "no such list", f"executable = good.sh\n{TRANSFER}queue x from gone.txt", "queue", "refused"
    ),
    Fault(
        "text after queue",
        f"executable = good.sh\n{TRANSFER}queue\nqueue 2",
        "text-after-queue",
        "refused",
    ),
    Fault(
        "assignment in requirements",
        f'executable = good.sh\n{TRANSFER}requirements = (Arch = "X86_64")\nqueue',
        "expression",
        "refused",
    ),
    Fault(
        "open quote",
        f'executable = good.sh\n{TRANSFER}arguments = "open\nqueue',
        "expression",
        "refused",
    ),
    Fault("no equals sign", f"executable good.sh\n{TRANSFER}queue", "syntax", "refused"),
)

CLEAN = (
    f"executable = good.sh\n{TRANSFER}output = somewhere/$(Process).out\nqueue 2",
    f"executable = no_bit.sh\n{TRANSFER}queue",  # HTCondor sets the bit
    f"executable = good.sh\narguments = $(x:none) $$(Arch) $(Item)\n{TRANSFER}"
    "transfer_input_files = $(file)\nrequest_memory = 1 GB\nrequest_disk = 2G\n"
    "queue file in (good.sh dos.sh)",
    f"N = 3\nexecutable = good.sh\n{TRANSFER}arguments = $(N) $INT(N) $(Cluster).$(Process)\n"
    'requirements = Arch =?= "X86_64"\n# a comment\nqueue 1\n# after the queue\n',
    f"executable = good.sh\n{TRANSFER}initialdir = somewhere\ninput = ../good.sh\n"
    "request_memory = ifThenElse(NumJobStarts > 1, 512, 256)\nqueue",
    f"executable = good.sh\n{TRANSFER}arguments = $(name) $(size)\nqueue name, size from (\n"
    "a 1\nb 2\n)\n",
    f"executable = /bin/echo\ntransfer_executable = false\n{TRANSFER}queue",
)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of programs, good and bad, where submit files are looked at."""
    monkeypatch.chdir(tmp_path)
    scripts = {
        "good.sh": b"#!/bin/sh\nexit 0\n",
        "no_bit.sh": b"#!/bin/sh\nexit 0\n",
        "dos.sh": b"#!/bin/sh\r\nexit 0\r\n",
        "no_bang.sh": b"exit 0\n",
        "empty.sh": b"",
        "bad_interpreter.sh": b"#!/no/such/interpreter\n",
        "bom.sh": b"\xef\xbb\xbf#!/bin/sh\nexit 0\n",
    }
    for name, content in scripts.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o644 if name == "no_bit.sh" else 0o755)
    (tmp_path / "somewhere").mkdir()
    return tmp_path


def findings(directory: Path, text: str, *arguments: str) -> list[Finding]:
    path = directory / "job.sub"
    path.write_text(text + "\n")
    try:
        return lint(SubmitFile(path, arguments))
    except CannotParse as error:
        return [refused(error)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_is_found_as_an_error_by_its_rule(directory: Path, fault: Fault) -> None:
    found = findings(directory, fault.text)
    assert fault.rule in [one.rule for one in found if one.severity == "error"], found
    assert all(one.remedy and one.text for one in found)
    assert all(one.rule in LINT_RULES for one in found)


@pytest.mark.parametrize("number", range(len(CLEAN)))
def test_clean_files_give_no_finding(directory: Path, number: int) -> None:
    assert findings(directory, CLEAN[number]) == []


@pytest.mark.pool
@pytest.mark.timeout(400)
def test_a_real_htcondor_refuses_or_holds_every_fault_and_runs_clean_files(
    directory: Path, pool: Any
) -> None:
    held: dict[int, str] = {}
    for number, fault in enumerate(FAULTS):
        path = directory / f"fault{number}.sub"
        path.write_text(fault.text + "\n")
        done = pool.run(["condor_submit", "-terse", path.name], cwd=directory, check=False)
        if fault.seen == "refused":
            assert done.returncode != 0, f"{fault.name}: HTCondor takes it: {done.stdout}"
            continue
        assert done.returncode == 0, f"{fault.name}: {done.stderr}"
        cluster = int(done.stdout.split(".")[0])
        if fault.seen == "idle":
            idle = cluster
        elif "=" in fault.seen:
            name, _, value = fault.seen.partition("=")
            [ad] = pool.jobs(f"ClusterId == {cluster}")
            assert str(ad[name]) == value, fault.name
        else:
            held[cluster] = fault.name
    clean = []
    for number, text in enumerate(CLEAN):
        path = directory / f"clean{number}.sub"
        path.write_text(text + "\n")
        done = pool.run(["condor_submit", "-terse", path.name], cwd=directory)
        clean.append(int(done.stdout.split(".")[0]))
    waiting = dict(held)
    deadline = time.monotonic() + 240
    while waiting and time.monotonic() < deadline:
        for ad in pool.jobs("JobStatus == 5"):
            waiting.pop(ad["ClusterId"], None)
        time.sleep(0.5)
    assert not waiting, "taken and not held by HTCondor"
    for cluster in clean:
        while not all(ad["JobStatus"] == 4 for ad in pool.jobs(f"ClusterId == {cluster}")):
            assert time.monotonic() < deadline, pool.jobs(f"ClusterId == {cluster}")
            time.sleep(0.5)
    assert [ad["JobStatus"] for ad in pool.jobs(f"ClusterId == {idle}")] == [1]
    pool.run(["condor_rm", "-all"], check=False)


def test_submit_arguments_count(directory: Path) -> None:
    text = f"executable = $(program)\n{TRANSFER}queue"
    assert findings(directory, text, "program=good.sh") == []
    assert findings(directory, text, "-append", "program = good.sh", "-name", "ap") == []
    submit = SubmitFile(directory / "job.sub", ["-name", "ap", "-spool", "program=x"])
    assert submit.ignored == ["-name", "ap", "-spool"]


def test_missing_output_directory_is_a_warning_when_files_are_transferred(directory: Path) -> None:
    found = findings(directory, f"executable = good.sh\n{TRANSFER}output = nowhere/out\nqueue")
    assert [(one.rule, one.severity) for one in found] == [("output-directory", "warning")]


def test_jobs_that_write_one_file_and_typos_are_warned_about(directory: Path) -> None:
    found = findings(
        directory, f"executable = good.sh\n{TRANSFER}output = out\nreqest_memory = 1 GB\nqueue 3"
    )
    assert sorted((one.rule, one.severity) for one in found) == [
        ("shared-output", "warning"),
        ("typo", "warning"),
    ]


def test_a_macro_with_a_name_like_a_command_is_no_typo(directory: Path) -> None:
    assert (
        findings(
            directory, f"outputs = x\nexecutable = good.sh\n{TRANSFER}arguments = $(outputs)\nqueue"
        )
        == []
    )


def test_the_line_that_htcondor_cannot_read_is_named(directory: Path) -> None:
    [found] = findings(directory, f"executable = good.sh\n{TRANSFER}nonsense here\nqueue")
    assert "line 3" in found.text
    assert "nonsense here" in found.text


def test_queue_statements_mean_what_htcondor_says(directory: Path) -> None:
    (directory / "items.txt").write_text("a 1\nb 2\n")
    cases = {
        "queue": 1,
        "queue 5": 5,
        "queue 2 x in (a b c)": 6,
        "queue x,y from items.txt": 2,
        "queue x matching *.sh": 7,
        "queue x matching *.none": 0,
    }
    for statement, jobs in cases.items():
        path = directory / "job.sub"
        path.write_text(f"executable = good.sh\n{statement}\n")
        submit = SubmitFile(path)
        assert len(submit.items()) * submit.count() == jobs, statement
        assert len(list(submit.procs(1000))) == jobs


def test_quantities_have_htcondors_units() -> None:
    for text, amount in {
        "4": 4.0,
        "2 GB": 2048.0,
        "1.5G": 1536.0,
        "512 KB": 0.5,
        "1T": 1048576.0,
        "100mb": 100.0,
    }.items():
        request = quantity(text, "M", "M")
        assert request is not None
        assert request.amount == pytest.approx(amount), text
    assert quantity("4 Gigs", "M", "M") is None
    expression = quantity("RequestCpus * 1024", "M", "M")
    assert expression is not None
    assert expression.amount is None


def test_a_missing_submit_file_is_wrong_usage(directory: Path) -> None:
    with pytest.raises(UsageError, match="give an existing submit file"):
        SubmitFile(directory / "none.sub")


def test_lint_needs_no_pool_and_no_configuration(directory: Path) -> None:
    import sys

    (directory / "job.sub").write_text("executable = missing.sh\nqueue\n")
    done = subprocess.run(
        [sys.executable, "-m", "condor_advice", "predict", "--lint-only", "job.sub"],
        cwd=directory,
        env={"CONDOR_CONFIG": "/dev/null", "PATH": "/usr/bin:/bin", "HOME": "/"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "missing.sh does not exist" in done.stdout
