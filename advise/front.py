"""The entry point: answer a plain question at once, pass anything else to the command line.

Most calls are `condor-advice`, alone or with job ids, `--json`, `--explain`, `--store FILE` or
`--log FILE`. Loading click for these would add a tenth to the time of the answer. The command line
(cli.py) handles every other call, and every wrong one.
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

COMPLETION_VARIABLE = "_CONDOR_ADVICE_COMPLETE"
FLAGS = ("--json", "--explain", "--all", "-v", "--verbose")
FILES = ("--store", "--log")
TRAINING_VERBS = ("evaluate", "failures", "sweep", "train")


def main() -> None:
    """Answer, or run the command line; the man page lists the exit statuses."""
    # Imports make many objects and little garbage: frequent collections would add a tenth to the
    # time that advice on one job takes.
    gc.set_threshold(100_000, 20, 20)
    guard_terminal()
    words = sys.argv[1:]
    if not words or words[0] not in TRAINING_VERBS:
        # NumPy starts BLAS threads when it is imported. That costs a third of the CPU time of an
        # answer, and only training uses them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    question = None if COMPLETION_VARIABLE in os.environ else plain_question(words)
    if question is None:
        from condor_advice.advise.cli import main as command_line

        command_line()
        return
    from condor_advice.advise.answer import answer

    try:
        verbose = "-v" in words or "--verbose" in words
        missing = answer(question, "--json" in words, "--explain" in words, verbose=verbose)
        if missing:
            raise AdviceError("; ".join(missing))
        exit_now(0)
    except AdviceError as error:
        print(f"condor-advice: {one_line(error)}", file=sys.stderr)
        exit_now(error.exit_status)
    except KeyboardInterrupt:
        exit_now(130)
    except BrokenPipeError:
        os._exit(0)  # `condor-advice | head`: the reader has read enough


def plain_question(words: Sequence[str]) -> Question | None:
    """Parse a plain question; return None if the command line must handle it."""
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


def exit_now(status: int) -> NoReturn:
    """Exit the process at once, after flushing its output.

    Shutting down the interpreter object by object would take a tenth of the run time.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
