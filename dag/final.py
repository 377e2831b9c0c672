"""The FINAL node, on the access point: test figures, the winner's registration, the report.

python -m condor_advice.dag.final DIR
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from condor_advice.dag.plan import SweepPlan
from condor_advice.dag.scripts import lay_out_evaluation
from condor_advice.dag.state import SweepState, Trial
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.files import replace_file


def main() -> None:
    """Finish a sweep. Write the report even when there is nothing to register."""
    plan = SweepPlan.load(Path(sys.argv[1]))
    with SweepState(plan.directory) as state:
        trials = state.trials()
        cancelled = state.noted("cancelled", False)
    problem: AdviceError | None = None
    evaluation: list[dict[str, Any]] = []
    facts: dict[str, Any] = {}
    if cancelled:
        facts["ended"] = "cancelled; nothing was registered"
    else:
        try:
            evaluation = evaluate(plan, trials)
            facts["model"] = register(plan)
        except AdviceError as error:
            problem = error
            facts["model"] = f"none: {error}"
    from condor_advice.dag.report import write_report

    files = write_report(plan, trials, evaluation, facts)
    print(f"report: {files[0]}")
    if problem is not None:
        raise problem


def evaluate(plan: SweepPlan, trials: list[Trial]) -> list[dict[str, Any]]:
    """Return the best trials' figures on the test split, which is used only once.

    They come from the evaluate node, unless a node before it failed.
    """
    from_node = plan.directory / "evaluate" / "out" / "evaluation.json"
    if not plan.evaluation.exists():
        if from_node.exists():
            shutil.copyfile(from_node, plan.evaluation)
        else:
            from condor_advice.dag.evaluation import evaluate_candidates

            inputs = lay_out_evaluation(plan, trials)
            figures = evaluate_candidates(inputs / "candidates.json", inputs)
            replace_file(plan.evaluation, json.dumps(figures))
    evaluation: list[dict[str, Any]] = json.loads(plan.evaluation.read_text())
    return evaluation


def register(plan: SweepPlan) -> str:
    """Register the best trial's model, which the evaluate node trained; return its name."""
    from condor_advice.dag.candidate import build_listed
    from condor_advice.model.registry import manifest
    from condor_advice.model.registry.versions import Registry

    model = plan.directory / "evaluate" / "out" / "candidate"
    inputs = plan.directory / "evaluate" / "in"
    if json.loads((inputs / "winner.json").read_text()) is None:
        raise AdviceError(
            f"{plan.directory}: no trial can be registered: all trials with a result use "
            "neighbours' steps, which are not available when advice is given; add neighbours: 0 "
            "to the search"
        )
    if not (model / manifest.MANIFEST).exists():
        build_listed(inputs, model)
    weights = manifest.read(model).manifest.model.get("weights", {})
    print(f"weights of the model's parts: {weights} (a part without benefit is left out)")
    with SweepState(plan.directory) as state:
        name = Registry(state.noted("registry")).add(model)
        state.note("model", name)
    print(f"registered the best trial's model as {name}")
    return name


if __name__ == "__main__":
    try:
        main()
    except AdviceError as error:
        print(f"condor-advice: {error}", file=sys.stderr)
        sys.exit(1)
