"""Write event logs at scale, in HTCondor's own format, from causes the log does not name."""

from condor_advice.lab.simulate.access_point import PROFILES, Profile, Result, simulate

__all__ = ["PROFILES", "Profile", "Result", "simulate"]
