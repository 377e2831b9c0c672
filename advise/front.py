"""The front door: the plain question is answered at once, all others go to the command line.

Most calls are `condor-advice`, or that with job ids, `--json`, `--explain`, `--store FILE` or
`--log FILE`. Loading a parser for these would take a tenth of the time of the answer; whatever else
is asked, or asked wrongly, is for the command line (cli.py) to take or to refuse.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from condor_advice.gather.errors import AdviceError, UsageError

if TYPE_CHECKING:
    from condor_advice.advise.find_holds import Question

COMPLETING = "_CONDOR_ADVICE_COMPLETE"
FLAGS = ("--json", "--explain", "--all")
FILES = ("--store", "--log")


def main() -> None:
    """Answer, or hand on; exit statuses are 0, 1, 2, 3 and 4 as documented."""
    # Imports make many objects and little rubbish: looking for it again and again costs a
    # tenth of the time that advice on one job takes.
    gc.set_threshold(100_000, 20, 20)
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
        print(f"condor-advice: {error}", file=sys.stderr)
        leave(error.exit_status)
    except KeyboardInterrupt:
        leave(130)
    except BrokenPipeError:
        os._exit(0)  # `condor-advice | head`: the reader has what it wants


def plain_question(words: Sequence[str]) -> Question | None:
    """Return what is asked where it is as plain as can be; None leaves it to the command line."""
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
            if word.startswith("-") or not any(one.isdigit() for one in word):
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
    """End the process at once: all is printed and closed.

    Taking the interpreter apart, object by object, would take a tenth of the time.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
