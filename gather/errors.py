"""The errors a user may see: where, what, and what to do next."""

from __future__ import annotations


class AdviceError(Exception):
    """Something the user can act on; the command line prints it without a traceback.

    `exit_status` follows DESIGN: 1 could not be answered, 2 wrong usage, 3 no such job
    or not held, 4 pool or store not reachable.
    """

    exit_status = 1


class UsageError(AdviceError):
    """The command was called wrongly in a way that only its own code can see."""

    exit_status = 2


class NoSuchJob(AdviceError):
    """The job is not known, or is not held."""

    exit_status = 3


class Unreachable(AdviceError):
    """The pool or the store cannot be reached."""

    exit_status = 4
