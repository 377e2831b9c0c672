"""Measure the figures of docs/checkpoint-results.md, and write that page.

    python bench/reports/checkpoint/results.py --data DIR [--jobs N] [--only PART,PART]

--data names the directory of the public tables: CTC-SP2-1996-3.1-cln.swf.xz,
KTH-SP2-1996-2.1-cln.swf.xz and purdue-usage-20k.csv.xz. The parts `simulate` and `model` read
them and leave out a table that is missing; `pool` and `cost` do not need them. All parts take
about ten minutes on two cores. Parts that are not run keep their figures in figures.json.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.util
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from condor_checkpoint import plot, simulate, traces

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PAGE = ROOT / "docs/checkpoint-results.md"
PICTURE = ROOT / "docs/checkpoint-results.svg"
FIGURES = HERE / "figures.json"
GOOD_RECALL, LESS_WASTE = 0.7, 0.10

# title -> (trace, settings of the world, median lead time in seconds or None, share of --jobs)
GRIDS: dict[str, tuple[str, dict[str, float], float | None, float]] = {
    "Failures without memory": ("exponential", {}, None, 1.0),
    "Failures in bursts (Weibull, shape 0.7)": ("weibull", {}, None, 0.5),
    "A poor predictor (recall 0.4, precision 0.3)": (
        "exponential",
        {"recall": 0.4, "precision": 0.3},
        None,
        0.5,
    ),
    "A fixed lead time: half of the alarms come within 300 s of the failure": (
        "exponential",
        {},
        300.0,
        0.5,
    ),
    "Replay of CTC-SP2": ("CTC-SP2-1996-3.1-cln.swf.xz", {}, None, 0.25),
    "Replay of KTH-SP2": ("KTH-SP2-1996-2.1-cln.swf.xz", {}, None, 0.25),
}


def one_cell(task: tuple[str, float, float, dict[str, float], int]) -> dict[str, Any]:
    """Run one cell; a task for another process."""
    name, mtbf, cost, settings, jobs = task
    return simulate.run_cell(simulate.World(mtbf, cost, **settings), find_trace(name), jobs, 1)


@functools.cache
def find_trace(name: str) -> traces.Trace:
    """Return a trace, read once in each process."""
    return traces.find_trace(name)


def measure_simulate(jobs: int, data: Path) -> dict[str, Any]:
    """Run every grid; leave out replays whose table is missing."""
    cells = {}
    with multiprocessing.Pool(2) as pool:
        for title, (trace, settings, lead, share) in GRIDS.items():
            if trace.endswith(".xz"):
                if not (data / trace).exists():
                    print(f"{data / trace}: missing; left out", file=sys.stderr)
                    continue
                trace = str(data / trace)
            tasks = [
                (
                    trace,
                    mtbf,
                    cost,
                    {**settings, "lead": lead / cost} if lead else settings,
                    max(10, int(jobs * share)),
                )
                for mtbf in simulate.MTBFS
                for cost in simulate.COSTS
            ]
            cells[title] = pool.map(one_cell, tasks, chunksize=1)
            print(title, file=sys.stderr)
    return cells


def measure_model(jobs: int, data: Path) -> dict[str, Any]:
    """Train on the recorded usage; evaluate on the public table of usage."""
    from condor_advice.model import checkpoint_risk as usage

    with tempfile.TemporaryDirectory() as directory:
        report = usage.train(
            [HERE / "usage.jsonl.xz"], Path(directory, "model.json"), leave_out=usage.LABORATORY
        )
    reports = {"recorded": report}
    table = data / "purdue-usage-20k.csv.xz"
    if table.exists():
        reports["table"] = usage.evaluate_table(table)
    else:
        print(f"{table}: missing; left out", file=sys.stderr)
    return reports


def measure_pool(jobs: int, data: Path) -> dict[str, Any]:
    """Run the same mix of jobs with and without the hook, as the tests do."""
    from condor_advice.lab.pool import Pool

    source = ROOT / "tests/checkpoint/test_checkpoint_on_a_pool.py"
    spec = importlib.util.spec_from_file_location("mix", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory() as directory, Pool() as pool:
        mix = module.Mix(pool, Path(directory))
        return {name: {"lost": mix.lost(name), "steps": len(mix.steps(name))} for name in mix.ads}


def measure_cost(jobs: int, data: Path) -> dict[str, Any]:
    """Run the benchmarks of the hook."""
    done = subprocess.run(
        [sys.executable, ROOT / "bench/checkpoint.py"], capture_output=True, text=True, check=True
    )
    return {line["benchmark"]: line for line in map(json.loads, done.stdout.splitlines())}


MEASURE: dict[str, Callable[[int, Path], dict[str, Any]]] = {
    "simulate": measure_simulate,
    "model": measure_model,
    "pool": measure_pool,
    "cost": measure_cost,
}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def percent(value: float, digits: int = 2) -> str:
    """Format a share in percent."""
    return f"{100 * value:.{digits}f}"


def write_simulate(figures: dict[str, Any]) -> list[str]:
    """Describe how the policies compare."""
    lines = [
        "## Policies, simulated",
        "",
        "Waste is the share of wall time that is not work that counts: work lost, saves, and",
        "restarts. Every policy meets the same jobs, failures and alarms. *In time* is the share",
        "of failures that are announced early enough for a save; *less than either* is how much",
        "less ours wastes than saving by Young's period or on any alarm, with its 95 % confidence",
        "interval; *kept* is the share of what is wasted without saves that ours keeps;",
        "*to the oracle* is the waste above that of a policy that knows the future.",
        "",
        f"![Waste by policy]({PICTURE.name})",
        "",
    ]
    for title, cells in figures.items():
        lines += [f"### {title}", ""]
        first = cells[0]
        lines += [
            f"Recall {first['recall']:g}, precision {first['precision']:g}, "
            f"{first['jobs']} jobs in each cell. Waste in %.",
            "",
        ]
        names = list(first["waste"])
        head = ["MTBF", "save", "in time", *names, "less than either", "kept", "to the oracle"]
        rows = []
        for cell in cells:
            waste, minus = cell["waste"], cell["ours_minus"]["either"]
            rows.append(
                [
                    f"{cell['mtbf']:.0e}",
                    f"{cell['checkpoint_cost']:g}",
                    f"{cell['recall_in_time']:.2f}",
                    *(percent(waste[name]) for name in names),
                    f"{-100 * minus['waste'] / waste['either']:.1f} "
                    f"± {100 * minus['half_width'] / waste['either']:.1f} %",
                    f"{100 * cell['saved']['ours']:.1f} %",
                    f"{100 * (waste['ours'] - waste['oracle']):.2f}",
                ]
            )
        lines += [*table(head, rows), "", *verdict(cells), ""]
    return lines


def verdict(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Compare the cells with the targets."""
    worse, beaten = [], []
    for cell in cells:
        waste = cell["waste"]
        for name, minus in cell["ours_minus"].items():
            if name != "oracle" and minus["waste"] > 0:
                where = f"{cell['mtbf']:.0e}/{cell['checkpoint_cost']:g}"
                worse.append(
                    f"{name} at {where} (by {100 * minus['waste'] / waste[name]:.1f} "
                    f"± {100 * minus['half_width'] / waste[name]:.1f} %)"
                )
        if cell["recall_in_time"] >= GOOD_RECALL:
            beaten.append(waste["ours"] <= (1 - LESS_WASTE) * waste["either"])
    lines = [
        "Ours is at least as good as every other policy in every cell."
        if not worse
        else "Cells in which another policy wasted less than ours: " + ", ".join(worse) + "."
    ]
    if beaten:
        lines.append(
            f"Of the {len(beaten)} cells with a recall in time of {GOOD_RECALL} or more, ours "
            f"wastes at least {100 * LESS_WASTE:.0f} % less than either in {sum(beaten)}."
        )
    return lines


