"""Parse the text of a hold reason into its template, family and numbers.

HTCondor writes hosts, paths, sizes and users into its reasons, so nearly every text is
unique. A *template* is the text without these: `Transfer input files failure at access
point <host> … (errno 2) No such file or directory`. A *family* (see hold_reasons.py) joins the
wordings and codes that different versions of HTCondor use for the same fault.

Texts are masked word by word, and masked words are cached: most of the thirty words of a reason
have been seen before, so a reason takes microseconds.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from condor_advice.preprocess.holds.hold_reasons import Family, Trait, families_with, family_of

FAMILIES = tuple(Family)  # the index numbers a family in tensors and tables
FAMILY_INDEX: dict[str, int] = {family: index for index, family in enumerate(FAMILIES)}
TEMPLATE_BUCKETS = 1024  # size of the template embedding; 0 means no template
MAX_WORDS = 40  # limit for a template: a container engine may print a page
_CACHED_WORDS = 200_000


@dataclass(frozen=True, slots=True)
class Reason:
    """A parsed hold reason."""

    template: str
    family: Family
    point: str  # the execution point's slot, empty if the text names none
    used_mb: float | None
    limit_mb: float | None
    errno: int | None
    http_status: int | None
    variables: tuple[tuple[str, str], ...]  # kind and text, in order

    @property
    def template_id(self) -> int:
        """A number for the template, the same in every process and on every machine."""
        return zlib.crc32(self.template.encode()) & 0x7FFFFFFF

    @property
    def bucket(self) -> int:
        """The template's embedding index."""
        return bucket_of(self.template_id) if self.template else 0


def bucket_of(template_id: int) -> int:
    """Return the embedding index of a template's number."""
    return 1 + template_id % (TEMPLATE_BUCKETS - 1)


class _Late:
    """A pattern that is compiled at its first use, since reading a store needs none."""

    search: Callable[[str], re.Match[str] | None]
    match: Callable[[str], re.Match[str] | None]
    sub: Callable[..., str]

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._source = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._source)
        self.search, self.match, self.sub = compiled.search, compiled.match, compiled.sub
        return getattr(compiled, name)


_PREFIX = _Late(r"(?:Error from|Details: Error from) (\S+@\S+?|\S+): ")
_AT_POINT = _Late(r"execution point (\S+?)\.?(?: |$)")
_ARGUMENTS = _Late(r" with arguments .*?(?=: \(errno|: invalid interpreter|$)")
_COUNTED = _Late(r"\d+ total failures: first failure: ")
_ERRNO_STYLE = _Late(r"\(errno=(\d+): '([^']*)'\)")
_QUOTED_PATH = _Late(r"(Failed to (?:execute|open)) '[^']*'")
_FILE_PATH = _Late(
    r"((?:reading|writing|read|write|sending|receiving)(?: from| to)?(?: file)?"
    r"|working directory) (/.*?|\S+): (?=\(errno|max |[A-Z])"
)
_LISTED = _Late(r"\|+\s*FILETRANSFER.*$", re.DOTALL)
_SINGLE_BAR = _Late(r"(?<!\|)\|(?!\|)")
_IMAGE = _Late(r"(Unable to find image|Cannot (?:start|pull)[^:']*:?) '?[^\s']+'?.*", re.DOTALL)
_ERRNO = _Late(r"\(errno (\d{1,9})\)")  # anybody can write more digits into a reason
_HTTP = _Late(r"(?:returned error|HTTP(?:/\d\.\d)?(?: status)?(?: code)?|status):? (\d{3})\b")
_AMOUNT = r"[:=]?\s*(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([KMGT]i?[Bb]?\b|[a-z]+bytes\b)?"
_USED = _Late(r"(?:usage of|[Pp]eak usage|measured usage|\bused|[Uu]sage|this file)" + _AMOUNT)
_LIMIT = _Late(r"(?:limit of|requested|[Rr]equest of|request_\w+ of|\bmax)" + _AMOUNT)
_UNITS = {
    "K": 1 / 1024,
    "M": 1.0,
    "G": 1024.0,
    "T": 1024.0 * 1024,
    "k": 1 / 1024,
    "m": 1.0,
    "g": 1024.0,
    "t": 1024.0 * 1024,
    "b": 1 / (1 << 20),
}


def parse_reason(text: str, code: int | None, subcode: int | None) -> Reason:
    """Parse a hold reason; an empty one has the template ''."""
    text = text.strip()
    point = ""
    if at_point := _AT_POINT.search(text):
        point = at_point[1]
    if text.startswith("Error from ") and (prefix := _PREFIX.match(text)):
        point, text = point or prefix[1], text[prefix.end() :]
    words = _simplify(text)
    template, variables = _mask(words)
    family = _family(template, code, subcode)
    errno = _ERRNO.search(words)
    status = _HTTP.search(words)
    used = limit = None
    if family in _SIZED:
        used, limit = _amount(_USED, text), _amount(_LIMIT, text)
    return Reason(
        template,
        family,
        point,
        used,
        limit,
        int(errno[1]) if errno else None,
        int(status[1]) if status else None,
        tuple(variables),
    )


