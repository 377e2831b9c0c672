"""The options that make `condor-advice` act on its advice, and the dialogue with the caller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from condor_advice.gather.errors import AdviceError, UsageError

if TYPE_CHECKING:
    from condor_advice.advise.advice import Advice
    from condor_advice.advise.apply.plan import ApplyPlan

_OPTIONS = (
    click.option(
        "--apply",
        "acts",
        is_flag=True,
        help="Act on the advice, after showing a summary and asking.",
    ),
    click.option("--yes", is_flag=True, help="With --apply: do not ask."),
    click.option(
        "--confidence",
        type=click.FloatRange(0, 1),
        metavar="P",
        help="With --apply: release only jobs whose chance of success is at least P.",
    ),
    click.option(
        "--fix", is_flag=True, help="With --apply: also edit and release jobs with verdict FIX."
    ),
    click.option(
        "--remove", is_flag=True, help="With --apply: also remove jobs with verdict REMOVE."
    ),
)


class ActionsFailed(AdviceError):
    """Some actions failed."""


def apply_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, as parameters acts, yes, confidence, fix and remove."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(slots=True)
class Acting:
    """Acts on advice as the options say; `--watch` asks only until the caller agrees once."""

    acts: bool
    yes: bool
    confidence: float | None
    fix: bool
    remove: bool
    quiet: bool = False  # messages go to stderr: stdout is for JSON
    failures: list[str] = field(default_factory=list)

    def check(self, **elsewhere: object) -> None:
        """Reject options that contradict each other, before any work is done.

        `elsewhere` are the options that answer from something other than the queue.
        """
        if not self.acts:
            given = {"yes": self.yes, "fix": self.fix, "remove": self.remove}
            for name, is_given in (given | {"confidence": self.confidence is not None}).items():
                if is_given:
                    raise UsageError(f"--{name} works only together with --apply")
            return
        for name, value in elsewhere.items():
            if value:
                raise UsageError(
                    f"--apply acts on the queue as it is now, so it excludes --{name}; "
                    "CONDOR_ADVICE_STORE names the store to use for evidence"
                )
        if not self.yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError(
                "--apply asks before it acts, and there is no terminal to ask on; add --yes"
            )

    def on(self, advices: Sequence[Advice]) -> dict[str, dict[str, Any]]:
        """Act, report what was done, and return by job what `--json` shows of it."""
        from condor_advice.advise.apply.execute import apply, outcome, summary
        from condor_advice.advise.apply.plan import ApplyLimits, ApplyRequest
        from condor_advice.advise.site import load_site
        from condor_advice.gather.live import AccessPoint, local_access_point

        limits = ApplyLimits.read(load_site().acting)
        request = ApplyRequest(self.confidence, self.fix, self.remove)
        # Without a schedd the jobs come from the store, and none of them may be the caller's.
        if not advices or any(not advice.hold.ad for advice in advices):
            raise AdviceError(
                "the schedd did not answer, so nothing was done; check that it is running"
            )
        name = advices[0].hold.job.access_point
        point = AccessPoint.find(None if name == local_access_point() else name)
        applied = apply(advices, point, None, limits, request, self._agree)
        if not applied.plan.acts():
            self._say(summary(applied.plan))
            self._say("Nothing to do now.")
        self._say(outcome(applied) if applied.agreed else "Nothing was done.")
        self.failures += [
            f"{action.advice.job} ({action.action} {action.result.value})"
            for action in applied.failed()
        ]
        return applied.by_job()

    def finish(self) -> None:
        """Raise ActionsFailed if any action failed."""
        if self.failures:
            raise ActionsFailed(
                f"some actions failed: {', '.join(self.failures)}; "
                "`condor-advice history` shows why"
            )

    def _agree(self, plan: ApplyPlan) -> bool:
        from condor_advice.advise.advice import caller
        from condor_advice.advise.apply.execute import question, summary

        self._say(f"\n{summary(plan)}")
        if self.yes:
            return True
        agreed = click.confirm(question(plan, caller()), default=False, err=True)
        self.yes = agreed  # with --watch: for the following rounds too
        return agreed

    def _say(self, text: str) -> None:
        if text:
            click.echo(text, err=self.quiet)
