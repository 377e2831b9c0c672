"""Find faults of submit files before HTCondor does, hours later.

With an *error*, condor_submit refuses the file, or the job is held or cannot do its work; each
was seen on a real pool. A *warning* may be intended.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from condor_advice.advise.presubmit.submit_file import CannotParse, Proc, SubmitFile, quantity
from condor_advice.gather.regular import read_start

MAX_PROCS = 1000
SMALLEST_MEMORY_MB = 32.0
SMALLEST_DISK_MB = 1.0
CONTAINER_UNIVERSES = ("docker", "container", "vm", "grid")
EXPRESSIONS = (
    "requirements",
    "rank",
    "periodic_hold",
    "periodic_release",
    "periodic_remove",
    "on_exit_hold",
    "on_exit_remove",
    "request_cpus",
    "request_gpus",
    "allowed_execute_duration",
    "allowed_job_duration",
    "priority",
    "max_retries",
    "retry_until",
    "success_exit_code",
)
SUBMIT_COMMANDS = (
    "accounting_group",
    "accounting_group_user",
    "allowed_execute_duration",
    "allowed_job_duration",
    "arguments",
    "batch_name",
    "batch_project",
    "checkpoint_exit_code",
    "checkpoint_destination",
    "concurrency_limits",
    "container_image",
    "container_target_dir",
    "copy_to_spool",
    "coresize",
    "cron_day_of_month",
    "cron_day_of_week",
    "cron_hour",
    "cron_minute",
    "cron_month",
    "cron_prep_time",
    "cron_window",
    "cuda_version",
    "deferral_time",
    "description",
    "docker_image",
    "docker_network_type",
    "dont_encrypt_input_files",
    "encrypt_execute_directory",
    "encrypt_input_files",
    "encrypt_output_files",
    "env",
    "environment",
    "error",
    "executable",
    "getenv",
    "gpus_minimum_memory",
    "gpus_minimum_capability",
    "gpus_minimum_runtime",
    "grid_resource",
    "hold",
    "hold_kill_sig",
    "image_size",
    "initialdir",
    "input",
    "job_ad_information_attrs",
    "job_lease_duration",
    "job_machine_attrs",
    "keep_claim_idle",
    "kill_sig",
    "kill_sig_timeout",
    "leave_in_queue",
    "load_profile",
    "local_files",
    "log",
    "log_xml",
    "machine_count",
    "manifest",
    "max_idle",
    "max_job_retirement_time",
    "max_materialize",
    "max_retries",
    "max_transfer_input_mb",
    "max_transfer_output_mb",
    "next_job_start_delay",
    "nice_user",
    "noop_job",
    "notification",
    "notify_user",
    "on_exit_hold",
    "on_exit_hold_reason",
    "on_exit_hold_subcode",
    "on_exit_remove",
    "output",
    "output_destination",
    "periodic_hold",
    "periodic_hold_reason",
    "periodic_hold_subcode",
    "periodic_release",
    "periodic_remove",
    "periodic_vacate",
    "preserve_relative_paths",
    "preserve_relative_executable",
    "priority",
    "rank",
    "remote_initialdir",
    "remove_kill_sig",
    "request_cpus",
    "request_disk",
    "request_gpus",
    "request_memory",
    "require_gpus",
    "requirements",
    "retry_request_disk",
    "retry_request_memory",
    "retry_request_memory_increase",
    "retry_request_memory_max",
    "retry_until",
    "run_as_owner",
    "shell",
    "should_transfer_files",
    "skip_filechecks",
    "stack_size",
    "starter_debug",
    "starter_log",
    "stream_error",
    "stream_input",
    "stream_output",
    "success_exit_code",
    "suspend_job_at_exec",
    "tool_daemon_args",
    "tool_daemon_cmd",
    "transfer_checkpoint_files",
    "transfer_container",
    "transfer_error",
    "transfer_executable",
    "transfer_input",
    "transfer_input_files",
    "transfer_output",
    "transfer_output_files",
    "transfer_output_remaps",
    "transfer_plugins",
    "ulog_execute_attrs",
    "universe",
    "use_oauth_services",
    "use_scitokens",
    "use_x509userproxy",
    "want_graceful_removal",
    "want_name_tag",
    "when_to_transfer_output",
    "x509userproxy",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: rule, severity, submit command, and remedy."""

    rule: str
    severity: str  # "error" or "warning"
    command: str
    text: str
    remedy: str
    proc: int | None = None


