"""Check submit files before they are submitted: faults, risk of failing, sizes."""

from condor_advice.advise.presubmit.lint import Finding
from condor_advice.advise.presubmit.prediction import Prediction, predict_submit

__all__ = ["Finding", "Prediction", "predict_submit"]
