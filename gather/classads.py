"""ClassAd text as HTCondor writes it to logs and history files, one `Attribute = value` a line.

This is the old syntax, in which a backslash stands for itself; only before a quote does it make
that quote part of the string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

ASSIGNMENT = re.compile(r"\s*([A-Za-z_][\w.]*)\s*=(?![=?!])\s*(.*?)\s*$", re.DOTALL)
_INTEGER = re.compile(r"-?\d+")
_REAL = re.compile(r"-?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?")
# What can hide a separator: strings, and whatever opens or closes a list, an ad or a call.
_MARK = re.compile(r'"(?:\\"|[^"])*"|[][{}();,]')


def assignment(line: str) -> tuple[str, Any] | None:
    """Return the attribute of a line and its value; None when the line has another form."""
    match = ASSIGNMENT.match(line)
    return (match[1], classad_value(match[2])) if match else None


def classad_value(text: str) -> Any:
    """Return a literal, list or ad as a Python value; an expression stays text."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        inside = text[1:-1]
        # A quote that no backslash precedes ends a string: then this is `"a" + "b"`.
        return text if '"' in inside.replace('\\"', "") else inside.replace('\\"', '"')
    if _INTEGER.fullmatch(text):
        return int(text)
    if _REAL.fullmatch(text):
        return float(text)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.startswith("[") and text.endswith("]"):
        return dict(filter(None, map(assignment, _pieces(text[1:-1], ";"))))
    if text.startswith("{") and text.endswith("}"):
        return [classad_value(piece) for piece in _pieces(text[1:-1], ",")]
    return text


def _pieces(text: str, separator: str) -> Iterator[str]:
    """Cut at the separators that stand in no string, list, ad or call."""
    begin = depth = 0
    for mark in _MARK.finditer(text):
        if mark[0] in ("[", "{", "("):
            depth += 1
        elif mark[0] in ("]", "}", ")"):
            depth -= 1
        elif mark[0] == separator and depth == 0:
            yield text[begin : mark.start()]
            begin = mark.end()
    if text[begin:].strip():
        yield text[begin:]
