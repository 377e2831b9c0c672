"""How answers are shown: the width of the screen, and whether it has colours."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from datetime import datetime

NARROWEST, WIDEST = 40, 200
PIPE_WIDTH = 100
PROSE_WIDTH = 110  # longer lines of prose are hard to read


@dataclass(frozen=True, slots=True)
class Style:
    """How wide and high the screen is, and whether it has colours."""

    width: int = PIPE_WIDTH
    colour: bool = False
    terminal: bool = False
    now: datetime | None = None  # ages are relative to this moment; None: to the present
    height: int = 24

    @classmethod
    def of_stdout(cls) -> Style:
        """Fit the style to standard output; NO_COLOR and TERM=dumb are respected."""
        terminal = sys.stdout.isatty()
        columns, lines = shutil.get_terminal_size((PIPE_WIDTH, 24))
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        return cls(
            max(NARROWEST, min(columns, WIDEST)),
            terminal and not plain,
            terminal,
            height=max(8, lines),
        )

    @property
    def prose(self) -> int:
        """The width of wrapped sentences."""
        return min(self.width, PROSE_WIDTH)

    def paint(self, text: str, colour: int) -> str:
        """Return text in bold colour, where there are colours."""
        return f"\x1b[1;{colour}m{text}\x1b[0m" if self.colour else text

    def strong(self, text: str) -> str:
        """Return text in bold, where there are colours."""
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    def faint(self, text: str) -> str:
        """Return text in a faint colour, where there are colours."""
        return f"\x1b[2m{text}\x1b[0m" if self.colour else text