def write_model(reports: dict[str, Any]) -> list[str]:
    """Describe how good the risk model is."""
    report = reports["recorded"]
    lines = [
        "## The risk model",
        "",
        f"Trained on the usage of {report['jobs']} jobs recorded on a real pool "
        "(`bench/reports/checkpoint/record_usage.py`: leaks, leaks in bursts, disks filling, "
        "time limits, "
        "sudden crashes, and four healthy kinds that are made to look alike), judged on the last "
        f"{report['judged_jobs']}, of which {report['failed_judged_jobs']} failed. The question at "
        f"each sample: does the job fail within {report['horizon_intervals']} samples? An alarm "
        "is true if it stands when the job fails.",
        "",
    ]
    rows = []
    for name in ("trees", "trends", "combined"):
        scores = report[name]
        lead = scores["median_lead_intervals"]
        rows.append(
            [
                name,
                f"{scores['roc_auc']:.3f}",
                f"{scores['pr_auc']:.3f}",
                f"{scores['recall']:.2f}",
                f"{scores['precision']:.2f}",
                f"{lead:.0f} samples" if lead is not None else "",
                f"{scores['false_alarms_per_1000_samples']:.1f}",
                f"{scores['false_alarms_per_hour']:.0f}",
            ]
        )
    random = report["random_split"]
    head = ["", "ROC AUC", "PR AUC", "recall", "precision", "median lead"]
    lines += table([*head, "false alarms per 1000 samples", "per hour at 0.5 s"], rows)
    causes = ", ".join(
        f"{cause} {hit:.2f}" for cause, hit in report["trees"]["recall_by_cause"].items()
    )
    lines += [
        "",
        f"A random split of the samples would have claimed ROC AUC {random['roc_auc']:.3f} and "
        f"PR AUC {random['pr_auc']:.3f} for the trees. Recall by cause: {causes}. A sudden crash "
        "gives no sign, so alarms before one are luck. Samples were taken every 0.5 s; at the "
        "default of 5 s the same count of samples takes ten times as long. The base rate is "
        f"{report['trees']['base_rate']:.2f}.",
        "",
        "Precision-recall curve of the trees (recall, precision): "
        + ", ".join(f"({r:g}, {p:g})" for r, p in report["trees"]["pr_curve"])
        + ".",
        "",
        "The laboratory is not your pool: the hook is told half of the measured recall.",
        "",
    ]
    if "table" in reports:
        judged = reports["table"]
        lines += [
            f"On a public table of the mean usage of {judged['rows']} jobs "
            f"({percent(judged['base_rate'], 1)} % failed; no time in it, so no lead times and no "
            "false alarms per hour), the same trees:",
            "",
            *table(
                ["split", "ROC AUC", "PR AUC", "base rate of the judged part"],
                [
                    [
                        name,
                        f"{judged[key]['roc_auc']:.3f}",
                        f"{judged[key]['pr_auc']:.3f}",
                        f"{judged[key]['base_rate']:.3f}",
                    ]
                    for name, key in (("random", "random"), ("in order of job ids", "id_order"))
                ],
            ),
            "",
            "Precision-recall curve in order of ids (recall, precision): "
            + ", ".join(f"({r:g}, {p:g})" for r, p in judged["id_order"]["pr_curve"])
            + ".",
            "",
            "What a random split claims does not hold for later jobs, and no model is shipped "
            "from this table.",
            "",
        ]
    return lines