def lint(submit: SubmitFile) -> list[Finding]:
    """Return every finding, each once, errors first."""
    found = [*_whole_file(submit)]
    try:
        procs = list(submit.procs(MAX_PROCS))
    except CannotParse as error:
        found.append(
            Finding(
                "queue",
                "error",
                "queue",
                error.detail or str(error),
                "correct the queue statement, or create the file it reads",
            )
        )
        procs = []
    else:
        if not procs:
            found.append(
                Finding(
                    "queue",
                    "warning",
                    "queue",
                    "the queue statement creates no jobs",
                    "check the pattern or the list of items",
                )
            )
    for proc in procs:
        for check in CHECKS:
            found += check(proc)
    found += _same_output(procs)
    distinct: dict[tuple[str, str, str], Finding] = {}
    for finding in found:
        distinct.setdefault((finding.rule, finding.command, finding.text), finding)
    return sorted(distinct.values(), key=lambda one: one.severity != "error")


def refused(error: CannotParse) -> Finding:
    """Return the finding for a file that HTCondor's parser cannot read."""
    line = f"line {error.line}: " if error.line else ""
    return Finding(
        "syntax",
        "error",
        "",
        f"{line}HTCondor cannot read {error.text!r}",
        "a line is `command = value`, a comment, or the queue statement",
    )


def _whole_file(submit: SubmitFile) -> Iterator[Finding]:
    for command, macro in submit.undefined_macros():
        yield Finding(
            "undefined-macro",
            "error",
            command,
            f"$({macro}) is not defined and expands to nothing",
            f"define {macro} = ..., name it in the queue statement, or write $({macro}:default)",
        )
    for number, line in submit.after_queue[:1]:
        yield Finding(
            "text-after-queue",
            "error",
            "queue",
            f"line {number} follows the queue statement: {line.strip()}",
            "move it above; recent HTCondor allows one queue statement, as the last line",
        )
    used = set(re.findall(r"\$\w*\(\s*([\w.]+)", submit.text.lower()))
    for command in submit.raw:
        if (
            command in SUBMIT_COMMANDS
            or command in used
            or "." in command
            or command.startswith("+")
        ):
            continue
        near = difflib.get_close_matches(command, SUBMIT_COMMANDS, n=1, cutoff=0.85)
        if near:
            yield Finding(
                "typo",
                "warning",
                command,
                f"{command} is not a submit command; {near[0]} is",
                f"write {near[0]}",
            )


def _executable(proc: Proc) -> Iterator[Finding]:
    name = proc.get("executable")
    if proc.get("universe").lower() in CONTAINER_UNIVERSES or proc.get("docker_image"):
        return
    if not name:
        if not proc.get("shell"):
            yield _error(
                proc,
                "executable",
                "executable",
                "there is no executable",
                "add executable = PROGRAM",
            )
        return
    if "$$(" in name or not proc.flag("transfer_executable", True):
        return  # it is on the execution point, which we cannot check
    # condor_submit looks for the executable in its working directory, not in initialdir.
    path = Path(name)
    if not path.exists():
        yield _error(
            proc,
            "executable",
            "executable",
            f"{name} does not exist",
            "correct the path; it is relative to where condor_submit runs",
        )
    elif path.is_dir():
        yield _error(
            proc, "executable", "executable", f"{name} is a directory", "name the program in it"
        )
    else:
        yield from _program(proc, path, name)


def _program(proc: Proc, path: Path, name: str) -> Iterator[Finding]:
    try:
        start = read_start(path, 4096)
    except OSError as error:
        yield _error(
            proc,
            "executable",
            "executable",
            f"{name}: {error.strerror}",
            "make it readable for you",
        )
        return
    if proc.get("should_transfer_files").upper() == "NO" and not os.access(path, os.X_OK):
        # With file transfer HTCondor sets the bit on the copy.
        yield _error(
            proc, "execute-bit", "executable", f"{name} is not executable", f"chmod +x {name}"
        )
    if not start:
        yield _error(proc, "executable", "executable", f"{name} is empty", "write the program")
    elif start.startswith(b"#!"):
        yield from _interpreter(proc, start.split(b"\n", 1)[0], name)
    elif start.startswith(b"\xef\xbb\xbf"):
        yield _error(
            proc,
            "interpreter",
            "executable",
            f"{name} starts with a byte order mark, which hides its #! line",
            f"sed -i '1s/^\\xEF\\xBB\\xBF//' {name}",
        )
    elif b"\0" not in start:
        yield _error(
            proc,
            "interpreter",
            "executable",
            f"{name} is a script without a #! line",
            "make `#!/bin/sh` (or another interpreter) its first line",
        )


