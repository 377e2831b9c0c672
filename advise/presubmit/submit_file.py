"""Read a submit description with HTCondor's own parser: macros, queue statement and items.

`htcondor2.Submit` needs no pool for this. It makes no job ads without a schedd, so requests are
read from the submit commands. The description may be a stranger's: unless the caller allows it,
nothing that it names is run (see submit_lines.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condor_advice.advise.presubmit.submit_lines import (
    LARGEST_FILE,
    Line,
    RunsCommand,
    file_of_items,
    refuse_includes,
    safe_lines,
    statements,
)
from condor_advice.gather.errors import AdviceError, UsageError
from condor_advice.gather.regular import open_regular, read_regular

UNDEFINED = "condor_advice_undefined_macro"
_QUEUE = re.compile(r"^\s*queue\b", re.IGNORECASE)
_UNITS_IN_BYTES = {
    "B": 1.0,
    "K": 1024.0,
    "M": 1024.0**2,
    "G": 1024.0**3,
    "T": 1024.0**4,
    "P": 1024.0**5,
}
_QUANTITY = re.compile(r"([0-9]*\.?[0-9]+)\s*([KMGTP]?)(?:I?B)?", re.IGNORECASE)
# Options of condor_submit that take a value and do not change the job.
_OPTIONS_WITH_VALUE = (
    "-name",
    "-remote",
    "-pool",
    "-password",
    "-batch-name",
    "-dump",
    "-dry-run",
    "-capabilities",
    "-allow-crlf-script",
    "-addr",
    "-r",
)


class CannotParse(AdviceError):
    """HTCondor's parser cannot read the submit description."""

    def __init__(self, path: Path, line: int | None, text: str, detail: str) -> None:
        where = f"{path}:{line}" if line else str(path)
        super().__init__(f"{where}: HTCondor cannot read this: {text or detail}")
        self.line, self.text, self.detail = line, text, detail


@dataclass(frozen=True, slots=True)
class Proc:
    """One job: its submit commands with all macros expanded."""

    number: int
    commands: Mapping[str, str]

    def get(self, command: str) -> str:
        """Return a command's value, or an empty string; case does not matter."""
        return self.commands.get(command.lower(), "").strip()

    def flag(self, command: str, default: bool) -> bool:
        """Return the value of a boolean command."""
        value = self.get(command).lower()
        return default if not value else value in ("true", "yes", "1", "t", "y")


@dataclass(frozen=True, slots=True)
class Request:
    """A requested size: the number, and whether it has a unit."""

    amount: float | None  # None: an expression that only a match can evaluate
    has_unit: bool
    text: str


class SubmitFile:
    """A submit file with the lines that condor_submit's arguments add."""

    def __init__(
        self, path: Path, arguments: Sequence[str] = (), *, allow_commands: bool = False
    ) -> None:
        self.path = path
        try:
            data = read_regular(path, LARGEST_FILE)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; give an existing submit file") from error
        self.text = data.decode("utf-8", "backslashreplace")
        self.additions, self.ignored = _additions(arguments)
        added = [line for text in self.additions for line in statements(text, path)]
        if allow_commands:
            whole = [
                Line(path, number, text)
                for number, text in enumerate(self.text.splitlines(), start=1)
            ]
            before, queue, self.after_queue = _at_queue(whole)
            lines = [*before, *added]
        else:
            before, queue, self.after_queue = _at_queue(statements(self.text, path))
            lines = safe_lines([*before, *added], _expand_after)
            queue = queue and _literal_queue(lines, queue)
            refuse_includes(queue or [])
        self.queue_line = [line.text for line in queue] if queue else None
        self.submit: Any = _parsed(path, lines, self.queue_line or ["queue"])
        self.raw = {str(key).lower(): str(value) for key, value in dict(self.submit).items()}
        if not allow_commands:
            self._check_items(queue)

    def _check_items(self, queue: Sequence[Line] | None) -> None:
        """Refuse a queue statement that takes its items from a program, or from no plain file."""
        arguments = str(self.submit.getQArgs() or "")
        source = file_of_items(arguments)
        if source is None:
            return
        number = queue[0].number if queue else None
        if "|" in source or "$" in source:
            why = "runs a program" if "|" in source else "may run a program"
            raise RunsCommand(self.path, number, f"queue {arguments}", why)
        try:
            open_regular(source).close()
        except FileNotFoundError:
            return  # HTCondor reports it
        except OSError as error:
            detail = f"{source}: {error.strerror}"
            raise CannotParse(self.path, number, f"queue {arguments}", detail) from None

    def undefined_macros(self) -> list[tuple[str, str]]:
        """Return (command, macro) for every $(macro) that nothing defines.

        HTCondor itself expands each macro with a default value that only an undefined macro
        takes. So macros that are built in, in the configuration or in the queue statement
        count as defined.
        """
        variables = {name.lower() for name in self.variables()}
        found = []
        for command, value in self.raw.items():
            for name in re.findall(r"(?<!\$)\$\(\s*([\w.]+)\s*\)", value):
                if name.lower() in variables or name.lower() in self.raw:
                    continue
                self.submit["condor_advice_probe"] = f"$({name}:{UNDEFINED})"
                if self._expand("condor_advice_probe") == UNDEFINED:
                    found.append((command, name))
        return found

    def variables(self) -> list[str]:
        """Return the variables of the queue statement."""
        words = " ".join(self.queue_line or []).split("(")[0]
        match = re.match(
            r"\s*queue\s+(?:[^\s,]+\s+)??([A-Za-z_][\w, ]*?)\s+(?:in|from|matching)\b",
            words,
            re.IGNORECASE,
        )
        names = re.split(r"[,\s]+", match[1].strip()) if match else []
        return [*names, "item"]

    def items(self) -> list[dict[str, str]]:
        """Return the items of the queue statement, or one empty item.

        Raises CannotParse if the statement, or the file it names, cannot be read.
        """
        arguments = str(self.submit.getQArgs() or "")
        if not re.search(r"\b(in|from|matching)\b", arguments, re.IGNORECASE):
            return [{}]
        try:
            items = self.submit.itemdata()
            return [] if items is None else [dict(item) for item in items]
        except Exception as error:
            raise CannotParse(
                self.path, None, " ".join(self.queue_line or []), str(error)
            ) from error

    def _expand(self, command: str) -> str:
        try:
            return str(self.submit.expand(command))
        except KeyError:  # raised when the value is empty
            return ""

    def count(self) -> int:
        """Return the number of jobs per item."""
        match = re.match(r"\s*(\d+)", str(self.submit.getQArgs() or ""))
        return int(match[1]) if match else 1

    def procs(self, limit: int) -> Iterator[Proc]:
        """Yield the first `limit` jobs with their commands expanded."""
        number = 0
        for item in self.items():
            for _ in range(self.count()):
                if number >= limit:
                    return
                for name, value in item.items():
                    self.submit[name] = value
                self.submit["Process"] = self.submit["ProcId"] = str(number)
                yield Proc(number, {name: self._expand(name) for name in self.raw})
                number += 1


