"""Release or not: models for held jobs, their training and their evaluation.

Other rooms use the names below; each is imported on first use.
"""

from typing import TYPE_CHECKING

from condor_advice.model import lazily

if TYPE_CHECKING:
    from condor_advice.model.held.data import CannotTrain as CannotTrain
    from condor_advice.model.held.data import HeldData as HeldData
    from condor_advice.model.held.model import HeldModel as HeldModel
    from condor_advice.model.held.model import Predictions as Predictions
    from condor_advice.model.held.parts import Attribution as Attribution
    from condor_advice.model.held.parts import Inputs as Inputs
    from condor_advice.model.held.train import HeldSettings as HeldSettings
    from condor_advice.model.held.train import Trained as Trained

_EXPORTS = {
    "Attribution": "parts",
    "CannotTrain": "data",
    "HeldData": "data",
    "HeldModel": "model",
    "HeldSettings": "train",
    "Inputs": "parts",
    "Predictions": "model",
    "Trained": "train",
}
if not TYPE_CHECKING:  # type checkers use the imports above, and so reject unknown names
    __getattr__ = lazily(__name__, _EXPORTS)