def _interpreter(proc: Proc, line: bytes, name: str) -> Iterator[Finding]:
    if line.endswith(b"\r"):
        yield _error(
            proc, "dos-line-ends", "executable", f"{name} has DOS line ends", f"dos2unix {name}"
        )
        return
    words = line[2:].decode("utf-8", "replace").split()
    if not words or not words[0].startswith("/"):
        yield _error(
            proc,
            "interpreter",
            "executable",
            f"{name}: {line.decode('utf-8', 'replace')!r} names no absolute path",
            "write #!/bin/sh or #!/usr/bin/env python3",
        )
    elif proc.get("container_image"):
        return  # the interpreter is the image's
    elif not Path(words[0]).exists():
        yield _error(
            proc,
            "interpreter",
            "executable",
            f"{name}: the interpreter {words[0]} does not exist on this machine",
            "correct the #! line; if the execution points have it, ignore this rule",
        )
    elif (
        Path(words[0]).name == "env"
        and len(words) > 1
        and not words[1].startswith("-")
        and ("=" not in words[1] and shutil.which(words[1]) is None)
    ):
        yield Finding(
            "interpreter",
            "warning",
            "executable",
            f"{name}: env does not find {words[1]} on this machine",
            "make sure the execution points have it",
            proc.number,
        )


def _inputs(proc: Proc) -> Iterator[Finding]:
    directory = _initialdir(proc)
    files = [("input", proc.get("input"))]
    if proc.get("should_transfer_files").upper() != "NO":
        files += [
            (command, name.strip())
            for command in ("transfer_input_files", "transfer_input")
            for name in proc.get(command).split(",")
            if command == "transfer_input_files"
        ]
    for command, name in files:
        if not name or "://" in name or "$$(" in name or name == "/dev/null":
            continue
        if command == "transfer_input_files" and "*" in name:
            yield _error(
                proc,
                "missing-input",
                command,
                f"{name}: HTCondor does not expand patterns here",
                "list the files, or name their directory",
            )
        elif not (directory / name).exists():
            yield _error(
                proc,
                "missing-input",
                command,
                f"{name} does not exist in {directory}",
                "correct the path; it is relative to initialdir",
            )


def _directories(proc: Proc) -> Iterator[Finding]:
    directory = _initialdir(proc)
    if not directory.is_dir():
        yield _error(
            proc,
            "initialdir",
            "initialdir",
            f"{directory} is not a directory",
            f"mkdir -p {directory}",
        )
        return
    for command in ("output", "error"):
        name = proc.get(command)
        if not name or "$$(" in name or name.startswith("/dev/"):
            continue
        path = directory / name
        if path.is_dir():
            yield _error(
                proc, "output-directory", command, f"{name} is a directory", "name a file in it"
            )
        elif path.parent.exists() and not path.parent.is_dir():
            yield _error(
                proc,
                "output-directory",
                command,
                f"{path.parent} is not a directory",
                "choose another path",
            )
        elif not path.parent.exists():
            # Recent versions create the directory when files are transferred. Without file
            # transfer, and in older versions, the job is held.
            always = proc.get("should_transfer_files").upper() == "YES"
            yield Finding(
                "output-directory",
                "warning" if always else "error",
                command,
                f"the directory {path.parent} does not exist",
                f"mkdir -p {path.parent}",
                proc.number,
            )
        elif not os.access(path.parent, os.W_OK):
            yield _error(
                proc,
                "output-directory",
                command,
                f"{path.parent} is not writable",
                "choose another directory",
            )


