"""The report of a sweep is one page in the style of all reports, with its plots."""

from __future__ import annotations

import json

from condor_advice.dag.report import write_report
from condor_advice.dag.state import Trial, TrialState
from condor_advice.model import html_report


def test_the_page_ranks_trials_escapes_reasons_and_says_what_is_missing(planned):
    plan = planned(trials=3)
    parameters = {"learning_rate": 0.01, "hidden": 4, "epochs": 2}
    trials = [
        Trial(0, TrialState.FINISHED, parameters, epochs={1: {"validation_loss": 0.6}}),
        Trial(1, TrialState.FINISHED, parameters, epochs={1: {"validation_loss": 0.5}}),
        Trial(2, TrialState.FAILED, parameters, reason="the <loss> was not finite"),
    ]
    figures = dict.fromkeys(("log_loss", "roc_auc", "pr_auc", "brier", "calibration_error"), 0.25)
    evaluation = [{"trial": 1, "validation": figures, "test": figures}]
    index, *others = write_report(plan, trials, evaluation, {"model": "held-1"})
    text = index.read_text()
    assert html_report.page("", []).split("<style>")[1].split("</style>")[0] in text
    assert '<tr class="best"><td>trial-1</td><td>0.5</td>' in text
    assert text.count('class="best"') == 1
    assert "<tr><td>model</td><td>held-1</td></tr>" in text
    assert "<li>trial-2: the &lt;loss&gt; was not finite</li>" in text
    assert "at least 8 are needed" in text
    assert "<td>0.2500</td>" in text
    assert text.count("data:image/png;base64,") == 2
    assert {path.name for path in others} == {
        "learning_curves.png",
        "parallel_coordinates.png",
        "trials.json",
    }
    table = json.loads((plan.report / "trials.json").read_text())
    assert [row["best"] for row in table] == [0.6, 0.5, None]
