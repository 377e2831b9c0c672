"""Track the figures of a training: nowhere by default, or with Weights & Biases (W&B).

Training code only calls `start`, `log` and `finish`. Without an API key, W&B stores runs offline
in a directory; `wandb sync` uploads them later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from condor_advice.gather.errors import AdviceError


class Tracker(Protocol):
    """Receives the figures of one run."""

    def start(self, settings: Mapping[str, Any]) -> None:
        """Start a run with these settings."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record figures at a step, such as an epoch."""

    def finish(self) -> None:
        """End the run."""


class NoTracking:
    """Discards all figures."""

    def start(self, settings: Mapping[str, Any]) -> None:
        """Do nothing."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


class WandbTracking:
    """A W&B run; offline unless WANDB_API_KEY is set or WANDB_MODE says otherwise.

    With an `identity`, a run resumes after an eviction.
    """

    def __init__(
        self,
        project: str,
        identity: str | None = None,
        directory: Path | None = None,
        group: str | None = None,
    ) -> None:
        self.project, self.identity, self.directory = project, identity, directory
        self.group = group
        self.run: Any = None

    def start(self, settings: Mapping[str, Any]) -> None:
        """Start or resume the run."""
        try:
            import wandb
        except ImportError as error:
            raise AdviceError(
                "tracking needs wandb, which is not installed; install it with "
                "`pip install wandb`, or train without tracking"
            ) from error
        mode: Any = os.environ.get("WANDB_MODE") or (
            "online" if os.environ.get("WANDB_API_KEY") else "offline"
        )
        self.run = wandb.init(
            project=self.project,
            id=self.identity,
            group=self.group,
            resume="allow" if self.identity and mode == "online" else None,
            dir=str(self.directory) if self.directory else None,
            config=dict(settings),
            mode=mode,
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send figures; W&B ignores steps it already has, so a resumed run may repeat some."""
        if self.run is not None:
            self.run.log(dict(metrics), step=step)

    def finish(self) -> None:
        """End the run."""
        if self.run is not None:
            self.run.finish()
            self.run = None
