"""The command line: wrap a program, check a submit description, record usage, simulate."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Dict, List, Optional, Union

from condor_checkpoint import wrapper
from condor_checkpoint.policy import POLICIES


def main(argv: Optional[List[str]] = None) -> None:
    """Parse, run, exit with 0, 1 (failure or problems), 2 (wrong usage) or the program's status."""
    arguments = _parser().parse_args(argv)
    try:
        status = arguments.run(arguments)
    except (OSError, ValueError) as error:
        print(f"condor-checkpoint: {error}", file=sys.stderr)
        status = 1
    sys.exit(wrapper.end_like(status))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="condor-checkpoint", description="Save a job's work before it is lost."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_run(verbs)
    _add_check(verbs)
    _add_record(verbs)
    _add_sample(verbs)
    _add_simulate(verbs)
    return parser


def _add_run(verbs: Any) -> None:
    verb = verbs.add_parser(
        "run",
        help="run a program, and save for it when a save is due",
        usage="condor-checkpoint run (--signal SIG | --command CMD) [options] -- PROGRAM ARGS",
    )
    how = verb.add_mutually_exclusive_group(required=True)
    how.add_argument(
        "--signal",
        metavar="SIG",
        type=_signal,
        help="the signal on which the program saves, such as USR1",
    )
    how.add_argument(
        "--command",
        metavar="CMD",
        help="a shell command that saves; CONDOR_CHECKPOINT_PID, CONDOR_CHECKPOINT_REASON and, "
        "with --directory, CONDOR_CHECKPOINT_PATH are in its environment. What it writes to that "
        "path becomes the newest checkpoint when it exits with 0",
    )
    verb.add_argument(
        "--pause",
        action="store_true",
        help="with --command: stop the program and its children while the command runs",
    )
    verb.add_argument(
        "--restore",
        metavar="CMD",
        help="with --directory: run this before the program if there is a checkpoint, "
        "CONDOR_CHECKPOINT_PATH",
    )
    verb.add_argument(
        "--wait-for", metavar="PATH", help="with --signal: the save is done when this file changes"
    )
    verb.add_argument(
        "--period",
        type=_period,
        default="auto",
        metavar="SECONDS",
        help="between saves; 'auto' (the default) computes the best, 'none' saves on alarms only",
    )
    verb.add_argument(
        "--policy",
        choices=[name for name in POLICIES if name != "none"],
        default="ours",
        help="with --period auto (default: ours)",
    )
    verb.add_argument(
        "--mtbf", type=float, metavar="SECONDS", help="mean time between failures, if you know it"
    )
    verb.add_argument(
        "--exit-after",
        type=_exit_code,
        metavar="CODE",
        help="after a save end the program and exit with this code, for "
        "HTCondor's checkpoint_exit_code; 'auto': the code in the job ad",
    )
    verb.add_argument(
        "--directory",
        metavar="DIR",
        help="where checkpoints go; also keeps what one run tells the next",
    )
    verb.add_argument("--save-timeout", type=float, default=600.0, metavar="SECONDS")
    verb.add_argument(
        "--interval",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="between samples of the usage (default: 5)",
    )
    verb.add_argument(
        "--model",
        default="auto",
        metavar="FILE",
        help="a model made by condor-advice failures train --usage",
    )
    verb.add_argument("--record", metavar="FILE", help="also append the samples to this file")
    verb.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM")
    verb.set_defaults(run=_run, parser=verb)


def _run(arguments: argparse.Namespace) -> int:
    return wrapper.Wrapper(
        _program(arguments),
        save_signal=arguments.signal,
        command=arguments.command,
        restore=arguments.restore,
        pause=arguments.pause,
        wait_for=arguments.wait_for,
        save_timeout=arguments.save_timeout,
        exit_after=arguments.exit_after,
        record=arguments.record,
        period=arguments.period,
        policy=arguments.policy,
        mtbf=arguments.mtbf,
        directory=arguments.directory,
        interval=arguments.interval,
        model=arguments.model,
    ).run()


def _add_check(verbs: Any) -> None:
    verb = verbs.add_parser(
        "check",
        help="say where a submit description would lose checkpoints",
        description="Read a submit description and say where the job would lose checkpoints. "
        "The exit status is 0 if there are no problems, 1 if there are, and 2 for wrong usage.",
    )
    verb.add_argument("submit", metavar="JOB.SUB")
    verb.add_argument(
        "--exists-at-start",
        action="append",
        default=[],
        metavar="NAME",
        help="an output that the program creates when it starts; may be repeated",
    )
    verb.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    from condor_checkpoint import check

    problems = check.check_file(arguments.submit, arguments.exists_at_start)
    for problem in problems:
        print(f"{arguments.submit}: {problem}")
    if not problems:
        print(f"{arguments.submit}: checkpoints survive a hold and an eviction")
    return 1 if problems else 0


