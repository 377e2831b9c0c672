"""`condor-advice predict`: check a submit file and predict how its jobs will fare."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from condor_advice.gather.foreign_text import one_line

if TYPE_CHECKING:
    from condor_advice.advise.presubmit import Prediction


class WithSubmitArguments(click.Command):
    """A command that keeps the arguments after `--` for condor_submit."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the arguments after `--` aside; click would treat them as files."""
        if "--" in args:
            cut = args.index("--")
            ctx.meta["submit_arguments"] = tuple(args[cut + 1 :])
            args = args[:cut]
        return super().parse_args(ctx, args)


@click.command(
    cls=WithSubmitArguments,
    options_metavar="[OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument(
    "files",
    type=click.Path(path_type=Path),
    nargs=-1,
    required=True,
    metavar="FILE.sub... [-- CONDOR_SUBMIT ARGUMENTS]",
)
@click.option(
    "--model", type=click.Path(path_type=Path), help="Model directory written by `failures train`."
)
@click.option("--user", help="Use this user's history. [default: yours]")
@click.option(
    "--quantile",
    default=0.95,
    show_default=True,
    help="Suggest sizes that suffice for this share of similar jobs.",
)
@click.option(
    "--ignore", multiple=True, metavar="RULE", help="Skip this lint rule; may be repeated."
)
@click.option("--lint-only", is_flag=True, help="Check the file; predict nothing.")
@click.option(
    "--allow-commands",
    is_flag=True,
    help="Run the programs that a file names in `include command` and `queue from PROGRAM |`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per file.")
@click.pass_context
def predict(
    context: click.Context,
    files: tuple[Path, ...],
    model: Path | None,
    user: str | None,
    quantile: float,
    ignore: tuple[str, ...],
    lint_only: bool,
    allow_commands: bool,
    as_json: bool,
) -> None:
    """Check submit files and predict how their jobs will fare.

    Shows errors, the risk of failing, suggested sizes and unusual requests. Exits with 1 if
    HTCondor would refuse or hold a job because of an error in a file.
    """
    from condor_advice.advise.presubmit import predict_submit

    faulty = False
    for file in files:
        prediction = predict_submit(
            file,
            context.meta.get("submit_arguments", ()),
            model_directory=model,
            user=user,
            quantile=quantile,
            ignore=ignore,
            lint_only=lint_only,
            allow_commands=allow_commands,
            now=time.time(),
        )
        if as_json:
            click.echo(json.dumps(prediction.as_dict()))
        else:
            if len(files) > 1:
                _echo(f"{file}:")
            _print(prediction)
        faulty |= any(finding.severity == "error" for finding in prediction.findings)
    if faulty:
        sys.exit(1)


def _print(prediction: Prediction) -> None:
    for finding in prediction.findings:
        where = finding.command or "file"
        _echo(f"{finding.severity}: {where}: {finding.text} [{finding.rule}]")
        _echo(f"    {finding.remedy}")
    if not prediction.findings:
        _echo("no faults found")
    _echo(
        f"{prediction.jobs} job{'' if prediction.jobs == 1 else 's'}"
        + (f", {prediction.looked_at} checked" if prediction.looked_at < prediction.jobs else "")
    )
    if prediction.risk is None:
        if prediction.note:
            _echo(prediction.note)
        return
    risk: dict[str, Any] = prediction.risk
    _echo(
        f"risk of failing: {risk['probability']:.0%}"
        + (
            f" (the riskiest of {len(risk['by_job'])}: {max(risk['by_job']):.0%})"
            if len(risk["by_job"]) > 1
            else ""
        )
        + f"; usual here: {risk['base_rate']:.0%}"
    )
    for reason in risk["reasons"]:
        _echo(f"    {reason['text']} ({reason['share']:+.2f})")
    for size in prediction.sizes:
        _echo(f"{size['command']} = {size['suggested_text']}   # {size['why']}")
    for odd in prediction.anomalies:
        _echo(f"unusual: {odd['text']}")


def _echo(text: str) -> None:
    """Print one line; the submit file that it quotes may be a stranger's."""
    click.echo(one_line(text))