def quantity(text: str, plain_unit: str, result_unit: str) -> Request | None:
    """Parse "2 GB" or "4096" (in `plain_unit`); return None for an unknown unit.

    An expression such as `ifThenElse(...)` has no amount.
    """
    text = text.strip()
    match = _QUANTITY.fullmatch(text)
    if match:
        bytes_ = float(match[1]) * _UNITS_IN_BYTES[match[2].upper() or plain_unit]
        return Request(bytes_ / _UNITS_IN_BYTES[result_unit], bool(match[2]), text)
    if re.fullmatch(r"[0-9.]+\s*[A-Za-z]+", text):
        return None
    return Request(None, False, text)


def _at_queue(
    lines: Sequence[Line],
) -> tuple[list[Line], list[Line] | None, list[tuple[int, str]]]:
    """Split a file into the lines before its queue statement, the statement, and the rest."""
    for place, line in enumerate(lines):
        text = line.text
        if not _QUEUE.match(text):
            continue
        stop = place + 1
        if text.rstrip().endswith("(") or ("(" in text and ")" not in text):
            while stop < len(lines) and ")" not in lines[stop].text:
                stop += 1
            stop += 1
        after = [
            (rest.number, rest.text)
            for rest in lines[stop:]
            if rest.text.strip() and not rest.text.lstrip().startswith("#")
        ]
        return list(lines[:place]), list(lines[place:stop]), after
    return list(lines), None, []


def _parsed(path: Path, lines: Sequence[Line], queue: Sequence[str]) -> Any:
    import htcondor2

    try:
        return htcondor2.Submit("\n".join([*(line.text for line in lines), *queue]) + "\n")
    except Exception as error:  # the bindings raise more than one kind of exception
        bad = _bad_line(lines)
        number, text = (bad.number, bad.text.strip()) if bad else (None, "")
        raise CannotParse(bad.path if bad else path, number, text, str(error)) from error


def _expand_after(lines: Sequence[Line], text: str) -> str | None:
    """Expand the macros in a text that follows some statements; None if they cannot be read."""
    try:
        submit = _parsed(Path(), lines, ["queue"])
    except CannotParse:
        return None
    submit["condor_advice_probe"] = text
    try:
        return str(submit.expand("condor_advice_probe"))
    except KeyError:  # raised when the value is empty
        return ""


def _literal_queue(lines: Sequence[Line], queue: Sequence[Line]) -> list[Line]:
    """Expand the macros of a queue statement, so that what is checked is what HTCondor reads."""
    first = queue[0]
    if "$" not in first.text:
        return list(queue)
    expanded = _expand_after(lines, first.text)
    if expanded is None:
        return list(queue)  # HTCondor cannot read what is above it either
    # A value of several lines must not become several statements.
    return [Line(first.path, first.number, " ".join(expanded.split("\n"))), *queue[1:]]


def _bad_line(lines: Sequence[Line]) -> Line | None:
    """Return the first line at which HTCondor's parser fails."""
    import htcondor2

    bad = None
    for stop in range(len(lines), 0, -1):
        try:
            htcondor2.Submit("\n".join(line.text for line in lines[:stop]) + "\n")
        except Exception:
            bad = stop
        else:
            break
    return lines[bad - 1] if bad else None


def _additions(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the lines that condor_submit's arguments add, and the arguments ignored."""
    lines: list[str] = []
    ignored: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-append", "-a") and rest:
            lines.append(rest.pop(0))
        elif not word.startswith("-") and "=" in word:
            lines.append(word)
        else:
            ignored.append(word)
            if word in _OPTIONS_WITH_VALUE and rest:
                ignored.append(rest.pop(0))
    return lines, ignored
