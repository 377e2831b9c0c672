"""Write large event logs in HTCondor's own format, from causes that the log does not name."""

from condor_advice.lab.simulate.access_point import simulate
from condor_advice.lab.simulate.profile import PROFILES, Profile
from condor_advice.lab.simulate.result import SimulationResult

__all__ = ["PROFILES", "Profile", "SimulationResult", "simulate"]
