"""Hold reason text → template, family, and the numbers inside.

HTCondor writes hosts, paths, sizes and users into its reasons, so nearly every text is
unique. A *template* is the text with these taken out: `Transfer input files failure at access
point <host> … (errno 2) No such file or directory`. Above it stands the *family*, which joins
wordings and codes that different versions of HTCondor use for the same fault.

Texts are taken word by word, and what a word becomes is remembered: of the thirty words of a
reason most have been seen before, so that a reason costs microseconds.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Their order is the number of each family in tensors and tables: only ever append.
FAMILIES = (
    "unspecified",
    "other",
    "memory",
    "disk",
    "cpu",
    "duration",
    "input_missing",
    "input_permission",
    "input_other",
    "output_missing",
    "output_unwritable",
    "output_other",
    "no_space",
    "quota",
    "transfer_size",
    "url",
    "credential",
    "plugin",
    "exec_missing",
    "exec_format",
    "exec_permission",
    "exec_other",
    "standard_streams",
    "working_directory",
    "container",
    "exit_status",
    "job_policy",
    "site_policy",
    "machine_policy",
    "user",
    "submitted_on_hold",
    "spooling",
    "hook",
    "script",
    "protocol",
    "event_log",
    "account",
    "deferral",
    "checkpoint",
    "grid",
)
FAMILY_INDEX = {name: index for index, name in enumerate(FAMILIES)}
TEMPLATE_BUCKETS = 1024  # of the template's embedding index; 0 is no template
MAX_WORDS = 40  # of a template; what a container engine prints may be a page long
_CACHED_WORDS = 200_000


@dataclass(frozen=True, slots=True)
class Reason:
    """What one hold reason says, in parts."""

    template: str
    family: str
    point: str  # the execution point's slot, empty where the text names none
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
    """A pattern that is compiled at its first use: who only reads a store needs none of them."""

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
_ERRNO = _Late(r"\(errno (\d+)\)")
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
    """Take a hold reason apart; an empty one has the template ''."""
    text = text.strip()
    point = ""
    if found := _AT_POINT.search(text):
        point = found[1]
    if text.startswith("Error from ") and (found := _PREFIX.match(text)):
        point, text = point or found[1], text[found.end() :]
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


_SIZED = ("memory", "disk", "transfer_size", "cpu")


def _amount(pattern: _Late, text: str) -> float | None:
    """Return a size in MB, unless the text has a unit of its own; bare numbers are as they are."""
    found = pattern.search(text)
    if found is None:
        return None
    return float(found[1]) * (_UNITS.get(found[2][0], 1.0) if found[2] else 1.0)


def _simplify(text: str) -> str:
    """Bring the shapes that vary within one version to one."""
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
    """Replace the variables of a text; return it with what was replaced."""
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
            masked.append(word)  # these numbers say which fault it is
        else:
            found = known.get(word)
            if found is None:
                if len(known) > _CACHED_WORDS:
                    known.clear()
                found = known[word] = _mask_word(word)
            masked.append(found[0])
            if found[1]:
                variables.append((found[1], word))
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
        ("", r"<\w+>$"),  # replaced before
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


# ---- families ------------------------------------------------------------------------------

_families: dict[tuple[str, int | None, int | None], str] = {}


def _family(template: str, code: int | None, subcode: int | None) -> str:
    """Return the family; the text decides first, since codes changed between versions."""
    key = (template, code, subcode)
    found = _families.get(key)
    if found is None:
        if len(_families) > _CACHED_WORDS:
            _families.clear()
        found = _families[key] = _find_family(template.lower(), code, subcode)
    return found


def _find_family(text: str, code: int | None, subcode: int | None) -> str:
    if code in _SURE:
        return _SURE[code]
    for family, applies in _RULES:
        if applies(text):
            return family
    if code in _EXECUTION:
        return _by_errno(text, subcode, _EXECUTION[code])
    if code in (12, 13):
        return "input_other" if code == 13 else "output_other"
    if code is not None and subcode is not None and (code, subcode) in _RESOURCES:
        return _RESOURCES[code, subcode]
    if code in _BY_CODE:
        return _BY_CODE[code]
    return "unspecified" if not text and not code else "other"


def _transfer(side: str) -> Callable[[str], bool]:
    """Return a test for `side`: input or output, in the new wording or the old one."""
    # In the old wording the one who fails to send reads the files: the shadow sends input.
    sender = "shadow" if side == "input" else "starter"
    new = f"transfer {side} files failure"

    def applies(text: str) -> bool:
        if new in text:
            return True
        return f"{sender} at " in text and "failed to send" in text and _other_side(text, sender)

    return applies


def _other_side(text: str, sender: str) -> bool:
    return text.find(f"{sender} at ") == min(
        (text.find(f"{name} at ") for name in ("shadow", "starter") if f"{name} at " in text),
        default=-1,
    )


_input, _output = _transfer("input"), _transfer("output")


def _has(*words: str) -> Callable[[str], bool]:
    return lambda text: any(word in text for word in words)


def _both(first: Callable[[str], bool], *others: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda text: first(text) and all(other(text) for other in others)


_MISSING = _has("errno 2)", "no such file or directory")
_DENIED = _has("errno 13)", "errno 1)", "permission denied")
_READING = _has("reading from", "failed to read")
_EXCEEDED = _has("exceed", "over ", "above", "too much", "limit", "violat")
# The first rule that applies names the family.
_RULES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    (
        "transfer_size",
        _has(
            "max total download bytes",
            "max total upload bytes",
            "transfer size",
            "transfer_input_mb",
            "transfer_output_mb",
        ),
    ),
    (
        "container",
        _has("docker image", "find image", "pull image", "singularity", "apptainer", "<image>"),
    ),
    ("memory", _both(_has("memory"), _EXCEEDED)),
    ("disk", _both(_has("disk usage", "disk limit", "allocated disk", "request_disk"), _EXCEEDED)),
    ("cpu", _both(_has("cpu usage", "cpus"), _EXCEEDED)),
    ("quota", _has("errno 122)", "quota exceeded")),
    ("no_space", _has("errno 28)", "no space left")),
    (
        "duration",
        _has(
            "execute duration",
            "job duration",
            "allowed run time",
            "wall time",
            "walltime",
            "ran longer",
            "ran too long",
            "run time",
        ),
    ),
    (
        "credential",
        _has(
            "returned error: 401",
            "returned error: 403",
            "credential",
            "token",
            "authorization",
            "authentication",
            "proxy expired",
        ),
    ),
    (
        "url",
        _both(
            _has("url", "using protocol", "curl"),
            lambda text: "failed to execute" not in text.split("url", 1)[0],
        ),
    ),
    ("plugin", _has("filetransfer:", "plugin", "plug-in")),
    ("working_directory", _has("initial working directory")),
    ("standard_streams", _has("as standard output", "as standard input", "as standard error")),
    ("input_missing", _both(_input, _READING, _MISSING)),
    ("input_permission", _both(_input, _READING, _DENIED)),
    ("input_other", _input),
    ("output_missing", _both(_output, _READING, _MISSING)),
    ("output_unwritable", _both(_output, _has("writing to", "failed to write"))),
    ("output_other", _output),
    ("exit_status", _has("onexithold", "exit code", "exited with", "exit status", "exitcode")),
)
# Codes that mean one thing in every version; the others are told by their text first.
_SURE = {
    1: "user",
    14: "working_directory",
    15: "submitted_on_hold",
    16: "spooling",
    19: "hook",
    22: "event_log",
    32: "transfer_size",
    33: "transfer_size",
    43: "script",
    44: "script",
    45: "container",
    46: "duration",
    47: "duration",
    48: "hook",
}
_EXECUTION = {6: "exec_other"}
_RESOURCES = {
    (21, 102): "memory",
    (34, 102): "memory",
    (21, 104): "disk",
    (34, 104): "disk",
}
_BY_CODE = {
    2: "input_other",
    3: "job_policy",
    4: "credential",
    5: "job_policy",
    7: "standard_streams",
    8: "standard_streams",
    9: "standard_streams",
    10: "standard_streams",
    11: "protocol",
    17: "protocol",
    18: "protocol",
    20: "deferral",
    21: "machine_policy",
    23: "account",
    24: "protocol",
    25: "deferral",
    26: "site_policy",
    27: "site_policy",
    28: "account",
    29: "account",
    30: "account",
    31: "account",
    34: "machine_policy",
    35: "container",
    36: "checkpoint",
    **dict.fromkeys(range(37, 43), "grid"),
    49: "account",
}


def _by_errno(text: str, subcode: int | None, otherwise: str) -> str:
    if subcode == 2 or _MISSING(text):
        return "exec_missing"
    if subcode == 8 or "exec format" in text:
        return "exec_format"
    if subcode in (1, 13) or _DENIED(text):
        return "exec_permission"
    return otherwise
