"""A model's card: what it answers, its training data, its figures and its limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from condor_advice.gather.errors import UsageError
from condor_advice.gather.files import replace_file
from condor_advice.gather.foreign_text import one_line
from condor_advice.model.html_report import number
from condor_advice.model.plots import PlotData, draw_all
from condor_advice.model.registry.manifest import Manifest
from condor_advice.model.registry.versions import CARD

CARD_FILE = "card.md"
_WORDS = {
    "sources": "Sources",
    "episodes": "Hold episodes",
    "labelled": "... trained on",
    "succeeded": "... of these, succeeded after a release as is",
    "released_after_a_repair": "Released after a repair (not trained on)",
    "never_released": "Never released (not trained on)",
    "clusters": "Clusters, or larger groups of related jobs",
    "from": "First hold",
    "until": "Last hold",
}


def write(
    directory: Path,
    manifest: Manifest,
    judged: PlotData | None = None,
    checked: Mapping[str, object] | None = None,
) -> Path:
    """Write the card into `directory`/card/, with plots if there are predictions to show."""
    place = directory / CARD
    if place.is_symlink():
        raise UsageError(f"{place}: a symbolic link; remove it, or write the model elsewhere")
    place.mkdir(parents=True, exist_ok=True)
    pictures = draw_all(place, judged) if judged is not None else {}
    text = markdown(manifest, {caption: path.name for caption, path in pictures.items()}, checked)
    replace_file(place / CARD_FILE, text)
    return place / CARD_FILE


def markdown(
    manifest: Manifest,
    pictures: Mapping[str, str] | None = None,
    checked: Mapping[str, object] | None = None,
) -> str:
    """Return the card's text; `checked` describes the data that the pictures show."""
    lines = [
        f"# Model {manifest.name}",
        "",
        "Answers one question: if this held job is released now, as it is, does it end with exit 0",
        "without another hold? The answer has a probability, an interval, and whether it is sure.",
        "",
        "## Trained on",
        "",
        *_list(manifest.trained_on, _repaired(manifest)),
        f"- Data hash (SHA-256): `{manifest.data_hash}`",
        "",
        "## How good it is",
        "",
        *_metrics(manifest.metrics),
    ]
    if pictures:
        if checked:
            lines += ["The pictures show:", "", *_list(checked), ""]
        lines += [line for caption, file in pictures.items() for line in (_image(caption, file))]
    parts = manifest.model.get("weights")
    lines += [
        "## Limits",
        "",
        "- People choose what to release. The model has seen no outcome of a kind of hold that "
        "nobody ever released.",
        "- The model knows only what event logs show. They do not show repairs.",
        "- The figures hold for the data above. On another pool, see `condor-advice status`: it "
        "warns when holds or outcomes differ from those of training.",
        "",
        "## How it was made",
        "",
        f"- Created {manifest.created}",
        *([f"- Weights of its parts: {_inline(parts)}"] if isinstance(parts, Mapping) else []),
        f"- Features: {len(manifest.features)}",
        f"- Seeds: {_inline(manifest.seeds)}",
        f"- Libraries: {_inline(manifest.libraries)}",
        "",
        "```json",
        json.dumps(dict(manifest.settings), indent=1, default=str),
        "```",
        "",
        "| file | bytes | SHA-256 |",
        "|---|---:|---|",
        *(
            f"| {name} | {entry.bytes:,} | `{entry.sha256[:16]}…` |"
            for name, entry in manifest.files.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def flat_metrics(metrics: Mapping[str, Any]) -> dict[str, dict[str, float | int | None]]:
    """Return the figures of each part of the metrics, by the part's path."""
    by_path: dict[str, dict[str, float | int | None]] = {}

    def walk(path: Sequence[str], values: Mapping[str, Any]) -> None:
        own = {
            str(name): value
            for name, value in values.items()
            if value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        }
        if own:
            by_path[", ".join(path) or "all"] = own
        for name, value in values.items():
            if isinstance(value, Mapping):
                walk([*path, str(name)], value)

    walk([], metrics)
    return by_path


def _metrics(metrics: Mapping[str, Any]) -> list[str]:
    parts = flat_metrics(metrics)
    if not parts:
        return ["No figures were recorded.", ""]
    lines: list[str] = []
    # Parts with the same figures share a table.
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, values in parts.items():
        groups.setdefault(tuple(values), []).append(name)
    for columns, names in groups.items():
        lines.append("| | " + " | ".join(column.replace("_", " ") for column in columns) + " |")
        lines.append("|---|" + "---:|" * len(columns))
        for name in names:
            cells = " | ".join(number(value) for value in parts[name].values())
            lines.append(f"| {name.replace('_', ' ')} | {cells} |")
        lines.append("")
    return lines


def _repaired(manifest: Manifest) -> dict[str, str]:
    """Return the words for episodes released after a repair, which depend on the settings."""
    if not manifest.settings.get("repaired_failed"):
        return {}
    return {"released_after_a_repair": "... released after a repair, counted as failures"}


def _list(values: Mapping[str, object], words: Mapping[str, str] | None = None) -> list[str]:
    known = {**_WORDS, **(words or {})}
    return [
        f"- {known.get(str(name), str(name).replace('_', ' ').capitalize())}: {_inline(value)}"
        for name, value in values.items()
    ]


def _inline(value: object) -> str:
    """Return a value as plain text: no markup, and on one line."""
    return escape(one_line(_words(value)), quote=False)


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number(entry)}" for name, entry in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return number(value)


def _image(caption: str, file: str) -> tuple[str, str]:
    return f"![{caption}]({file})", ""
