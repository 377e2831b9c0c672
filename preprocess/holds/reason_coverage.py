"""Measure how well hold reasons are recognised.

`python -m condor_advice.preprocess.holds.reason_coverage LOG|DIR...` prints one JSON object: how
many holds, distinct texts, templates and families the logs have, and how many match no family.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np

from condor_advice.gather.clock import Clock
from condor_advice.gather.errors import AdviceError
from condor_advice.preprocess.holds.templates import parse_reason
from condor_advice.preprocess.holds.timeline import log_blocks


def hold_reasons(path: Path) -> Iterator[tuple[str, int | None, int | None]]:
    """Yield the hold reasons in a log with their codes."""
    for columns in log_blocks(path, Clock(UTC)):
        for row in np.flatnonzero(columns.type == 12).tolist():
            ad = columns.ad(row)
            yield (
                str(ad.get("HoldReason", "")),
                ad.get("HoldReasonCode"),
                ad.get("HoldReasonSubCode"),
            )


def measure(paths: Iterable[Path]) -> dict[str, Any]:
    """Count texts, templates and families."""
    texts: Counter[tuple[str, int | None, int | None]] = Counter()
    for path in paths:
        texts.update(hold_reasons(path))
    templates: Counter[str] = Counter()
    families: Counter[str] = Counter()
    codes: dict[str, set[str]] = {}
    for (text, code, subcode), count in texts.items():
        reason = parse_reason(text, code, subcode)
        templates[reason.template] += count
        families[reason.family] += count
        codes.setdefault(reason.family, set()).add(f"{code}/{subcode}")
    return {
        "holds": sum(texts.values()),
        "texts": len({text for text, _, _ in texts}),
        "templates": len(templates),
        "families": dict(families.most_common()),
        "codes_by_family": {family: sorted(pairs) for family, pairs in codes.items()},
        "unassigned": families["other"],
    }


def find_logs(arguments: Iterable[str]) -> Iterator[Path]:
    """Yield the named files, and all files in the named directories."""
    for argument in arguments:
        path = Path(argument)
        yield from (p for p in sorted(path.rglob("*")) if p.is_file()) if path.is_dir() else [path]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("name event logs, or directories of them")
    try:
        print(json.dumps(measure(find_logs(sys.argv[1:]))))
    except AdviceError as error:
        raise SystemExit(str(error)) from None
