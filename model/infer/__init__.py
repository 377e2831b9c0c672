"""NumPy evaluation of trained models: all that advice needs of them.

Training packages are not imported here. A model is plain arrays in an .npz file, read without
pickle, so loading a model cannot run code. Other rooms use the names below.
"""

from condor_advice.model.infer.logistic import logit, sigmoid
from condor_advice.model.infer.lstm import LstmNetwork
from condor_advice.model.infer.trees import TreeEnsemble

__all__ = ["LstmNetwork", "TreeEnsemble", "logit", "sigmoid"]
