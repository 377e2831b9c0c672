"""Where models are. Importing this loads nothing of a model."""

from __future__ import annotations

import os
from pathlib import Path

STARTER = Path(__file__).parents[1] / "held/starter"  # the shipped model


def default_models_path() -> Path:
    """Return the default directory of models: $CONDOR_ADVICE_MODELS, or XDG's."""
    if named := os.environ.get("CONDOR_ADVICE_MODELS"):
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(base) / "condor-advice" / "models"
