"""Show text that strangers wrote: hold reasons, file names, batch names, lines of logs.

Such text may hold characters that move the cursor, write the clipboard, reverse the direction of
writing or are not seen at all. They are shown as escapes. `one_line` is for a value in a sentence:
a line break in it must not look like a line of ours. `guard_terminal` filters all that a process
prints, so that nothing gets past by being forgotten.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from typing import Any, TextIO

LONGEST_SHOWN = 2000  # characters of one value

# Control characters (C0, DEL, C1), line and paragraph separators, bidirectional controls, invisible
# characters, tags, and the surrogates that stand for bytes that are no UTF-8.
_HARMFUL = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSAFE = re.compile(f"[{_HARMFUL}]")
_UNSAFE_IN_A_LINE = re.compile(f"[\t\n{_HARMFUL}]")
# The colours and weights that this program and its tables use; nothing else passes to a terminal.
_OWN_COLOUR = r"\x1b\[(?:[0-4]|(?:1;)?(?:3[1-7]|9[0-7])|(?:1;)?38;[25](?:;\d{1,3}){1,3})m"
_UNSAFE_BUT_COLOURS = re.compile(f"({_OWN_COLOUR})|[{_HARMFUL}]")


def visible(text: str) -> str:
    """Return text with harmful characters as escapes; line feeds and tabs stay."""
    return _UNSAFE.sub(_escape, text)


def one_line(text: object, longest: int = LONGEST_SHOWN) -> str:
    """Return a value as part of one line: blanks for line breaks, escapes, and not too long."""
    shown = str(text)
    if len(shown) > longest:
        shown = f"{shown[:longest]} ..."
    if _UNSAFE_IN_A_LINE.search(shown) is None:
        return shown
    return visible(" ".join(re.split(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+", shown)))


def shell_word(text: str) -> str:
    """Quote text for a shell; harmful characters are escaped as bash, zsh and ksh understand."""
    if _UNSAFE_IN_A_LINE.search(text) is None:
        return shlex.quote(text)
    quoted = re.sub(r"[\\']", r"\\\g<0>", text)
    escaped = _UNSAFE_IN_A_LINE.sub(
        lambda harmful: "".join(f"\\x{byte:02x}" for byte in os.fsencode(harmful[0])), quoted
    )
    return f"$'{escaped}'"


def _escape(harmful: re.Match[str]) -> str:
    code = ord(harmful[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _own_or_escape(match: re.Match[str]) -> str:
    return match[1] or _escape(match)


class GuardedText(io.TextIOWrapper):
    """A text stream that lets no control character through except line ends and own colours."""

    def write(self, text: str, /) -> int:
        """Write text with harmful characters as escapes; return the length of the text."""
        super().write(_UNSAFE_BUT_COLOURS.sub(_own_or_escape, text))
        return len(text)

    def write_own(self, text: str) -> int:
        """Write text of our own, control characters included."""
        return super().write(text)


class OwnText:
    """The same stream for what moves the cursor, such as a progress bar, and quotes nobody."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text as it is."""
        if isinstance(self._stream, GuardedText):
            return self._stream.write_own(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def clear_screen() -> None:
    """Clear the terminal that standard output is."""
    OwnText(sys.stdout).write("\x1b[2J\x1b[1;1H")


def guard_terminal() -> None:
    """Filter all that this process prints from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is not io.TextIOWrapper:
            continue  # a test's, or none
        stream.flush()
        # The stream itself stays open: shutil asks it for the size of the terminal.
        guarded = GuardedText(
            stream.buffer,
            stream.encoding,
            "backslashreplace",
            line_buffering=stream.line_buffering,
        )
        setattr(sys, name, guarded)
