"""`status --report`: drift over time and how good the advice was, as one HTML page."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from condor_advice.model.html_report import Section, page
from condor_advice.model.plots import over_time


def health_page(status: Mapping[str, Any]) -> str:
    """Return the page about the model and its advice, from the figures of `status`."""
    advice = status["advice"]
    with tempfile.TemporaryDirectory(prefix="condor-advice-") as scratch:
        sections = [_drift(advice, Path(scratch))]
        if advice["feedback"]:
            sections += _feedback(advice["feedback"])
        return page(
            "Advice for held jobs: the model in use",
            sections,
            f"Model {advice['model'] or 'none'}; store {status['store']}, "
            f"{status['events']:,} events.",
        )


def _drift(advice: Mapping[str, Any], scratch: Path) -> Section:
    rows: list[list[object]] = [["signal", "now", "normally up to", "differs from training since"]]
    for signal in advice["drift"]:
        since = "the first hold examined" if signal["from_the_start"] else str(signal["began"])[:10]
        name = signal["signal"].replace("_", " ")
        since = since if signal["drifted"] else "–"
        rows.append([name, signal["value"], signal["limit"], since])
    series = {
        signal["signal"]: [
            (datetime.fromisoformat(point["until"]), point["value"]) for point in signal["series"]
        ]
        for signal in advice["drift"]
        if signal["series"]
    }
    limits = {
        signal["signal"]: float("inf") if signal["limit"] is None else signal["limit"]
        for signal in advice["drift"]
    }
    pictures = {}
    if series:
        pictures["Drift of each signal, window by window; dotted: the normal limit"] = over_time(
            scratch / "drift.png", series, limits
        )
    text = advice["warnings"] or ["Nothing has drifted from the model's training data."]
    if advice["drift_note"]:
        text = [advice["drift_note"]]
    return Section("Drift", text, [rows] if advice["drift"] else [], pictures)


def _feedback(feedback: Mapping[str, Any]) -> list[Section]:
    verdicts: list[list[object]] = [
        ["verdict", "holds", "followed", "not followed", "open", "released, outcome known",
         "succeeded", "predicted chance", "success rate"]
    ]  # fmt: skip
    outcomes: list[list[object]] = [["verdict", "outcome", "holds"]]
    for verdict, part in feedback["verdicts"].items():
        verdicts.append(
            [verdict, part["holds"], part["followed"], part["not_followed"], part["open"],
             part["released_with_known_outcome"], part["succeeded"], part["chance_said"],
             part["success_rate"]]
        )  # fmt: skip
        outcomes += [
            [verdict, outcome.replace("_", " "), count]
            for outcome, count in part["outcomes"].items()
        ]
    chances: list[list[object]] = [
        ["answered by", "holds", "Brier score", "share that succeeded", "calibration error"]
    ]
    for source, part in feedback["by_source"].items():
        chances.append(
            [source, part["holds"], part["brier"], part["base_rate"], part["calibration_error"]]
        )
    reliability: list[list[object]] = [["predicted chance", "share that succeeded", "holds"]]
    reliability += [
        [bin["said"], bin["came"], bin["holds"]] for bin in feedback["chances"]["reliability"]
    ]
    text = [
        f"In the last {feedback['days']:.0f} days, advice was given on {feedback['holds']:,} holds "
        f"before they ended; {feedback['open']:,} of them are still open. "
        f"{feedback['looked_back']:,} holds were asked about only after they ended, and "
        f"{feedback['not_found']:,} answers concern holds that are not in the store; neither "
        "kind counts."
    ]
    return [
        Section("Outcomes of the advice", text, [verdicts, outcomes]),
        Section(
            "How good the probabilities were",
            [
                "For releases with a known outcome. Holds with the verdict FIX are left out: they "
                "may have been repaired before the release."
            ],
            [chances, reliability if len(reliability) > 1 else []],
        ),
    ]
