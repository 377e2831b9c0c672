"""`condor-advice predict`: what to know of a job before it is submitted."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from condor_advice.advise.presubmit.prediction import Prediction


class WithSubmitArguments(click.Command):
    """A command that keeps what stands after `--` for condor_submit."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the arguments after `--` aside; click would mix them with the files."""
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
    "--model", type=click.Path(path_type=Path), help="Model directory made by `failures train`."
)
@click.option("--user", help="Whose history to look at; by default the caller's.")
@click.option(
    "--quantile",
    default=0.95,
    show_default=True,
    help="Suggested sizes are enough for this share of like jobs.",
)
@click.option("--ignore", multiple=True, metavar="RULE", help="Do not report this lint rule.")
@click.option("--lint-only", is_flag=True, help="Only look for faults in the file.")
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
    as_json: bool,
) -> None:
    """Look at submit files: faults, risk of failing with reasons, sizes, oddities.

    Exits with 1 when a file has a fault that HTCondor would refuse or hold the job for.
    """
    from condor_advice.advise.presubmit.prediction import look_at

    faulty = False
    for file in files:
        found = look_at(
            file,
            context.meta.get("submit_arguments", ()),
            model_directory=model,
            user=user,
            quantile=quantile,
            ignore=ignore,
            lint_only=lint_only,
            now=time.time(),
        )
        if as_json:
            click.echo(json.dumps(found.as_dict()))
        else:
            if len(files) > 1:
                click.echo(f"{file}:")
            _print(found)
        faulty |= any(one.severity == "error" for one in found.findings)
    if faulty:
        sys.exit(1)


def _print(found: Prediction) -> None:
    for one in found.findings:
        click.echo(f"{one.severity}: {one.command or 'file'}: {one.text} [{one.rule}]")
        click.echo(f"    {one.remedy}")
    if not found.findings:
        click.echo("no faults found")
    click.echo(
        f"{found.jobs} job{'' if found.jobs == 1 else 's'}"
        + (f", {found.looked_at} looked at" if found.looked_at < found.jobs else "")
    )
    if found.risk is None:
        if found.note:
            click.echo(found.note)
        return
    risk: dict[str, Any] = found.risk
    click.echo(
        f"risk of failing: {risk['probability']:.0%}"
        + (
            f" (the riskiest of {len(risk['by_job'])}: {max(risk['by_job']):.0%})"
            if len(risk["by_job"]) > 1
            else ""
        )
        + f"; usual here: {risk['base_rate']:.0%}"
    )
    for reason in risk["reasons"]:
        click.echo(f"    {reason['text']} ({reason['share']:+.2f})")
    for size in found.sizes:
        click.echo(f"{size['command']} = {size['suggested_text']}   # {size['why']}")
    for odd in found.anomalies:
        click.echo(f"unusual: {odd['text']}")
