"""Read a submit description with HTCondor's own parser: macros, queue statement and items.

`htcondor2.Submit` needs no pool for this. It makes no job ads without a schedd, so requests are
read from the submit commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condor_advice.gather.errors import AdviceError, UsageError

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

    def __init__(self, path: Path, arguments: Sequence[str] = ()) -> None:
        import htcondor2

        self.path = path
        try:
            self.text = path.read_text(encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; give an existing submit file") from error
        self.additions, self.ignored = _additions(arguments)
        before, self.queue_line, self.after_queue = _at_queue(self.text)
        source = "\n".join([*before, *self.additions, *(self.queue_line or ["queue"])]) + "\n"
        try:
            self.submit: Any = htcondor2.Submit(source)
        except Exception as error:  # the bindings raise more than one kind of exception
            line, text = _bad_line(before)
            raise CannotParse(path, line, text, str(error)) from error
        self.raw = {str(key).lower(): str(value) for key, value in dict(self.submit).items()}

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


def _at_queue(text: str) -> tuple[list[str], list[str] | None, list[tuple[int, str]]]:
    """Split a file into the lines before its queue statement, the statement, and the rest."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if not _QUEUE.match(line):
            continue
        stop = number + 1
        if line.rstrip().endswith("(") or ("(" in line and ")" not in line):
            while stop < len(lines) and ")" not in lines[stop]:
                stop += 1
            stop += 1
        after = [
            (index + 1, rest)
            for index, rest in enumerate(lines[stop:], start=stop)
            if rest.strip() and not rest.lstrip().startswith("#")
        ]
        return lines[:number], lines[number:stop], after
    return lines, None, []


def _bad_line(lines: Sequence[str]) -> tuple[int | None, str]:
    """Return the first line at which HTCondor's parser fails."""
    import htcondor2

    bad = None
    for stop in range(len(lines), 0, -1):
        try:
            htcondor2.Submit("\n".join(lines[:stop]) + "\n")
        except Exception:
            bad = stop
        else:
            break
    return (bad, lines[bad - 1].strip()) if bad else (None, "")


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
