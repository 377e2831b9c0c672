"""`status --report`: drift over time and how good the advice was, as one HTML page."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from condor_advice.model.html_report import Section, page
from condor_advice.model.plots import over_time


def health_page(found: Mapping[str, Any]) -> str:
    """Return the page about the model and its advice, from what `status` found."""
    advice = found["advice"]
    with tempfile.TemporaryDirectory(prefix="condor-advice-") as scratch:
        sections = [_drift(advice, Path(scratch))]
        if advice["feedback"]:
            sections += _feedback(advice["feedback"])
        return page(
            "Advice for held jobs: the model in use",
            sections,
            f"Model {advice['model'] or 'none'}; store {found['store']}, "
            f"{found['events']:,} events.",
        )


def _drift(advice: Mapping[str, Any], scratch: Path) -> Section:
    rows: list[list[object]] = [["signal", "now", "usual is up to", "unlike training since"]]
    for one in advice["drift"]:
        since = "all holds looked at" if one["from_the_start"] else str(one["began"])[:10]
        name = one["signal"].replace("_", " ")
        rows.append([name, one["value"], one["limit"], since if one["drifted"] else "–"])
    series = {
        one["signal"]: [(datetime.fromisoformat(p["until"]), p["value"]) for p in one["series"]]
        for one in advice["drift"]
        if one["series"]
    }
    limits = {
        one["signal"]: float("inf") if one["limit"] is None else one["limit"]
        for one in advice["drift"]
    }
    pictures = {}
    if series:
        pictures["How far each signal has drifted, window by window; dotted: the usual limit"] = (
            over_time(scratch / "drift.png", series, limits)
        )
    text = advice["warnings"] or ["Nothing has drifted away from what the model was trained on."]
    if advice["drift_note"]:
        text = [advice["drift_note"]]
    return Section("Drift", text, [rows] if advice["drift"] else [], pictures)


def _feedback(feedback: Mapping[str, Any]) -> list[Section]:
    verdicts: list[list[object]] = [
        ["verdict", "holds", "followed", "not followed", "open", "released, end known",
         "succeeded", "chance said", "success rate"]
    ]  # fmt: skip
    outcomes: list[list[object]] = [["verdict", "what came of it", "holds"]]
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
    said: list[list[object]] = [["chance said", "share that succeeded", "holds"]]
    said += [[one["said"], one["came"], one["holds"]] for one in feedback["chances"]["reliability"]]
    text = [
        f"In the last {feedback['days']:.0f} days advice was given on {feedback['holds']:,} holds "
        f"before they ended, of which {feedback['open']:,} are still open. "
        f"{feedback['looked_back']:,} holds were asked about only after they had ended, and "
        f"{feedback['not_found']:,} answers are about holds that are not in the store; neither "
        "counts."
    ]
    return [
        Section("What came of the advice", text, [verdicts, outcomes]),
        Section(
            "How good the probabilities were",
            [
                "For releases with a known outcome. Holds with the verdict FIX are left out: they "
                "may have been repaired before the release."
            ],
            [chances, said if len(said) > 1 else []],
        ),
    ]