def write_pool(figures: dict[str, Any]) -> list[str]:
    """Describe what was lost on the pool."""
    rows = [[name, f"{job['steps']}", f"{job['lost']:.1f}"] for name, job in figures.items()]
    with_hook, without = (
        sum(figures[f"{kind}-{how}"]["lost"] for kind in ("leak", "evicted"))
        for how in ("hook", "plain")
    )
    return [
        "## The same jobs on a real pool, with and without the hook",
        "",
        "Steps of 0.1 s are counted each time they are executed; what is executed twice was lost.",
        "*leak* grows towards its memory limit, is held, gets more memory and is released; "
        "*evicted* is vacated; *trouble* has saves that raise, hang and fill the disk; *shell* is "
        "a wrapped shell script.",
        "",
        *table(["job", "steps executed", "seconds of work lost"], rows),
        "",
        f"With the hook {with_hook:.1f} s were lost, without it {without:.1f} s.",
        "",
    ]


def write_cost(figures: dict[str, Any]) -> list[str]:
    """Describe what the hook costs."""
    rows = [
        [
            name,
            f"{result['value']:g} {result['unit']}",
            f"{result['target']:g}" if "target" in result else "",
        ]
        for name, result in figures.items()
    ]
    head = ["benchmark", "measured", "target (below)"]
    return ["## What the hook costs", "", *table(head, rows), ""]


WRITE = {"simulate": write_simulate, "model": write_model, "pool": write_pool, "cost": write_cost}


def main() -> None:
    """Measure the chosen parts, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="DIR", help="the public tables")
    parser.add_argument("--jobs", type=int, default=3000, help="in each cell [%(default)s]")
    parser.add_argument("--only", default=",".join(MEASURE), help="parts to run [%(default)s]")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if unknown := sorted({*parts} - {*MEASURE}):
        parser.error(f"--only: no part {', '.join(unknown)}; the parts are {', '.join(MEASURE)}")
    if arguments.data is None and {*parts} & {"simulate", "model"}:
        parser.error("simulate and model need --data DIR; or name other parts with --only")
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for part in parts:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        figures[part] = {"date": today, "found": MEASURE[part](arguments.jobs, arguments.data)}
        FIGURES.write_text(json.dumps(figures) + "\n")
    lines = [
        "# Checkpoints: what was measured",
        "",
        "Written by `bench/reports/checkpoint/results.py`; do not edit. "
        f"Python {platform.python_version()}, {os.cpu_count()} cores shared with other work.",
        "",
    ]
    for part, write in WRITE.items():
        if part in figures:
            lines += write(figures[part]["found"])
            lines += [f"Measured on {figures[part]['date']}.", ""]
    PAGE.write_text("\n".join(lines).rstrip() + "\n")
    if "simulate" in figures:
        first = next(iter(figures["simulate"]["found"].values()))
        PICTURE.write_text(plot.bars(first))


if __name__ == "__main__":
    main()
