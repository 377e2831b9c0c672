"""Nothing that strangers write acts on the terminal of who reads an answer, whatever the verb."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from condor_advice.gather.foreign_text import one_line
from condor_advice.lab.pool import Pool

FORGED = "RELEASE  2.0: all is well"
EVIL = f"\x1b]52;c;cm0gLXJm\x07\x1b[2J\x1b[1;1H\x1b[32m\x9b8m\u202e\u200b\u2066\x08\x7f\r{FORGED}"
CLEARED = b"\x1b[2J\x1b[1;1H"
# What the command itself uses: colours, and the line ends that the terminal makes of line feeds.
OWN = re.compile(rb"\x1b\[(?:0|1|(?:1;)?3[1-6])m|\r\n")
STRANGERS_COLOUR = b"\x1b[32m"


def run_in_terminal(argv: list[str], env: dict[str, str], cwd: Path, watch: bool = False) -> bytes:
    child = pexpect.spawn(
        argv[0], argv[1:], env=env, cwd=str(cwd), dimensions=(60, 100), timeout=90
    )  # fmt: skip
    if watch:
        child.expect_exact(b"held job")
        shown = bytes(child.before + child.after)
        child.close(force=True)
        assert shown.startswith(CLEARED)
        return shown[len(CLEARED) :]
    child.expect(pexpect.EOF)
    child.close()
    return bytes(child.before)


def check(shown: bytes) -> None:
    text = OWN.sub(b"", shown).decode("utf-8")
    harmful = [character for character in text if not character.isprintable()]
    assert harmful == [], shown
    assert STRANGERS_COLOUR not in shown
    for line in shown.split(b"\r\n"):
        assert not OWN.sub(b"", line).startswith(FORGED.encode()), shown


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm", "LANG": "C.UTF-8",
        "XDG_DATA_HOME": str(tmp_path / "data"), "XDG_STATE_HOME": str(tmp_path / "state"),
    }  # fmt: skip


@pytest.fixture
def evil_log(event_log: Callable[[str], Path], tmp_path: Path) -> Path:
    """A real log with other words in its hold reason, under a name that is no better."""
    text = event_log("held_by_owner.log").read_text()
    changed = text.replace("via condor_hold", f"via {EVIL} condor_hold")
    assert changed != text
    path = tmp_path / f"a{EVIL.replace('/', '')}\n{FORGED}.log"
    path.write_text(changed)
    return path


def test_logs_and_stores_show_nothing_that_acts(
    evil_log: Path, env: dict[str, str], tmp_path: Path
) -> None:
    advice = [sys.executable, "-m", "condor_advice"]
    store = str(tmp_path / f"store{EVIL.replace('/', '')}")
    shown = []
    for arguments in (
        ["--log", str(evil_log)],
        ["--log", str(evil_log), "--explain"],
        ["--log", str(evil_log), "--json"],
        ["--log", str(evil_log) + "x"],
        ["--log", str(evil_log), "77.0"],
        ["gather", "--store", store, str(evil_log)],
        ["gather", "--store", store, str(evil_log) + "x"],
        ["status", "--store", store],
        ["status", "--store", store, "--json"],
        ["--store", store, "14.0"],
        ["--store", store, "--all", "--explain"],
        ["history", "--store", store],
        ["history", "--store", store + "x"],
        [f"14.0{EVIL}"],
        ["--no-such-option" + EVIL],
    ):
        shown.append(run_in_terminal([*advice, *arguments], env, tmp_path))
        check(shown[-1])
    assert b"\\x1b]52" in shown[0]
    shown = [run_in_terminal([*advice, "--log", str(evil_log), "--watch"], env, tmp_path, True)]
    check(shown[0])


def test_a_submit_file_shows_nothing_that_acts(env: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("htcondor2")
    name = f"job{EVIL.replace('/', '')}.sub"
    values = (
        "executable = no/{0}\narguments = {0}\ninput = in{0}\ninitialdir = dir{0}\noutput = o{0}\n"
        "transfer_input_files = a{0},b*{0}\nrequest_memory = 2 {0}\nrequest_cpus = {0}\n"
        "exeutable = {0}\nbatch_name = {0}\nlog = $(none{0}) $(nothing)\nqueue\ntext {0}\n"
    )
    for text in (
        values.format(EVIL),
        f"executable = /bin/true\nno statement {EVIL}\nqueue\n",
        f"include command : x {EVIL}\nqueue\n",
        f"warning : {EVIL}\nerror : {EVIL}\nqueue\n",
        f"executable = /bin/true\nqueue x from none{EVIL}\n",
    ):
        (tmp_path / name).write_text(text)
        command = [sys.executable, "-m", "condor_advice", "predict", name]
        shown = run_in_terminal(command, env, tmp_path)
        check(shown)
        assert one_line(EVIL)[:6].encode() in shown or b"error" in shown
        check(run_in_terminal([*command, "--json"], env, tmp_path))


def test_jobs_of_a_pool_show_nothing_that_acts(
    pool: Pool, env: dict[str, str], tmp_path: Path
) -> None:
    text = f"executable = /bin/sleep\narguments = 0\nhold = true\nlog = {tmp_path}/log\nqueue 6\n"
    cluster = pool.submit(text, cwd=tmp_path)
    literal = EVIL.replace("\r", "\\r") + f"\\n{FORGED}\\n"
    pool.run(["condor_release", f"{cluster}.0"])
    pool.run(["condor_hold", "-reason", f"{EVIL}\n{FORGED}", f"{cluster}.0"], check=False)

    def edit(proc: int, **values: str) -> None:
        for name, value in values.items():
            pool.run(["condor_qedit", f"{cluster}.{proc}", name, value])

    every = (
        "HoldReason", "JobBatchName", "Cmd", "Args", "Out", "Err", "In", "TransferInput",
        "LastRemoteHost", "AcctGroupUser", "JobDurationCategory", "DAGNodeName", "PeriodicHold",
        "AdviceVerdict",
    )  # fmt: skip
    edit(1, **dict.fromkeys(every, f'"{literal}"'))
    missing = tmp_path / f"no{EVIL.replace('/', '')}"
    script = tmp_path / f"run{EVIL.replace('/', '')}.sh"
    script.write_text("#!/bin/sh\r\ntrue\n")
    name = str(script).replace("\r", "\\r")
    path = str(missing).replace("\r", "\\r")
    edit(2, HoldReasonCode="13", HoldReasonSubCode="2", HoldReason=(
        f'"Transfer input files failure at access point x. Details: reading from file {path}: '
        '(errno 2) No such file or directory"'), TransferInput=f'"{path}"')  # fmt: skip
    edit(3, HoldReasonCode="6", Cmd=f'"{name}"', HoldReason=(
        f'"Error from slot1@x: Failed to execute \'{name}\': (errno=2: No file)"'))  # fmt: skip
    edit(4, HoldReasonCode="3", HoldReason=f'"{literal}"', OnExitHold=f'"{literal}" == Args')
    edit(5, HoldReasonCode="14", HoldReason=f'"Cannot access initial working directory {path}: x"')
    advice = [sys.executable, "-m", "condor_advice"]
    environment = pool.environ | env
    for arguments in (
        [str(cluster)],
        [str(cluster), "--explain"],
        [str(cluster), "--json"],
        [str(cluster), "--hold", "2"],
        ["--all"],
        ["--all", "--apply", "--yes", "--fix"],
        ["history"],
        ["annotate"],
        ["annotate", "--json"],
        ["gather", str(pool.event_log)],
        ["status"],
        ["--all"],
        ["--constraint", f'JobBatchName == "{EVIL}"'],
        ["--user", EVIL],
    ):
        shown = run_in_terminal(pool.command([*advice, *arguments]), environment, tmp_path)
        check(shown)
        assert b"Traceback" not in shown
    watch = run_in_terminal(
        pool.command([*advice, str(cluster), "--watch"]), environment, tmp_path, watch=True
    )
    check(watch)
    assert b"\\x1b]52" in watch
    pool.run(["condor_rm", str(cluster)])
