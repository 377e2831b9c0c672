"""A small sweep for tests to change as they need."""

from __future__ import annotations

import sys
from typing import Any

SMALL: dict[str, Any] = {
    "name": "small",
    "method": "random",
    "metric": {"name": "validation_loss", "goal": "minimize"},
    "parameters": {
        "learning_rate": {"distribution": "log_uniform_values", "min": 0.001, "max": 0.02},
        "hidden": {"values": [4, 8]},
        "epochs": {"value": 2},
    },
    "condor_advice": {
        "data": [{"recording": "pool_a"}],
        "split": {"gap_seconds": 0},
        # Execution points of the test pool share this machine's files.
        "environment": {"python": sys.executable},
        "tracking": "off",
        "resources": {"memory_mb": 1024, "disk_mb": 500, "checkpoint_seconds": 0},
    },
}
