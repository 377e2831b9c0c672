"""What can be checked about a hold on this machine: edited policies, names of missing files.

Checks look only at what the job being answered names, and open no file.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

LOOK_AGAIN_SECONDS = 30.0


# ---- attributes of the job ---------------------------------------------------------------------

_POLICY_IN_REASON = re.compile(r"The job attribute (\w+) expression '(.*)' evaluated to")


def corrected_policy(reason: str, ad: Mapping[str, Any]) -> str:
    """Say how the policy that held a job was changed since; empty if nothing shows that.

    A policy that is not the constant false may be false only because the job is on hold.
    """
    policies = {name: ad[name] for name in ("PeriodicHold", "OnExitHold") if name in ad}
    named = _POLICY_IN_REASON.search(reason)
    if named and named[1] in policies:
        name = named[1]
        if _is_false(policies[name]):
            return f"{name} is false now"
        return ""  # HTCondor may spell one expression in two ways: a difference proves no change
    if policies and all(map(_is_false, policies.values())):
        return f"{' and '.join(policies)} {'is' if len(policies) == 1 else 'are'} false now"
    return ""


def _is_false(value: object) -> bool:
    return value is False or (isinstance(value, str) and value.strip().lower() == "false")


def inputs_of(ad: Mapping[str, Any]) -> list[str]:
    """Return the paths and URLs that a job transfers, in full."""
    directory = str(ad.get("Iwd", ""))
    words = [word.strip() for word in str(ad.get("TransferInput", "")).split(",") if word.strip()]
    words += [str(ad[name]) for name in ("Cmd", "In") if ad.get(name)]
    return [word if "://" in word else os.path.normpath(os.path.join(directory, word))
            for word in words]  # fmt: skip


# ---- names that mean the same file --------------------------------------------------------------

_PIECES = re.compile(r"\d+|[A-Za-z]+")
SHORTEST_INDEX = 2  # letters: shorter pieces of a name are indices, as in part_a
SHORTEST_MISSPELT = 4
SHORTEST_MISTYPED = 8  # shorter words that differ in one letter are often two words
MOST_NAMES_COMPARED = 300


def same_numbers(one: str, other: str) -> bool:
    """Tell whether two paths have the same numbers, dates and one-letter indices, in order."""
    return _indices(one) == _indices(other)


def _indices(path: str) -> list[str]:
    return [
        piece.lstrip("0") or "0" if piece.isdigit() else piece.lower()
        for piece in _PIECES.findall(path)
        if piece.isdigit() or len(piece) < SHORTEST_INDEX
    ]


def differs_in_spelling(one: str, other: str) -> bool:
    """Tell whether two file names differ, but only in case, separators or one misspelt word."""
    if one == other or not same_numbers(one, other):
        return False
    words, others = ([p.lower() for p in _PIECES.findall(n) if not p.isdigit()]
                     for n in (one, other))  # fmt: skip
    if "".join(words) == "".join(others):
        return True
    if len(words) != len(others):
        return False
    different = [(a, b) for a, b in zip(words, others, strict=True) if a != b]
    return len(different) == 1 and _is_misspelt(*different[0])


def _is_misspelt(word: str, other: str) -> bool:
    """Tell whether two words differ in one slip of the keyboard behind the first letter.

    `protons` and `photons`, or `train` and `test`, are two words.
    """
    if word[0] != other[0] or min(len(word), len(other)) < SHORTEST_MISSPELT:
        return False
    if len(word) == len(other):
        at = [i for i, (a, b) in enumerate(zip(word, other, strict=True)) if a != b]
        swapped = len(at) == 2 and at[1] == at[0] + 1
        if swapped and word[at[0]] == other[at[1]] and word[at[1]] == other[at[0]]:
            return True
        return len(at) == 1 and len(word) >= SHORTEST_MISTYPED
    short, long = sorted((word, other), key=len)
    return len(long) == len(short) + 1 and any(
        long[:i] + long[i + 1 :] == short for i in range(1, len(long))
    )


def misspelt(path: str, used: list[str]) -> str | None:
    """Return the only file beside a missing one whose name is another spelling of it.

    A file that the job uses already is not it.
    """
    directory, name = os.path.split(path)
    names = _names_in(directory, int(time.monotonic() // LOOK_AGAIN_SECONDS))
    near = [other for other in names if differs_in_spelling(name, other)]
    near = [other for other in near if os.path.join(directory, other) not in used]
    return os.path.join(directory, near[0]) if len(near) == 1 else None


@lru_cache(maxsize=64)
def _names_in(directory: str, when: int) -> tuple[str, ...]:
    try:
        with os.scandir(directory) as entries:
            most = range(MOST_NAMES_COMPARED)
            return tuple(entry.name for _, entry in zip(most, entries, strict=False))
    except (OSError, ValueError):
        return ()
