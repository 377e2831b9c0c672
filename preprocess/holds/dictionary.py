"""Generate docs/data-dictionary.md from the registries.

Written by `python -m condor_advice.preprocess.holds.dictionary`.
"""

from __future__ import annotations

from condor_advice.preprocess.holds.features import HOLD_FEATURES, QUICK_SECONDS, SHRINKAGE
from condor_advice.preprocess.holds.labels import LABELS
from condor_advice.preprocess.holds.outcomes import Outcome
from condor_advice.preprocess.holds.templates import FAMILIES, TEMPLATE_BUCKETS
from condor_advice.preprocess.holds.tensors import STEP_COLUMNS

_OUTCOME_WORDS = {
    Outcome.SUCCEEDED: "Exited with 0, without another hold",
    Outcome.HELD_SAME: "Held again with the same code",
    Outcome.HELD_OTHER: "Held again with another code",
    Outcome.FAILED: "Exited with another status or by a signal",
    Outcome.REMOVED: "Removed after the release",
    Outcome.NEVER_RELEASED: "Removed, still held, or held again while on hold",
    Outcome.UNKNOWN: "Released, but the log ends before an outcome",
}


def data_dictionary() -> str:
    """Return docs/data-dictionary.md."""
    lines = [
        "# Data dictionary",
        "",
        "Written by `python -m condor_advice.preprocess.holds.dictionary`; "
        "a test checks that it is current.",
        "",
        f"## Features ({len(HOLD_FEATURES)} columns of features.parquet)",
        "Values are as of the hold, including the hold's own event. Unknown values are NaN.",
        f"Rates are shrunk towards the pool's average with the weight of {SHRINKAGE:g} outcomes. "
        "An outcome counts from",
        "the event that decides it, never earlier. *Quick* means within "
        f"{QUICK_SECONDS // 60} minutes.",
        "",
        "| name | unit | meaning | from events |",
        "|---|---|---|---|",
        *(f"| {f.name} | {f.unit} | {f.meaning} | {f.source} |" for f in HOLD_FEATURES),
        "",
        f"## Steps ({len(STEP_COLUMNS)} columns of steps.f32)",
        "One row per event of the job up to its hold, oldest first; the last row is the hold.",
        "A value that was not reported is 0.",
        "",
        "| name | unit | meaning |",
        "|---|---|---|",
        *(f"| {c.name} | {c.unit} | {c.meaning} |" for c in STEP_COLUMNS),
        "",
        "## Outcomes and labels",
        "| outcome | meaning | label |",
        "|---|---|---|",
        *(f"| {o.name} | {_OUTCOME_WORDS[o]} | {LABELS.get(o, 'none')} |" for o in Outcome),
        "",
        "## Families",
        "Tables contain a family's index in this list. Templates are hashed into "
        f"{TEMPLATE_BUCKETS} buckets.",
        "",
        ", ".join(f"{index} {name}" for index, name in enumerate(FAMILIES)),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(data_dictionary(), end="")