def _sizes(proc: Proc) -> Iterator[Finding]:
    for command, plain, least in (
        ("request_memory", "M", SMALLEST_MEMORY_MB),
        ("request_disk", "K", SMALLEST_DISK_MB),
    ):
        text = proc.get(command)
        if not text:
            continue
        request = quantity(text, plain, "M")
        if request is None:
            yield _error(
                proc,
                "units",
                command,
                f"{text} has a unit that HTCondor does not know",
                "use KB, MB, GB or TB",
            )
        elif request.amount is not None and request.amount < least:
            size = {"M": "MB", "K": "KB"}[plain]
            yield _error(
                proc,
                "units",
                command,
                f"{text} means {request.amount:.3g} MB"
                if request.has_unit
                else f"{text} without a unit means {text} {size}",
                f"write {command} = {text} GB if you mean gigabytes"
                if not request.has_unit
                else f"raise {command}",
            )
        elif request.amount is None and re.fullmatch(r"[A-Za-z_]\w*", text):
            yield _error(
                proc,
                "units",
                command,
                f"{text} is not a number",
                f"write a number with a unit, such as {command} = 2 GB",
            )
    for command in ("request_cpus", "request_gpus"):
        text = proc.get(command)
        if re.fullmatch(r"[A-Za-z_]\w*", text) and text.lower() not in ("undefined", "auto"):
            yield _error(
                proc,
                "units",
                command,
                f"{text} is not a number, so no execution point matches",
                f"write {command} = 1",
            )


def _transfer(proc: Proc) -> Iterator[Finding]:
    should = proc.get("should_transfer_files").upper()
    when = proc.get("when_to_transfer_output").upper()
    if should and should not in ("YES", "NO", "IF_NEEDED", "TRUE", "FALSE"):
        yield _error(
            proc,
            "transfer",
            "should_transfer_files",
            f"{should} is not YES, NO or IF_NEEDED",
            "write should_transfer_files = YES",
        )
    if when and when not in ("ON_EXIT", "ON_EXIT_OR_EVICT", "ON_SUCCESS", "NEVER"):
        yield _error(
            proc,
            "transfer",
            "when_to_transfer_output",
            f"{when} is not ON_EXIT, ON_EXIT_OR_EVICT or ON_SUCCESS",
            "write when_to_transfer_output = ON_EXIT",
        )
    if should == "NO":
        for command in ("transfer_input_files", "transfer_output_files"):
            if proc.get(command):
                yield _error(
                    proc,
                    "transfer",
                    command,
                    f"{command} is given, but should_transfer_files = NO",
                    "remove one of the two",
                )
        if when and when != "NEVER":
            yield _error(
                proc,
                "transfer",
                "when_to_transfer_output",
                f"when_to_transfer_output = {when}, but should_transfer_files = NO",
                "remove one of the two",
            )
    if should == "IF_NEEDED" and when == "ON_EXIT_OR_EVICT":
        yield _error(
            proc,
            "transfer",
            "when_to_transfer_output",
            "ON_EXIT_OR_EVICT does not work with IF_NEEDED",
            "write should_transfer_files = YES",
        )


def _expressions(proc: Proc) -> Iterator[Finding]:
    import classad2

    for command in EXPRESSIONS:
        text = proc.get(command)
        if not text or "$$(" in text:
            continue
        try:
            classad2.ExprTree(text)
        except Exception:  # the type of ClassAdException depends on the version
            yield _error(
                proc,
                "expression",
                command,
                f"{text} is not a ClassAd expression",
                "compare with ==, join with && and ||, and close every quote",
            )
    text = proc.get("arguments")
    if text.startswith('"') and (len(text) < 2 or not text.endswith('"')):
        yield _error(
            proc,
            "expression",
            "arguments",
            f"{text} has an unclosed double quote",
            "close it, or remove it",
        )


def _same_output(procs: list[Proc]) -> Iterator[Finding]:
    for command in ("output", "error"):
        seen: dict[Path, int] = {}
        for proc in procs:
            name = proc.get(command)
            if not name or name.startswith("/dev/"):
                continue
            path = _initialdir(proc) / name
            if path in seen:
                yield Finding(
                    "shared-output",
                    "warning",
                    command,
                    f"several jobs write to {name}",
                    "put $(Process) in the name",
                    proc.number,
                )
                break
            seen[path] = proc.number


def _initialdir(proc: Proc) -> Path:
    return Path(proc.get("initialdir") or proc.get("initial_dir") or ".").absolute()


def _error(proc: Proc, rule: str, command: str, text: str, remedy: str) -> Finding:
    return Finding(rule, "error", command, text, remedy, proc.number)


CHECKS: tuple[Callable[[Proc], Iterator[Finding]], ...] = (
    _executable,
    _inputs,
    _directories,
    _sizes,
    _transfer,
    _expressions,
)
LINT_RULES = (
    "syntax",
    "queue",
    "undefined-macro",
    "text-after-queue",
    "typo",
    "executable",
    "execute-bit",
    "interpreter",
    "dos-line-ends",
    "missing-input",
    "initialdir",
    "output-directory",
    "units",
    "transfer",
    "expression",
    "shared-output",
)
