"""Draw bars of waste by policy, one panel for each cell, as SVG without any package."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence
from xml.sax.saxutils import escape

COLOURS = {
    "none": "#9e9e9e",
    "young": "#90caf9",
    "daly": "#42a5f5",
    "predictor": "#ffcc80",
    "either": "#ffa726",
    "ours": "#2e7d32",
    "oracle": "#6a1b9a",
}
WIDTH, HEIGHT, BAR, TOP = 260, 190, 26, 34


def bars(cells: Sequence[Dict[str, Any]], columns: int = 3) -> str:
    """Draw the cells of a simulation; whiskers are 95 % confidence intervals."""
    rows = (len(cells) + columns - 1) // columns
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * WIDTH}" '
        f'height="{rows * HEIGHT}" font-family="sans-serif" font-size="10">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for index, cell in enumerate(cells):
        parts.append(
            f'<g transform="translate({index % columns * WIDTH},{index // columns * HEIGHT})">'
        )
        parts.extend(_panel(cell))
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(cell: Dict[str, Any]) -> List[str]:
    waste, widths = cell["waste"], cell["half_width"]
    # The bar of "none" would flatten all others, so it may exceed the panel.
    top = 1.15 * max([value for name, value in waste.items() if name != "none"] or [1.0])
    base = HEIGHT - 38
    scale = (base - TOP) / top
    title = f"MTBF {cell['mtbf']:g} s, a save {cell['checkpoint_cost']:g} s"
    parts = [f'<text x="12" y="16" font-size="12">{escape(title)}</text>']
    for place, (name, value) in enumerate(waste.items()):
        left = 14 + place * (BAR + 7)
        height = min(value, top) * scale
        parts.append(
            f'<rect x="{left}" y="{base - height:.1f}" width="{BAR}" '
            f'height="{height:.1f}" fill="{COLOURS.get(name, "#546e7a")}"/>'
        )
        if value <= top:
            low, high = (base - (value + sign * widths[name]) * scale for sign in (-1, 1))
            middle = left + BAR / 2
            parts.append(f'<path d="M{middle} {low:.1f} V{high:.1f}" stroke="black"/>')
        parts.append(
            f'<text x="{left + BAR / 2}" y="{base - height - 4:.1f}" '
            f'text-anchor="middle">{100 * value:.1f}</text>'
        )
        parts.append(
            f'<text x="{left + BAR / 2}" y="{base + 13}" text-anchor="middle" '
            f'font-size="8">{escape(name)}</text>'
        )
    parts.append(f'<text x="12" y="{base + 27}" fill="#616161">waste in % of wall time</text>')
    return parts
