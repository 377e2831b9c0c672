"""Save and restore a PyTorch training loop; an example. torch is imported when used.

state = TrainingState(model, optimizer, scheduler, epoch=0)
with Checkpoint(save=lambda reason: state.save(checkpoint.files), directory="checkpoints",
                exit_after="auto") as checkpoint:
    state.restore(checkpoint.files)
    for epoch in range(state.progress["epoch"], epochs): ...
"""

from __future__ import annotations

import random
from typing import Any, Dict

from condor_checkpoint.files import CheckpointFiles


class TrainingState:
    """All that a training needs to resume as if it had not been interrupted.

    `parts` are objects with state_dict and load_state_dict: model, optimizer, scheduler,
    scaler. `progress` is the program's own: epoch, step, position in the data.
    """

    def __init__(self, *parts: Any, **progress: Any) -> None:
        self.parts = parts
        self.progress: Dict[str, Any] = progress

    def save(self, files: CheckpointFiles) -> None:
        """Write parts, progress and the state of the random numbers as one checkpoint."""
        import torch

        state = {
            "parts": [part.state_dict() for part in self.parts],
            "progress": self.progress,
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "python": random.getstate(),
        }
        with files.writing() as path:
            torch.save(state, path)

    def restore(self, files: CheckpointFiles) -> bool:
        """Restore the newest checkpoint that is readable; return whether there was one."""
        import torch

        # The file holds Python's random state besides tensors, and is the job's own.
        state = files.load(lambda path: torch.load(path, map_location="cpu", weights_only=False))
        if state is None:
            return False
        for part, saved in zip(self.parts, state["parts"]):
            part.load_state_dict(saved)
        self.progress = state["progress"]
        torch.set_rng_state(state["torch"])
        if state["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"])
        random.setstate(state["python"])
        return True
