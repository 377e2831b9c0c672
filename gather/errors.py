"""Errors shown to the user. A message says where, what, and what to do next."""

from __future__ import annotations


class AdviceError(Exception):
    """Something the user can act on; the command line prints it without a traceback.

    `exit_status`: 1 no answer possible, 2 wrong usage, 3 no such job or not held,
    4 pool or store unreachable.
    """

    exit_status = 1


class UsageError(AdviceError):
    """The command line is wrong in a way that the option parser cannot detect."""

    exit_status = 2


class NoSuchJob(AdviceError):
    """The job is unknown, or is not held."""

    exit_status = 3


class Unreachable(AdviceError):
    """The pool or the store cannot be reached."""

    exit_status = 4
