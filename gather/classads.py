"""Read ClassAds from logs and history files: one `Attribute = value` per line.

This is the old ClassAd syntax: a backslash is an ordinary character, except before a quote,
which it makes part of the string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

ASSIGNMENT = re.compile(r"\s*([A-Za-z_][\w.]*)\s*=(?![=?!])\s*(.*?)\s*$", re.DOTALL)
_INTEGER = re.compile(r"-?\d{1,19}")  # ClassAd integers have 64 bits
_REAL = re.compile(r"-?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?")
# A separator does not count inside a string, a list, an ad or a function call.
_MARK = re.compile(r'"(?:\\"|[^"])*"|[][{}();,]')


def assignment(line: str) -> tuple[str, Any] | None:
    """Return a line's attribute and value; None if the line is not an assignment."""
    match = ASSIGNMENT.match(line)
    return (match[1], classad_value(match[2])) if match else None


def classad_value(text: str) -> Any:
    """Return a literal, list or ad as a Python value; keep an expression as text."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        inside = text[1:-1]
        # An unescaped quote ends the string, so this is an expression such as `"a" + "b"`.
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
    """Split at the separators outside strings, lists, ads and function calls."""
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
