"""Where models are, for those who need to know before anything of a model is loaded."""

from __future__ import annotations

import os
from pathlib import Path

STARTER = Path(__file__).parents[1] / "held/starter"  # comes along, and answers until another does


def default_models_path() -> Path:
    """Return where models are kept when nothing names a place: $CONDOR_ADVICE_MODELS, or XDG."""
    if named := os.environ.get("CONDOR_ADVICE_MODELS"):
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(base) / "condor-advice" / "models"
