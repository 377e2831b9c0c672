"""The command line: find the verb, import only its module, print errors for people."""

from __future__ import annotations

import importlib
import sys

import click

from condor_advice import __version__
from condor_advice.advise.jobids import is_account
from condor_advice.gather.errors import AdviceError, UsageError
from condor_advice.gather.foreign_text import guard_terminal, one_line

# verb -> "module:command"; a module is imported only when its verb is used, so that
# `condor-advice JOBID` never pays for the packages that training needs.
VERBS = {
    "job": "condor_advice.advise.commands.job:job",
    "demo": "condor_advice.advise.commands.demo:demo",
    "failures": "condor_advice.advise.commands.failures:failures",
    "predict": "condor_advice.advise.commands.predict:predict",
    "gather": "condor_advice.advise.commands.gather:gather",
    "status": "condor_advice.advise.commands.status:status",
    "history": "condor_advice.advise.commands.history:history",
    "annotate": "condor_advice.advise.commands.annotate:annotate",
    "lab": "condor_advice.advise.commands.lab:lab",
    "sweep": "condor_advice.advise.commands.sweep:sweep",
    "export": "condor_advice.advise.commands.export:export",
    "train": "condor_advice.advise.commands.train:train",
    "evaluate": "condor_advice.advise.commands.evaluate:evaluate",
    "model": "condor_advice.advise.commands.model:model",
}


def _is_job(args: list[str]) -> bool:
    """Tell whether the arguments are for `job`: neither a verb nor a group option comes first."""
    return not args or (args[0] not in VERBS and args[0] not in ("-h", "--help", "--version"))


def _verb_like(word: str) -> str | None:
    """Return the verb that a misspelt one resembles; its options would only confuse `job`."""
    import difflib

    if not word.isalpha() or is_account(word):
        return None
    verbs = [verb for verb in VERBS if verb != "job"]
    return next(iter(difflib.get_close_matches(word, verbs, n=1, cutoff=0.75)), None)


class Verbs(click.Group):
    """A group that imports its commands lazily, and whose default verb takes job ids."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the verbs, without `job`: job ids need no verb."""
        return [verb for verb in VERBS if verb != "job"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of this verb and no other."""
        if name not in VERBS:
            return None
        module, _, command = VERBS[name].partition(":")
        loaded = getattr(importlib.import_module(module), command)
        assert isinstance(loaded, click.Command)
        return loaded

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the options for job ids first, since most calls use them."""
        job = self.get_command(ctx, "job")
        assert job is not None
        below = click.Context(job, info_name=ctx.info_name, parent=ctx)
        records = [parameter.get_help_record(below) for parameter in job.params]
        with formatter.section("Options with job ids, or with none for your own held jobs"):
            formatter.write_dl([record for record in records if record and record[1]])
        super().format_options(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Pass anything that starts with neither a verb nor a group option to `job`.

        Job ids are numbers, so they cannot clash with a verb. No argument means the caller's held
        jobs.
        """
        if args[:1] == ["help"]:
            args = [*args[1:2], "--help"]
        if _is_job(args):
            if args and not ctx.resilient_parsing and (verb := _verb_like(args[0])):
                raise UsageError(f"there is no verb {args[0]!r}; did you mean `{verb}`?")
            args = ["job", *args]
        return super().parse_args(ctx, args)


@click.command(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="[JOBID]... | COMMAND [ARGS]...",
)
@click.version_option(__version__, prog_name="condor-advice")
def cli() -> None:
    """Release, fix or remove? Advice for held HTCondor jobs.

    \b
    condor-advice                 your held jobs
    condor-advice 1234.7          one job; also 1234, 1234.0-9, ap1#1234.7
    condor-advice alice           the held jobs of a user
    condor-advice --log FILE      from an event log, without a pool
    condor-advice VERB --help     help on one of the commands below
    """


def main() -> None:
    """Run the command line; the man page lists the exit statuses."""
    guard_terminal()
    try:
        cli.main(prog_name="condor-advice", standalone_mode=False)
    except AdviceError as error:
        click.echo(f"condor-advice: {one_line(error)}", err=True)
        sys.exit(error.exit_status)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        # `condor-advice | head`: the reader has read enough. Without this the interpreter
        # would complain while it flushes at exit.
        sys.stderr.close()
        sys.exit(0)
