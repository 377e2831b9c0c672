"""`condor-advice predict`: what to know of a job before it is submitted."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from condor_advice.advise.prediction import Prediction


@click.command(context_settings={"help_option_names": ["-h", "--help"],
                                 "ignore_unknown_options": True})
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.sub")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED,
                metavar="[-- CONDOR_SUBMIT ARGUMENTS]")
@click.option("--model", type=click.Path(path_type=Path),
              help="Model directory made by `failures train`.")
@click.option("--user", help="Whose history to look at; by default the caller's.")
@click.option("--quantile", default=0.95, show_default=True,
              help="Suggested sizes are enough for this share of like jobs.")
@click.option("--ignore", multiple=True, metavar="RULE", help="Do not report this lint rule.")
@click.option("--lint-only", is_flag=True, help="Only look for faults in the file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def predict(file: Path, arguments: tuple[str, ...], model: Path | None, user: str | None,
            quantile: float, ignore: tuple[str, ...], lint_only: bool, as_json: bool) -> None:
    """Look at a submit file: faults, risk of failing with reasons, sizes, oddities.

    Exits with 1 when the file has a fault that HTCondor would refuse or hold the job for.
    """
    from condor_advice.advise.prediction import look_at

    found = look_at(file, arguments, model_directory=model, user=user, quantile=quantile,
                    ignore=ignore, lint_only=lint_only, now=time.time())
    if as_json:
        click.echo(json.dumps(found.as_dict()))
    else:
        _print(found)
    if any(one.severity == "error" for one in found.findings):
        sys.exit(1)


def _print(found: Prediction) -> None:
    for one in found.findings:
        click.echo(f"{one.severity}: {one.command or 'file'}: {one.text} [{one.rule}]")
        click.echo(f"    {one.remedy}")
    if not found.findings:
        click.echo("no faults found")
    click.echo(f"{found.jobs} jobs" + (f", {found.looked_at} looked at"
                                       if found.looked_at < found.jobs else ""))
    if found.risk is None:
        if found.note:
            click.echo(found.note)
        return
    risk: dict[str, Any] = found.risk
    click.echo(f"risk of failing: {risk['probability']:.0%}"
               + (f" (the riskiest of {len(risk['by_job'])}: {max(risk['by_job']):.0%})"
                  if len(risk["by_job"]) > 1 else "")
               + f"; usual here: {risk['base_rate']:.0%}")
    for reason in risk["reasons"]:
        click.echo(f"    {reason['text']} ({reason['share']:+.2f})")
    for size in found.sizes:
        click.echo(f"{size['command']} = {size['suggested_text']}   # {size['why']}")
    for odd in found.anomalies:
        click.echo(f"unusual: {odd['text']}")