_SIZED = families_with(Trait.SIZED)


def _amount(pattern: _Late, text: str) -> float | None:
    """Return a size in MB; a number without a unit counts as MB."""
    amount = pattern.search(text)
    if amount is None:
        return None
    return float(amount[1]) * (_UNITS.get(amount[2][0], 1.0) if amount[2] else 1.0)


def _simplify(text: str) -> str:
    """Rewrite variants of a wording to one text."""
    if "\n" in text:
        text = text.replace("\n", " ")
    if " with arguments " in text:
        text = _ARGUMENTS.sub("", text)
    if "total failures" in text:
        text = _COUNTED.sub("", text)
    if "(errno=" in text:
        text = _ERRNO_STYLE.sub(r"(errno \1) \2", text)
    if "Failed to " in text:
        text = _QUOTED_PATH.sub(r"\1 <path>", text)
    if "/" in text:
        text = _FILE_PATH.sub(r"\1 <path>: ", text)
    if "|" in text:
        text = _SINGLE_BAR.sub(" ", _LISTED.sub("", text))
    if "image" in text:
        text = _IMAGE.sub(r"\1 <image>", text)
    return text


_words: dict[str, tuple[str, str]] = {}  # word -> (masked, kind of variable or "")


def _mask(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Mask the variables of a text; return the masked text and the variables."""
    masked: list[str] = []
    variables: list[tuple[str, str]] = []
    before = ""
    known = _words
    for word in text.split():
        if before in _NAMES_NEXT:
            kind = _NAMES_NEXT[before]
            core = word.strip("()'\",.;:")
            if before != "user" or core != "was":
                variables.append((kind, core))
                word = word.replace(core, f"<{kind}>", 1) if core else word
            masked.append(word)
        elif before.endswith("errno") or before in _KEPT_NEXT:
            masked.append(word)  # these numbers distinguish faults
        else:
            replaced = known.get(word)
            if replaced is None:
                if len(known) > _CACHED_WORDS:
                    known.clear()
                replaced = known[word] = _mask_word(word)
            masked.append(replaced[0])
            if replaced[1]:
                variables.append((replaced[1], word))
        before = word
        if len(masked) == MAX_WORDS:
            break
    return " ".join(masked), variables


_NAMES_NEXT = {"point": "host", "user": "user"}
_KEPT_NEXT = ("error:", "returned")
_PUNCTUATED = _Late(r"([('\"\[]*)(.*?)([)'\"\].,;:!?]*)$", re.DOTALL)
_KINDS: tuple[tuple[str, _Late], ...] = tuple(
    (kind, _Late(pattern))
    for kind, pattern in (
        ("", r"<\w+>$"),  # already replaced
        ("url", r"[A-Za-z][A-Za-z0-9+.-]*://"),
        ("address", r"<?(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?[^\s]*>?$|<.*[:?&].*>$|\[[0-9a-f:]+\]"),
        ("slot", r"[\w.-]+@[\w.@-]+$"),
        ("path", r"[~.]{0,2}/|[\w.-]+/[\w./-]*$|[A-Za-z]:\\"),
        ("time", r"(?:\d+[+ ])?\d+:\d\d(?::\d\d)?$"),
        ("number", r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?%?$"),
        ("size", r"[-+]?\d[\d,]*(?:\.\d+)?(?:[KMGT]i?B?|[Mm]b|bytes|s|h)$"),
        ("name", r"(?=.*\d)[\w.+-]+$|[A-Za-z][\w-]*(?:\.[\w-]+)+$"),
        ("setting", r"(?=.*\d)\w+="),
    )
)
_SIZE_NUMBER = _Late(r"[-+]?\d[\d,.]*")


def _mask_word(word: str) -> tuple[str, str]:
    parts = _PUNCTUATED.match(word)
    assert parts is not None  # it matches everything
    front, core, back = parts.groups()
    for kind, pattern in _KINDS:
        if core and pattern.match(core):
            if not kind:
                return word, ""
            if kind == "size":
                return front + _SIZE_NUMBER.sub("<number>", core, count=1) + back, kind
            if kind == "setting":
                return f"{front}{core.split('=', 1)[0]}=<number>{back}", kind
            return f"{front}<{kind}>{back}", kind
    return word, ""


_families: dict[tuple[str, int | None, int | None], Family] = {}


def _family(template: str, code: int | None, subcode: int | None) -> Family:
    """Return the family of a template, from a cache."""
    key = (template, code, subcode)
    family = _families.get(key)
    if family is None:
        if len(_families) > _CACHED_WORDS:
            _families.clear()
        family = _families[key] = family_of(template, code, subcode)
    return family
