"""Will it fail: models of jobs before and while they run, their sizes and profiles.

Other rooms use the names below; each is imported on first use.
"""

from typing import TYPE_CHECKING

from condor_advice.model import lazily

if TYPE_CHECKING:
    from condor_advice.model.failure.model import FailureModels as FailureModels
    from condor_advice.model.failure.model import HorizonModel as HorizonModel
    from condor_advice.model.failure.train import TooFewJobs as TooFewJobs
    from condor_advice.model.failure.train import TrainSettings as TrainSettings

_EXPORTS = {
    "FailureModels": "model",
    "HorizonModel": "model",
    "TooFewJobs": "train",
    "TrainSettings": "train",
}
if not TYPE_CHECKING:  # type checkers use the imports above, and so reject unknown names
    __getattr__ = lazily(__name__, _EXPORTS)
