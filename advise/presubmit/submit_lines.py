"""Read the lines of a submit description so that parsing them runs no program.

HTCondor's parser runs commands: `include command : PROGRAM` while it reads the description, and
`queue x from PROGRAM |` when it is asked for the items. A submit file may be a stranger's, so the
parser only sees text in which neither can occur. Continuation lines are joined and included files
are put in place here, so that no include statement is left; one that runs a program is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from condor_advice.gather.errors import AdviceError
from condor_advice.gather.regular import read_regular

MOST_INCLUDES = 200
DEEPEST_INCLUDE = 20  # as HTCondor's own
LARGEST_FILE = 64 << 20  # bytes
# HTCondor refuses this line if it reaches it, which it does not inside `if false`.
CANNOT_INCLUDE = "condor_advice_cannot_read_the_included_file"

# The parser ignores blanks and, inside `if`, a colon before a statement, and an @ before some.
_START = r"^[\s:@]*"
_INCLUDE = re.compile(_START + r"include(?=[\s:])([^=]*?):(.*)$", re.IGNORECASE | re.DOTALL)
_USE = re.compile(_START + r"use(?=[\s:])[^=]*?:(.*)$", re.IGNORECASE | re.DOTALL)
_QUEUE = re.compile(r"^\s*queue\b(.*)$", re.IGNORECASE | re.DOTALL)
_FROM = re.compile(r"\bfrom\b\s*(?:\[[^\]]*\])?\s*(.*)$", re.IGNORECASE | re.DOTALL)


class RunsCommand(AdviceError):
    """The submit description runs a program when it is read, and the caller did not allow it."""

    def __init__(self, path: Path, number: int | None, text: str, why: str) -> None:
        where = f"{path}:{number}" if number else str(path)
        super().__init__(
            f"{where}: {' '.join(text.split())!r} {why}; if you trust this file, add "
            "--allow-commands"
        )
        self.line = number


@dataclass(frozen=True, slots=True)
class Line:
    """One statement: its first line in its file, and its text without continuations."""

    path: Path
    number: int
    text: str


# Expands the macros of a text with the statements before it; None if these cannot be read.
Expand = Callable[[Sequence[Line], str], str | None]


def statements(text: str, path: Path) -> list[Line]:
    """Split a description into statements; comments and blank lines are left out.

    As in HTCondor, only a line feed ends a line, a comment line has no continuation, and a comment
    among continuation lines counts as blank.
    """
    lines: list[Line] = []
    parts: list[str] = []
    first = 0
    for number, raw in enumerate(text.replace("\0", "").split("\n"), start=1):
        line = raw.strip(" \t\v\f\r")
        continues = line.endswith("\\")
        if line.startswith("#"):
            line = ""
            continues = continues and bool(parts)
        if not parts:
            first = number
        # With one backslash removed another may be left: it must not join the next statement.
        parts.append(line[:-1] if continues else line)
        if continues:
            continue
        joined = "".join(parts).rstrip("\\")
        parts = []
        if joined.strip() and not joined.lstrip().startswith("#"):
            lines.append(Line(path, first, joined))
    if joined := "".join(parts).strip().rstrip("\\"):
        lines.append(Line(path, first, joined))
    return lines


def safe_lines(lines: Sequence[Line], expand: Expand) -> list[Line]:
    """Put included files in place; raise RunsCommand at a statement that runs a program."""
    return _Includes(expand).put_in(lines, depth=0)


def refuse_includes(lines: Sequence[Line]) -> None:
    """Raise RunsCommand at any include statement, as in the items of a queue statement."""
    for line in lines:
        if _INCLUDE.match(line.text):
            raise RunsCommand(line.path, line.number, line.text, "may run a program")


class _Includes:
    def __init__(self, expand: Expand) -> None:
        self._expand = expand
        self._count = 0
        self._done: list[Line] = []

    def put_in(self, lines: Sequence[Line], depth: int) -> list[Line]:
        for line in lines:
            if included := _INCLUDE.match(line.text):
                self._include(line, included[1].strip(), included[2].strip(), depth)
                continue
            if depth and _QUEUE.match(line.text):
                # HTCondor takes no queue statement from an included file.
                self._done.append(Line(line.path, line.number, CANNOT_INCLUDE))
                continue
            used = _USE.match(line.text)
            if used and ("|" in used[1] or "include" in used[1].lower()):
                raise RunsCommand(line.path, line.number, line.text, "may run a program")
            self._done.append(line)
        return self._done

    def _include(self, line: Line, keywords: str, target: str, depth: int) -> None:
        if keywords.lower() not in ("", "ifexist", "ifexists"):
            raise RunsCommand(line.path, line.number, line.text, "runs a program or writes a file")
        if "$" in target:
            expanded = self._expand(self._done, target)
            if expanded is None:
                why = "may run a program: what its macros stand for is not known here"
                raise RunsCommand(line.path, line.number, line.text, why)
            target = expanded.strip()
        if "|" in target:
            raise RunsCommand(line.path, line.number, line.text, "runs a program")
        self._count += 1
        if self._count > MOST_INCLUDES or depth >= DEEPEST_INCLUDE:
            raise AdviceError(f"{line.path}:{line.number}: too many nested include statements")
        try:
            data = read_regular(target, LARGEST_FILE)
        except OSError:
            if not keywords:
                self._done.append(Line(line.path, line.number, CANNOT_INCLUDE))
            return
        text = data.decode("utf-8", "backslashreplace")
        self.put_in(statements(text, Path(target)), depth + 1)


def file_of_items(arguments: str) -> str | None:
    """Return the file, or the command, that a queue statement reads its items from.

    `arguments` is what follows `queue`, with macros expanded; None if it reads no file.
    """
    source = _FROM.search(arguments)
    if source is None or source[1].startswith("("):
        return None
    return source[1].strip()
