"""Generate the man page and the shell completions from the commands' help.

    python tools/write_man.py            write docs/man/condor-advice.1 and docs/completion/
    python tools/write_man.py --check    exit with 1 if these files are out of date

A test checks that the files are up to date.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import click
from click.shell_completion import BashComplete, ZshComplete

from condor_advice import __version__
from condor_advice.advise.cli import VERBS, cli

DOCS = Path(__file__).resolve().parents[1] / "docs"
NAME = "condor-advice"
EXIT_STATUS = (
    ("0", "Done."),
    ("1", "Something could not be answered; the message says what."),
    ("2", "Wrong usage."),
    ("3", "No such job, or it is not held."),
    ("4", "The pool or the store cannot be reached."),
)
ENVIRONMENT = (
    ("CONDOR_CONFIG", "HTCondor's configuration file, as for HTCondor's own tools."),
    ("CONDOR_ADVICE_STORE", "The default store."),
    ("CONDOR_ADVICE_MODELS", "The directory of models."),
    ("CONDOR_ADVICE_SITE", "The site's policy file, instead of the files below."),
    ("NO_COLOR", "If set, no colours even on a terminal."),
    ("COLUMNS", "The width of the output."),
)
FILES = (
    ("/etc/condor-advice/site.toml", "The site's policies: deadlines, limits, final hold codes."),
    ("$XDG_CONFIG_HOME/condor-advice/site.toml", "The same for one user; takes precedence."),
    ("$XDG_DATA_HOME/condor-advice/store.sqlite", "The default store."),
)


def roff(text: str) -> str:
    """Escape text for roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    text = re.sub(r"^\.", r"\\&.", text, flags=re.MULTILINE)
    return "".join(char if ord(char) < 128 else f"\\[u{ord(char):04X}]" for char in text)


def paragraphs(text: str) -> list[str]:
    """Return help text as roff; blocks that start with `\\b` keep their line breaks."""
    lines = []
    for block in inspect.cleandoc(text).replace("\f", "").split("\n\n"):
        if block.startswith("\b"):
            lines += [".PP", ".nf", roff(block[1:].strip("\n")), ".fi"]
        else:
            lines += [".PP", roff(" ".join(block.split()))]
    return lines


def options(command: click.Command, ctx: click.Context) -> list[str]:
    """Return the options of a command."""
    lines = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None and record[1]:
            lines += [".TP", f"\\fB{roff(record[0])}\\fR", roff(record[1])]
    return lines


def verb_lines(path: str, command: click.Command, above: click.Context) -> list[str]:
    """Return the section of a verb, including its subcommands."""
    ctx = click.Context(command, info_name=path, parent=above)
    ctx.help_option_names = ["-h", "--help"]
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines = [f".SS {roff(path)}", f"\\fB{roff(path)}\\fR {roff(usage)}"]
    lines += paragraphs(command.help or "")
    lines += options(command, ctx)
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            if below is not None and not below.hidden:
                lines += verb_lines(f"{path} {name}", below, ctx)
    return lines


def man_page() -> str:
    """Return the whole page."""
    ctx = click.Context(cli, info_name=NAME)
    job = cli.get_command(ctx, "job")
    assert job is not None
    job_ctx = click.Context(job, info_name=NAME)
    lines = [
        f'.TH CONDOR\\-ADVICE 1 "" "condor\\-advice {__version__}" "User Commands"',
        ".SH NAME",
        "condor\\-advice \\- release, fix or remove? advice for held HTCondor jobs",
        ".SH SYNOPSIS",
        f".B {roff(NAME)}",
        roff(" ".join(job.collect_usage_pieces(job_ctx))),
        ".br",
        f".B {roff(NAME)}",
        "\\fIVERB\\fR [OPTIONS] ...",
        ".SH DESCRIPTION",
        *paragraphs(job.help or "")[1:],
        ".SH OPTIONS",
        *options(job, job_ctx),
        ".SH VERBS",
    ]
    for name in VERBS:
        command = cli.get_command(ctx, name)
        if name != "job" and command is not None:
            lines += verb_lines(name, command, ctx)
    for title, table in (
        ("EXIT STATUS", EXIT_STATUS),
        ("ENVIRONMENT", ENVIRONMENT),
        ("FILES", FILES),
    ):
        lines.append(f".SH {title}")
        for item, meaning in table:
            lines += [".TP", f"\\fB{roff(item)}\\fR", roff(meaning)]
    lines += [".SH SEE ALSO", "condor_q(1), condor_release(1), condor_qedit(1), condor_rm(1)"]
    return "\n".join(lines) + "\n"


def completions() -> dict[str, str]:
    """Return the completion scripts by file name."""
    variable = "_CONDOR_ADVICE_COMPLETE"
    return {
        "condor-advice.bash": BashComplete(cli, {}, NAME, variable).source(),
        "_condor-advice": ZshComplete(cli, {}, NAME, variable).source(),
    }


def files() -> dict[Path, str]:
    """Return the content of each generated file."""
    contents = {DOCS / "man" / "condor-advice.1": man_page()}
    for name, text in completions().items():
        contents[DOCS / "completion" / name] = text.strip("\n") + "\n"
    return contents


def main() -> None:
    """Write the files, or with --check report which are out of date."""
    stale = [path for path, text in files().items() if not _is(path, text)]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path}: out of date; run `make man`", file=sys.stderr)
        raise SystemExit(1 if stale else 0)
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files()[path])
        print(path)


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    main()
