"""Evaluate trained models with NumPy alone: all that giving advice needs.

No training package is imported here. A model is plain arrays in an .npz file, read without
pickle, so loading a model cannot run code. Other rooms use the names below; each is imported on
first use.
"""

from typing import TYPE_CHECKING

from condor_advice.model import lazily

if TYPE_CHECKING:
    from condor_advice.model.infer.logistic import logit as logit
    from condor_advice.model.infer.logistic import sigmoid as sigmoid
    from condor_advice.model.infer.lstm import LstmNetwork as LstmNetwork
    from condor_advice.model.infer.trees import TreeEnsemble as TreeEnsemble

_EXPORTS = {
    "LstmNetwork": "lstm",
    "TreeEnsemble": "trees",
    "logit": "logistic",
    "sigmoid": "logistic",
}
if not TYPE_CHECKING:  # type checkers use the imports above, and so reject unknown names
    __getattr__ = lazily(__name__, _EXPORTS)