def _add_record(verbs: Any) -> None:
    verb = verbs.add_parser(
        "record",
        help="run a program and record its usage",
        usage="condor-checkpoint record --out FILE -- PROGRAM ARGS",
    )
    verb.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="append samples to this file, one JSON object per line",
    )
    verb.add_argument("--interval", type=float, default=5.0, metavar="SECONDS")
    verb.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM")
    verb.set_defaults(run=_record, parser=verb)


def _record(arguments: argparse.Namespace) -> int:
    return wrapper.Wrapper(
        _program(arguments), record=arguments.out, interval=arguments.interval, model=None
    ).run()


def _add_sample(verbs: Any) -> None:
    verb = verbs.add_parser("sample", help="print the current usage of this job as JSON")
    verb.set_defaults(run=_sample)


def _sample(arguments: argparse.Namespace) -> int:
    from condor_checkpoint.sample import Sampler

    print(json.dumps(Sampler().take()._asdict(), indent=2))
    return 0


def _add_simulate(verbs: Any) -> None:
    verb = verbs.add_parser(
        "simulate",
        help="compare policies on failure traces",
        description="Replay failures under each policy and report the share of wall time that "
        "is wasted: work lost, saves, restarts.",
    )
    verb.add_argument(
        "--trace",
        default="exponential",
        metavar="TRACE",
        help="exponential, weibull, weibull:SHAPE, or a table of jobs: CSV with "
        "start, end, failed, or a workload log (.swf), also .gz or .xz",
    )
    verb.add_argument(
        "--mtbf",
        type=float,
        action="append",
        metavar="SECONDS",
        help="may be repeated (default: 1e4, 1e5, 1e6)",
    )
    verb.add_argument(
        "--native",
        action="store_true",
        help="with a table of jobs: its own mean time between failures",
    )
    verb.add_argument(
        "--cost",
        type=float,
        action="append",
        metavar="SECONDS",
        help="of a save; may be repeated (default: 10, 60, 600)",
    )
    verb.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help="may be repeated (default: all, and the oracle)",
    )
    for name, text in (
        ("recall", "share of failures that are announced, in time or not"),
        ("precision", "share of alarms that are followed by a failure"),
        ("lead", "median lead time of an alarm, in costs of a save"),
        ("lead-spread", "standard deviation of the logarithm of the lead time"),
        ("restart", "cost of a restart, in costs of a save"),
        ("repeat", "share of failures that strike again at the same point"),
        ("repeats", "how often such a failure strikes again, on average"),
        ("job", "mean work of a job, in mean times between failures"),
    ):
        verb.add_argument("--" + name, type=float, help=text)
    verb.add_argument(
        "--lead-seconds",
        type=float,
        metavar="SECONDS",
        help="median lead time in seconds, whatever a save costs",
    )
    verb.add_argument("--jobs", type=int, default=1000, help="jobs in each cell (default: 1000)")
    verb.add_argument("--seed", type=int, default=1)
    verb.add_argument("--json", action="store_true", help="print one JSON object")
    verb.add_argument("--plot", metavar="FILE.svg", help="draw the cells")
    verb.set_defaults(run=_simulate, parser=verb)


def _simulate(arguments: argparse.Namespace) -> int:
    from condor_checkpoint import plot, simulate, traces

    names = arguments.policy or list(simulate.ALL_POLICIES)
    unknown = [name for name in names if name not in simulate.ALL_POLICIES]
    if unknown:
        arguments.parser.error(
            f"unknown policy {unknown[0]!r}; known: {', '.join(simulate.ALL_POLICIES)}"
        )
    trace = traces.find_trace(arguments.trace)
    settings = {
        name: getattr(arguments, name)
        for name in simulate.World._fields
        if name not in ("mtbf", "cost") and getattr(arguments, name) is not None
    }
    mtbfs = [trace.mtbf] if arguments.native else arguments.mtbf or list(simulate.MTBFS)
    cells = []
    for mtbf in mtbfs:
        for cost in arguments.cost or simulate.COSTS:
            if arguments.lead_seconds is not None:
                settings["lead"] = arguments.lead_seconds / cost
            world = simulate.World(mtbf, cost, **settings)
            cells.append(simulate.run_cell(world, trace, arguments.jobs, arguments.seed, names))
    result: Dict[str, Any] = {
        "trace": trace.name,
        "trace_mtbf": trace.mtbf,
        "jobs": arguments.jobs,
        "seed": arguments.seed,
        "cells": cells,
    }
    if trace.mtbf != trace.mtbf:
        del result["trace_mtbf"]
    if arguments.plot:
        with open(arguments.plot, "w", encoding="utf-8") as file:
            file.write(plot.bars(cells))
    if arguments.json:
        print(json.dumps(result))
    else:
        print(simulate.table(cells))
    return 0


def _program(arguments: argparse.Namespace) -> List[str]:
    program = wrapper.split_program(arguments.program)
    if not program:
        arguments.parser.error("no program to run; it comes after --")
    return program


def _signal(text: str) -> int:
    try:
        return wrapper.signal_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _period(text: str) -> Union[str, float, None]:
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    return float(text)


def _exit_code(text: str) -> Union[str, int]:
    return text if text == "auto" else int(text)
