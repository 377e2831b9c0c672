"""Check submit files before they are submitted: faults, risk of failing, sizes."""

from condor_advice.advise.presubmit.lint import Finding
from condor_advice.advise.presubmit.prediction import Prediction, look_at

__all__ = ["Finding", "Prediction", "look_at"]
