"""The entry point: a plain question is answered at once, anything else goes to the command line.

Most calls are `condor-advice`, alone or with job ids, `--json`, `--explain`, `--store FILE` or
`--log FILE`. Loading click for these would take a tenth of the time of the answer. Any other call,
and any wrong one, is left to the command line (cli.py).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from condor_advice.gather.errors import AdviceError, UsageError
from condor_advice.gather.foreign_text import guard_terminal, one_line

if TYPE_CHECKING:
    from condor_advice.advise.find_holds import Question

COMPLETING = "_CONDOR_ADVICE_COMPLETE"
FLAGS = ("--json", "--explain", "--all")
FILES = ("--store", "--log")


def main() -> None:
    """Answer, or run the command line; exit statuses are 0, 1, 2, 3 and 4 as documented."""
    # Imports make many objects and little garbage: collecting it again and again would cost a
    # tenth of the time that advice on one job takes.
    gc.set_threshold(100_000, 20, 20)
    guard_terminal()
    words = sys.argv[1:]
    question = None if COMPLETING in os.environ else plain_question(words)
    if question is None:
        from condor_advice.advise.cli import main as command_line

        command_line()
        return
    from condor_advice.advise.answer import answer

    try:
        missing = answer(question, "--json" in words, "--explain" in words)
        if missing:
            raise AdviceError("; ".join(missing))
        leave(0)
    except AdviceError as error:
        print(f"condor-advice: {one_line(error)}", file=sys.stderr)
        leave(error.exit_status)
    except KeyboardInterrupt:
        leave(130)
    except BrokenPipeError:
        os._exit(0)  # `condor-advice | head`: the reader has read enough


def plain_question(words: Sequence[str]) -> Question | None:
    """Parse a plain question; return None to leave it to the command line."""
    ids: list[str] = []
    files: dict[str, list[str]] = {"--store": [], "--log": []}
    rest = iter(words)
    for word in rest:
        if word in FILES:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
            files[word].append(value)
        elif word not in FLAGS:
            if word.startswith("-") or not any(character.isdigit() for character in word):
                return None
            ids.append(word)
    if len(files["--store"]) > 1 or (files["--store"] and files["--log"]):
        return None
    from condor_advice.advise.jobids import parse_job_id

    try:
        wanted = tuple(parse_job_id(text) for text in ids)
    except UsageError:
        return None
    from condor_advice.advise.find_holds import Question

    return Question(
        wanted=wanted,
        logs=tuple(files["--log"]),
        store=files["--store"][0] if files["--store"] else None,
        everybody="--all" in words,
    )


def leave(status: int) -> NoReturn:
    """Exit the process at once, after flushing its output.

    Shutting down the interpreter, object by object, would take a tenth of the time.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
