"""The hook that a user's job imports: asks the program to save before work is lost."""

from condor_checkpoint.files import CheckpointFiles
from condor_checkpoint.hook import AsyncCheckpoint, Checkpoint, SaveTimeout, checkpointed

__all__ = ["AsyncCheckpoint", "Checkpoint", "CheckpointFiles", "SaveTimeout", "checkpointed"]
