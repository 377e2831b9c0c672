"""Write a report as one self-contained HTML file: no scripts, nothing to load.

All reports of the project use this module and share its style.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from condor_advice.gather.foreign_text import visible

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1c2833; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #d5d8dc; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #e5e7e9; text-align: right; }
th:first-child, td:first-child, .facts td { text-align: left; }
.best { background: #eef6ee; }
figure { display: inline-block; margin: .5rem 1rem .5rem 0; vertical-align: top; }
figcaption { color: #566573; font-size: .9rem; } img { max-width: 100%; height: auto; }
pre { background: #f4f6f7; padding: .7rem; overflow-x: auto; } .note { color: #566573; }
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading followed by facts, text, a list, tables and pictures, in this order."""

    heading: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Sequence[Sequence[object]]] = ()  # the first row of each is its header
    pictures: Mapping[str, Path | bytes] = field(default_factory=dict)  # PNG by caption
    facts: Mapping[str, object] = field(default_factory=dict)
    items: Sequence[str] = ()
    best_first: bool = False  # the tables are ranked: highlight their first rows


def page(title: str, sections: Iterable[Section], note: str = "") -> str:
    """Return the page; all text is escaped, and PNG files are inlined."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
    ]
    if note:
        parts.append(f'<p class="note">{escape(note)}</p>')
    for section in sections:
        parts.append(f"<h2>{escape(section.heading)}</h2>")
        if section.facts:
            parts.append(_facts(section.facts))
        parts += [f"<p>{escape(text)}</p>" for text in section.paragraphs]
        if section.items:
            items = "".join(f"<li>{escape(item)}</li>" for item in section.items)
            parts.append(f"<ul>{items}</ul>")
        parts += [_table(rows, section.best_first) for rows in section.tables if rows]
        parts += [_picture(caption, png) for caption, png in section.pictures.items()]
    parts.append("</body></html>\n")
    return "\n".join(parts)


def escape(text: str, quote: bool = True) -> str:
    """Return text for HTML, without characters that are not seen or turn the direction."""
    return html.escape(visible(text), quote=quote)


def number(value: object, digits: int = 3) -> str:
    """Format a figure for a table."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value != value:  # NaN
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}f}"


def _facts(facts: Mapping[str, object]) -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(str(fact))}</td></tr>"
        for name, fact in facts.items()
    )
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def _table(rows: Sequence[Sequence[object]], best_first: bool) -> str:
    head, *body = rows
    lines = ["<table><thead><tr>", *(f"<th>{escape(str(cell))}</th>" for cell in head)]
    lines.append("</tr></thead><tbody>")
    for place, row in enumerate(body):
        cells = "".join(f"<td>{escape(number(cell))}</td>" for cell in row)
        kind = ' class="best"' if best_first and not place else ""
        lines.append(f"<tr{kind}>{cells}</tr>")
    lines.append("</tbody></table>")
    return "".join(lines)


def _picture(caption: str, png: Path | bytes) -> str:
    data = base64.b64encode(png if isinstance(png, bytes) else png.read_bytes()).decode()
    text = escape(caption, quote=True)
    return (
        f'<figure><img alt="{text}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text}</figcaption></figure>"
    )
